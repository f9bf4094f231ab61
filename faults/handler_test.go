package faults_test

import (
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
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "%s %s %s %s", r.Method, r.Host, r.RequestURI, body)
	})
	resp := testkit.Must(rt.RoundTrip(request(t, t.Context(), http.MethodPost, strings.NewReader("upload"))))(t)
	text := testkit.Must(io.ReadAll(resp.Body))(t)
	assert.Equal(t, "POST h.test /path?key=secret upload", string(text))
	assert.Equal(t, http.StatusCreated, resp.StatusCode)
	assert.EqualValues(t, -1, resp.ContentLength)
	assert.NoError(t, resp.Body.Close())
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

// A handler that writes less than it promised looks like a cut connection.
func TestHandlerThatWritesTooLittle(t *testing.T) {
	resp, err := send(t, over(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "part")
	}), http.MethodGet)
	require.NoError(t, err)
	assert.EqualValues(t, 10, resp.ContentLength)
	_, err = io.ReadAll(resp.Body)
	assert.Equal(t, io.ErrUnexpectedEOF, err)
}
