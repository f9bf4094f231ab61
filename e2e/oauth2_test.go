// golang.org/x/oauth2 above aplomb and below it.

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/aplomb-go/aplomb/policy/profile"
)

func oauth2Client() client {
	return client{
		name:    "golang.org/x/oauth2",
		off:     hasNone,
		needs:   "`profile.API()`, because tokens are asked for with POST. Below aplomb it gives each attempt a fresh token",
		rule:    profile.API(),
		size:    1 << 20,
		resumes: true,
		serve: func(testing.TB, string) http.Handler {
			return &guarded{next: newStore(content(1 << 20))}
		},
		open: func(_ testing.TB, s setup) session {
			source := oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "static"})
			return storeSession(&http.Client{Transport: &oauth2.Transport{Source: source, Base: s.http.Transport}, Timeout: s.http.Timeout}, s.url)
		},
	}
}

// A guarded handler issues tokens at /token and refuses requests without a token.
type guarded struct {
	next http.Handler

	mu     sync.Mutex
	issued int
	tokens []string // of all requests
}

// counts returns how many tokens were issued, and the token of each request.
func (g *guarded) counts() (issued int, tokens []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.issued, append([]string(nil), g.tokens...)
}

func (g *guarded) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/token" {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.issued++
		w.Header().Set("Content-Type", "application/json")
		// It has expired when it is used again, because the library renews it early.
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": fmt.Sprint(g.issued), "token_type": "bearer", "expires_in": 5})
		return
	}
	if !g.note(req) {
		http.Error(w, "no token", http.StatusUnauthorized)
		return
	}
	g.next.ServeHTTP(w, req)
}

// note keeps the token of a request. It reports whether there is one.
func (g *guarded) note(req *http.Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	var token string
	n, _ := fmt.Sscanf(req.Header.Get("Authorization"), "Bearer %s", &token)
	g.tokens = append(g.tokens, token)
	return n == 1
}

// busyStore is a guarded store whose every second request is refused. Requests for
// a token are not among them.
func busyStore(t testing.TB) (*guarded, *server, *network) {
	g := &guarded{next: newStore(content(1 << 20))}
	s := newServer(t, func(string) http.Handler { return g })
	var mu sync.Mutex
	seen := 0
	s.answer(func(n int, w http.ResponseWriter, req *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if req.URL.Path != "/token" {
			seen++
		}
		return req.URL.Path != "/token" && seen%2 == 1 && g.note(req) && unavailable(n, w, req)
	})
	return g, s, newNetwork(t, s.url)
}

// tokens asks for a new token for each use, with hc.
func tokens(ctx context.Context, s *server, hc *http.Client) oauth2.TokenSource {
	c := clientcredentials.Config{ClientID: "id", ClientSecret: "secret", TokenURL: s.url + "/token", AuthStyle: oauth2.AuthStyleInParams}
	return c.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, hc))
}

// Above aplomb, oauth2 gets a token for each request, and all attempts have it.
// Below, it gets a token for each attempt. No attempt lacks a token.
func TestOAuth2Tokens(t *testing.T) {
	const requests = 5
	get := func(t *testing.T, s *server, hc *http.Client) {
		for range requests {
			require.NoError(t, storeSession(hc, s.url).download(bounded(t)))
		}
	}
	t.Run("bare", func(t *testing.T) {
		_, s, w := busyStore(t)
		plain := &http.Client{Transport: base(t, w, false)}
		hc := &http.Client{Transport: &oauth2.Transport{Source: tokens(t.Context(), s, plain), Base: plain.Transport}}
		require.Equal(t, statusError(http.StatusServiceUnavailable), storeSession(hc, s.url).download(bounded(t)))
	})
	t.Run("above", func(t *testing.T) {
		g, s, w := busyStore(t)
		hc, r := under(t, base(t, w, false), profile.API(), nil)
		get(t, s, &http.Client{Transport: &oauth2.Transport{Source: tokens(t.Context(), s, hc), Base: hc.Transport}})
		issued, used := g.counts()
		assert.Equal(t, requests, issued)
		assert.Equal(t, []string{"1", "1", "2", "2", "3", "3", "4", "4", "5", "5"}, used)
		assert.Len(t, r.told(), requests, "attempts told")
	})
	t.Run("below", func(t *testing.T) {
		g, s, w := busyStore(t)
		plain := base(t, w, false)
		hc, r := under(t, &oauth2.Transport{Source: tokens(t.Context(), s, &http.Client{Transport: plain}), Base: plain}, profile.API(), nil)
		get(t, s, hc)
		issued, used := g.counts()
		assert.Equal(t, 2*requests, issued)
		assert.Equal(t, []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}, used)
		assert.Len(t, r.told(), requests, "attempts told")
	})
	t.Run("the rest of a cut body", func(t *testing.T) {
		g := &guarded{next: newStore(content(1 << 20))}
		s := newServer(t, func(string) http.Handler { return g })
		w := newNetwork(t, s.url)
		plain := base(t, w, false)
		source := tokens(t.Context(), s, &http.Client{Transport: plain})
		hc, _ := under(t, &oauth2.Transport{Source: source, Base: plain}, profile.API(), nil)
		require.NoError(t, w.set(cutAfter(down, 400_000)...))
		require.NoError(t, storeSession(hc, s.url).download(bounded(t)))
		_, used := g.counts()
		assert.GreaterOrEqual(t, len(used), 3)
		assert.NotContains(t, used, "")
	})
}

// If no token can be had, the error is oauth2's own, above aplomb and below it. A
// refused request for a token is sent again if it goes through aplomb.
func TestOAuth2TokenErrors(t *testing.T) {
	s := newServer(t, func(string) http.Handler { return &guarded{next: newStore(content(1 << 20))} })
	w := newNetwork(t, s.url)
	plain := &http.Client{Transport: base(t, w, false)}
	hc, r := under(t, base(t, w, false), profile.API(), nil)
	above := func(tokenClient *http.Client) error {
		c := &http.Client{Transport: &oauth2.Transport{Source: tokens(t.Context(), s, tokenClient), Base: hc.Transport}}
		return storeSession(c, s.url).download(bounded(t))
	}

	s.answer(busyUntil(3))
	err := above(plain)
	assert.True(t, asError[*oauth2.RetrieveError](err), "%v", err)
	assert.Equal(t, 1, s.seen(), "requests that arrived")
	s.answer(busyUntil(3))
	require.NoError(t, above(hc))
	assert.Equal(t, 4, s.seen(), "requests that arrived")
	assert.Len(t, r.told(), 2, "attempts told")

	s.answer(busyUntil(1000))
	err = above(hc)
	assert.True(t, asError[*oauth2.RetrieveError](err), "%v", err)
	assert.Equal(t, 6, s.seen(), "requests that arrived")

	s.answer(busyUntil(1000))
	below, r := under(t, &oauth2.Transport{Source: tokens(t.Context(), s, plain), Base: plain.Transport}, profile.API(), nil)
	err = storeSession(below, s.url).download(bounded(t))
	assert.True(t, asError[*oauth2.RetrieveError](err), "%v", err)
	assert.Equal(t, 1, s.seen(), "requests that arrived")
	assert.Empty(t, r.told(), "an unknown error is final")
}
