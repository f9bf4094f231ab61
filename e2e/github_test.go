// go-github, with a server that has the shape of GitHub's API. The real API has
// weak ETags and ignores Range.

package e2e

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-github/v88/github"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

const blobSize = 256 << 10

func githubClient() client {
	return client{
		name:  "go-github",
		off:   hasNone,
		needs: "`profile.GitHub()`",
		rule:  profile.GitHub(),
		size:  blobSize,
		serve: func(testing.TB, string) http.Handler { return fakeGitHub() },
		open: func(t testing.TB, s setup) session {
			c := newGitHub(t, s)
			return session{
				download: func(ctx context.Context) error {
					got, _, err := c.Git.GetBlobRaw(ctx, "owner", "repo", object)
					if err != nil {
						return err
					}
					return same(bytes.NewReader(got), content(blobSize))
				},
				upload: func(ctx context.Context, b []byte) error {
					got, _, err := c.Repositories.CreateFile(ctx, "owner", "repo", "file", &github.RepositoryContentFileOptions{Message: new("new"), Content: b})
					if err == nil && got.Content.GetSHA() != hex.EncodeToString(sum(b)) {
						return fmt.Errorf("the server has %s", got.Content.GetSHA())
					}
					return err
				},
				own: asError[*github.ErrorResponse],
			}
		},
	}
}

func newGitHub(t testing.TB, s setup) *github.Client {
	url := s.url + "/"
	c, err := github.NewClient(github.WithHTTPClient(s.http), github.WithURLs(&url, &url), github.WithAuthToken("token"))
	require.NoError(t, err)
	return c
}

// fakeGitHub has a blob, and answers a new file or comment with its hash.
func fakeGitHub() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /repos/owner/repo/git/blobs/"+object, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `W/"v1"`)
		w.Header().Set("Content-Length", strconv.Itoa(blobSize))
		_, _ = w.Write(content(blobSize))
	})
	mux.HandleFunc("PUT /repos/owner/repo/contents/file", func(w http.ResponseWriter, req *http.Request) {
		var asked github.RepositoryContentFileOptions
		if err := json.NewDecoder(req.Body).Decode(&asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"content": map[string]any{"sha": hex.EncodeToString(sum(asked.Content))}})
	})
	mux.HandleFunc("POST /repos/owner/repo/issues/1/comments", func(w http.ResponseWriter, req *http.Request) {
		var asked github.IssueComment
		if err := json.NewDecoder(req.Body).Decode(&asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(asked)
	})
	return mux
}

// limited answers the first n requests 403, with the header of a limit.
func limited(n int, message string, header http.Header) func(int, http.ResponseWriter, *http.Request) bool {
	return func(i int, w http.ResponseWriter, _ *http.Request) bool {
		if i > n {
			return false
		}
		for name, values := range header {
			w.Header()[name] = values
		}
		w.Header().Set("X-Github-Request-Id", "1")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(map[string]string{
			"message":           message,
			"documentation_url": "https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api#about-secondary-rate-limits",
		})
		return true
	}
}

// An exceeded limit breaks the bare client with an error of its own. With aplomb a
// POST is sent again after the wait.
func TestGitHubLimits(t *testing.T) {
	soon := func(after time.Duration) http.Header {
		reset := time.Now().Add(after).Unix()
		return http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Limit": {"60"}, "X-Ratelimit-Reset": {fmt.Sprint(reset)}}
	}
	comment := func(c *github.Client) error {
		got, _, err := c.Issues.CreateComment(bounded(t), "owner", "repo", 1, &github.IssueComment{Body: new("text")})
		if err == nil && got.GetBody() != "text" {
			return fmt.Errorf("the comment is %q", got.GetBody())
		}
		return err
	}
	tests := []struct {
		name, message string
		header        func() http.Header
		own           func(error) bool
	}{
		{"primary", "API rate limit exceeded", func() http.Header { return soon(time.Second) }, asError[*github.RateLimitError]},
		{"secondary", "You have exceeded a secondary rate limit", func() http.Header { return http.Header{"Retry-After": {"1"}} }, asError[*github.AbuseRateLimitError]},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, githubClient())
			b.answer(limited(1, test.message, test.header()))
			bare := newGitHub(t, setup{http: &http.Client{Transport: base(t, b.network, false)}, url: b.url})
			err := comment(bare)
			assert.True(t, test.own(err), "%v", err)
			assert.Equal(t, 1, b.seen(), "requests that arrived")

			hc, r := under(t, base(t, b.network, false), profile.GitHub(), nil)
			b.answer(limited(1, test.message, test.header()))
			require.NoError(t, comment(newGitHub(t, setup{http: hc, url: b.url})))
			assert.Equal(t, 2, b.seen(), "requests that arrived")
			require.Len(t, r.told(), 1, "attempts told")
			assert.GreaterOrEqual(t, r.told()[0].Attempt.Delay, r.told()[0].Attempt.RetryAfter)
		})
	}

	t.Run("used up for an hour", func(t *testing.T) {
		b := newBench(t, githubClient())
		b.answer(limited(1, "API rate limit exceeded", soon(time.Hour)))
		hc, r := under(t, base(t, b.network, false), profile.GitHub(), nil)
		err := comment(newGitHub(t, setup{http: hc, url: b.url}))
		assert.True(t, asError[*github.RateLimitError](err), "%v", err)
		assert.Equal(t, 1, b.seen(), "requests that arrived")
		require.Len(t, r.told(), 1, "attempts told")
		assert.Equal(t, transport.ReasonThrottled, r.told()[0].Reason)

		hc.Timeout = 10 * time.Second
		err = comment(newGitHub(t, setup{http: hc, url: b.url})) // has not heard of the limit, but the Transport has
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 1, b.seen(), "requests that arrived")
	})

	t.Run("a missing permission", func(t *testing.T) {
		b := newBench(t, githubClient())
		b.answer(limited(1, "Resource not accessible", nil))
		hc, r := under(t, base(t, b.network, false), profile.GitHub(), nil)
		require.Error(t, comment(newGitHub(t, setup{http: hc, url: b.url})))
		assert.Equal(t, 1, b.seen(), "requests that arrived")
		assert.Empty(t, r.told())
	})
}
