// client-go, with a server that has the shape of the Kubernetes API.

package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

const mapsPath = "/api/v1/namespaces/default/configmaps"

func kubernetesClient() client {
	return client{
		name:  "k8s.io/client-go",
		off:   "`request.MaxRetries(0)`. It retries only what has a Retry-After: 11 → 66 → 6. The clients that are generated cannot turn this off",
		needs: "`profile.API()`",
		rule:  profile.API(),
		size:  256 << 10,
		serve: func(testing.TB, string) http.Handler { return fakeKubernetes(nil) },
		open: func(t testing.TB, s setup) session {
			c := newKubernetes(t, s)
			return session{
				download: func(ctx context.Context) error {
					return are(configMap(object))(c(http.MethodGet).AbsPath(mapsPath, object).DoRaw(ctx))
				},
				upload: func(ctx context.Context, b []byte) error {
					return are(sum(b))(c(http.MethodPost).AbsPath(mapsPath).Body(b).DoRaw(ctx))
				},
				own: asError[*apierrors.StatusError],
			}
		},
	}
}

func newKubernetes(t testing.TB, s setup) func(method string) *rest.Request {
	config := &rest.Config{Host: s.url, APIPath: "/api", QPS: -1, ContentConfig: rest.ContentConfig{
		GroupVersion:         &schema.GroupVersion{Version: "v1"},
		NegotiatedSerializer: serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion(),
	}}
	c := testkit.Must(rest.RESTClientForConfigAndClient(config, s.http))(t)
	return func(method string) *rest.Request {
		r := c.Verb(method)
		if !s.retries {
			r.MaxRetries(0)
		}
		return r
	}
}

// configMap is an object of the API with some content.
func configMap(name string) []byte {
	b, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "default"},
		"binaryData": map[string]any{"data": base64.StdEncoding.EncodeToString(content(256 << 10))},
	})
	if err != nil {
		panic(err)
	}
	return b
}

// fakeKubernetes has ConfigMaps. A watch tells of three new ones, of each when the
// one before was received.
func fakeKubernetes(received <-chan struct{}) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+mapsPath+"/{name}", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(configMap(req.PathValue("name")))
	})
	mux.HandleFunc("POST "+mapsPath, func(w http.ResponseWriter, req *http.Request) {
		_, _ = w.Write(sum(whole(req)))
	})
	mux.HandleFunc("GET "+mapsPath, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if req.URL.Query().Get("watch") == "" {
			_, _ = fmt.Fprintf(w, `{"apiVersion":"v1","kind":"ConfigMapList","metadata":{"resourceVersion":"1"},"items":[%s]}`, configMap("0"))
			return
		}
		for i := range 3 {
			_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", configMap(fmt.Sprint(i)))
			_ = http.NewResponseController(w).Flush()
			select {
			case <-received:
			case <-req.Context().Done():
				return
			}
		}
		panic(http.ErrAbortHandler) // the server goes away
	})
	return mux
}

// If the response names a wait, client-go retries by itself, ten times.
func TestKubernetesRetries(t *testing.T) {
	b := newBench(t, kubernetesClient())
	attempts := func(s session) int {
		b.answer(busyUntil(1000))
		err := s.download(bounded(t))
		require.True(t, apierrors.IsServiceUnavailable(err), "%v", err)
		return b.seen()
	}
	rule := policy.Rule{RetryBudget: policy.RetryBudget{Enabled: policy.Off}}
	testkit.Count(t, 11, attempts(b.bare(t, true, 0)), "request sent")
	testkit.Count(t, 1, attempts(b.bare(t, false, 0)), "request sent")
	s, _ := b.under(t, rule, true, nil)
	testkit.Count(t, 66, attempts(s), "request sent")
	s, _ = b.under(t, rule, false, nil)
	testkit.Count(t, 6, attempts(s), "request sent")
}

// The events of a watch arrive as they happen. When the connection is lost, the
// watch ends and is not retried, because its response has no end that could be
// continued. A watch that is refused at its start is retried.
func TestKubernetesWatch(t *testing.T) {
	received := make(chan struct{})
	s := newServer(t, func(string) http.Handler { return fakeKubernetes(received) })
	w := newNetwork(t, s.url)
	maps := func(hc *http.Client) dynamic.ResourceInterface {
		c := testkit.Must(dynamic.NewForConfigAndClient(&rest.Config{Host: s.url}, hc))(t)
		return c.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
	}
	s.answer(unavailable)
	_, err := maps(&http.Client{Transport: base(t, w, false)}).List(bounded(t), metav1.ListOptions{})
	require.Error(t, err)

	first503 := func(i int, w http.ResponseWriter, req *http.Request) bool { return i == 1 && unavailable(i, w, req) }
	hc, r := under(t, base(t, w, false), profile.API(), nil)
	s.answer(first503)
	list := testkit.Must(maps(hc).List(bounded(t), metav1.ListOptions{}))(t)
	assert.Len(t, list.Items, 1)
	got := testkit.Must(maps(hc).Get(bounded(t), object, metav1.GetOptions{}))(t)
	assert.Equal(t, object, got.GetName())

	s.answer(first503)
	events, err := maps(hc).Watch(bounded(t), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	require.NoError(t, err)
	defer events.Stop()
	var names []string
	for e := range events.ResultChan() {
		if m, ok := e.Object.(*unstructured.Unstructured); ok && e.Type == "ADDED" {
			names = append(names, m.GetName())
			received <- struct{}{}
		}
	}
	assert.Equal(t, []string{"0", "1", "2"}, names)
	assert.Equal(t, 2, s.seen(), "requests that arrived")
	told := r.told()
	require.Len(t, told, 3, "the first list, the first watch, and the end of the watch")
	assert.Equal(t, transport.ReasonNotResumable, told[2].Reason)
}
