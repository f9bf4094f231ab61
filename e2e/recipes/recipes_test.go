package recipes

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-github/v88/github"
	"github.com/openai/openai-go"
	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// TestDocument: docs/recipes.md shows the code of this package.
func TestDocument(t *testing.T) {
	document := testkit.Must(os.ReadFile("../../docs/recipes.md"))(t)
	for _, file := range testkit.Must(filepath.Glob("*.go"))(t) {
		source := testkit.Must(os.ReadFile(file))(t)
		if _, code, ok := bytes.Cut(source, []byte("\nfunc ")); ok && !strings.HasSuffix(file, "_test.go") {
			assert.True(t, bytes.Contains(document, append([]byte("func "), code...)), "%s is not in the document", file)
		}
	}
}

// The server sees each call six times, so no SDK adds retries of its own.
func TestOneLayerRetries(t *testing.T) {
	under := func(base http.RoundTripper) *http.Client {
		return &http.Client{Transport: transport.MustNew(transport.Config{Base: base, Rule: profile.GitHub()})}
	}
	for name, call := range map[string]func(t *testing.T, base http.RoundTripper) error{
		"openai-go": func(t *testing.T, base http.RoundTripper) error {
			client := newOpenAI(under(base))
			_, err := client.Models.Get(t.Context(), "m")
			assert.ErrorAs(t, err, new(*openai.Error))
			return err
		},
		"go-github": func(t *testing.T, base http.RoundTripper) error {
			client := testkit.Must(newGitHub(under(base), "token"))(t)
			_, _, err := client.Issues.Get(t.Context(), "owner", "repo", 1)
			assert.ErrorAs(t, err, new(*github.ErrorResponse))
			return err
		},
		"client-go": func(t *testing.T, base http.RoundTripper) error {
			client := testkit.Must(newKubernetes(&rest.Config{Host: "http://10.0.0.1", Transport: base}))(t)
			_, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Get(t.Context(), "a", metav1.GetOptions{})
			assert.True(t, apierrors.IsServiceUnavailable(err), "%v", err)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := faults.New(nil, faults.Script(faults.Status(503).RetryAfter(time.Second)))
				assert.Error(t, call(t, base))
				assert.Len(t, base.Records(), 6, "requests that arrived")
			})
		})
	}
}
