// azcore, on which all of Azure's SDK is built.

package e2e

import (
	"bytes"
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azpolicy "github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"

	"github.com/aplomb-go/aplomb/policy/profile"
)

func azureClient() client {
	return client{
		name:    "azcore",
		off:     "`Retry: policy.RetryOptions{MaxRetries: -1}`",
		needs:   "`profile.Azure()`",
		rule:    profile.Azure(),
		size:    1 << 20,
		resumes: true,
		serve:   func(testing.TB, string) http.Handler { return newStore(content(1 << 20)) },
		open: func(_ testing.TB, s setup) session {
			a := newAzure(s)
			return session{
				download: func(ctx context.Context) error {
					return are(content(1 << 20))(a.do(ctx, http.MethodGet, "/"+object, nil))
				},
				upload: func(ctx context.Context, b []byte) error {
					return are(sum(b))(a.do(ctx, http.MethodPut, "/other", b))
				},
				own: asError[*azcore.ResponseError],
			}
		},
	}
}

func TestAzureUploads(t *testing.T) { hundredUploads(t, azureClient()) }

// azure works like the generated clients of the SDK.
type azure struct {
	pipeline runtime.Pipeline
	url      string
}

func newAzure(s setup) *azure {
	retry := azpolicy.RetryOptions{RetryDelay: time.Millisecond, MaxRetryDelay: time.Millisecond}
	if !s.retries {
		retry = azpolicy.RetryOptions{MaxRetries: -1}
	}
	o := &azpolicy.ClientOptions{Transport: s.http, Retry: retry}
	return &azure{runtime.NewPipeline("e2e", "v1", runtime.PipelineOptions{}, o), s.url}
}

// do sends a request and returns the content of a response of 200.
func (a *azure) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := runtime.NewRequest(ctx, method, runtime.JoinPaths(a.url, path))
	if err != nil {
		return nil, err
	}
	if body != nil {
		if err := req.SetBody(streaming.NopCloser(bytes.NewReader(body)), "application/octet-stream"); err != nil {
			return nil, err
		}
	}
	resp, err := a.pipeline.Do(req)
	if err != nil {
		return nil, err
	}
	if !runtime.HasStatusCode(resp, http.StatusOK) {
		return nil, runtime.NewResponseError(resp)
	}
	return runtime.Payload(resp)
}
