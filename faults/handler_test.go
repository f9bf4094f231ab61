package faults_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/testkit"
)

func over(h http.HandlerFunc) http.RoundTripper { return faults.Handler(h) }

func TestHandlerSeesTheRequest(t *testing.T) {
	rt := over(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Length", "nonsense")
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "%s %s %s %s %s %s %v", r.Method, r.Host, r.RequestURI, r.Proto, r.RemoteAddr, body, r.GetBody == nil)
	})
	post := request(t, t.Context(), http.MethodPost, strings.NewReader("upload"))
	for want, req := range map[string]*http.Request{
		"POST h.test /path?key=secret HTTP/1.1 192.0.2.1:1234 upload true": post,
		"GET h.test /path?key=secret HTTP/1.1 192.0.2.1:1234  true":        {URL: post.URL},
	} {
		resp := testkit.Must(rt.RoundTrip(req))(t)
		text := testkit.Must(io.ReadAll(resp.Body))(t)
		assert.Equal(t, want, string(text))
		assert.Equal(t, http.StatusCreated, resp.StatusCode)
		assert.EqualValues(t, -1, resp.ContentLength)
		assert.NotContains(t, resp.Header, "Content-Length")
		assert.NoError(t, resp.Body.Close())
	}
}

// A caller who has left reaches no handler, and a handler that looks at no context holds nobody up.
func TestHandlerWithoutACaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("the caller left")
		ctx, cancel := context.WithCancelCause(t.Context())
		calls, release := 0, make(chan struct{})
		rt := over(func(w http.ResponseWriter, _ *http.Request) {
			calls++
			assert.NoError(t, http.NewResponseController(w).Flush())
			<-release
		})
		resp := testkit.Must(rt.RoundTrip(request(t, ctx, http.MethodGet, nil)))(t)
		time.AfterFunc(time.Second, func() { cancel(why) })
		_, err := io.ReadAll(resp.Body)
		assert.Equal(t, why, err)
		body := &upload{Reader: strings.NewReader("upload")}
		_, err = rt.RoundTrip(request(t, ctx, http.MethodPost, body))
		assert.Equal(t, why, err)
		assert.EqualValues(t, 1, body.closes.Load(), "times closed")
		assert.Equal(t, 1, calls)
		close(release)
	})
}

// The response begins before the handler ends, and Close ends the handler.
func TestHandlerStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		rt := over(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "first")
			<-r.Context().Done()
			ended = true
		})
		resp := testkit.Must(send(t, rt, http.MethodGet))(t)
		p := make([]byte, 5)
		testkit.Must(io.ReadFull(resp.Body, p))(t)
		time.Sleep(time.Minute)
		require.NoError(t, resp.Body.Close())
		synctest.Wait()
		assert.True(t, ended)
	})
}

func TestHandlerThatPanics(t *testing.T) {
	_, err := send(t, over(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), http.MethodGet)
	assert.Equal(t, io.ErrUnexpectedEOF, err)
	_, err = send(t, over(func(http.ResponseWriter, *http.Request) { panic("own text") }), http.MethodGet)
	assert.ErrorContains(t, err, "own text")
	assert.Equal(t, classify.ErrorReset, classify.ErrorTypeOf(err))

	resp, err := send(t, over(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "part")
		panic(http.ErrAbortHandler)
	}), http.MethodGet)
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	assert.Equal(t, "part", string(text))
	assert.Equal(t, io.ErrUnexpectedEOF, err)
}

func TestHandlerWithoutABody(t *testing.T) {
	for _, tt := range []struct {
		method string
		code   int
	}{{http.MethodHead, 200}, {http.MethodGet, 204}, {http.MethodGet, 304}} {
		resp, err := send(t, over(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "4")
			w.WriteHeader(tt.code)
			_, _ = io.WriteString(w, "body")
		}), tt.method)
		require.NoError(t, err)
		assert.Equal(t, http.NoBody, resp.Body)
		assert.Equal(t, tt.code, resp.StatusCode)
	}
}

// A handler that writes less than it promised looks like a cut connection. One may write nothing at all.
func TestHandlerThatWritesTooLittle(t *testing.T) {
	for text, length := range map[string]string{"": "", "part": "4"} {
		resp := testkit.Must(send(t, over(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", length)
			_, _ = io.WriteString(w, text)
		}), http.MethodGet))(t)
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, text, string(testkit.Must(io.ReadAll(resp.Body))(t)))
	}
	resp, err := send(t, over(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "part")
	}), http.MethodGet)
	require.NoError(t, err)
	assert.EqualValues(t, 10, resp.ContentLength)
	_, err = io.ReadAll(resp.Body)
	assert.Equal(t, io.ErrUnexpectedEOF, err)
}
