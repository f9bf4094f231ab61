// Transport, which plays the steps.

package faults

import (
	"cmp"
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Transport is an http.RoundTripper that plays faults. It is safe for concurrent
// use, and keeps to the contract of http.RoundTripper. In particular it always
// closes the body of a request, and it ends each wait when the request's context
// ends. It has no goroutine that outlives a request, unless a Read of the request's
// body blocks although the body was closed.
type Transport struct {
	base http.RoundTripper
	plan Plan

	mu      sync.Mutex // guards records
	records []Record   // the latest, oldest first
}

// New returns a Transport over base, which sends the requests that pass. If base is
// nil, requests that pass get 200 with an empty body from the Transport itself, and
// nothing is sent. If plan is nil, all requests pass.
func New(base http.RoundTripper, plan Plan) *Transport {
	if plan == nil {
		plan = Script()
	}
	return &Transport{base: base, plan: plan}
}

// A Record is one request as the Transport saw it.
type Record struct {
	Time   time.Time // of its arrival
	Method string    // of the request
	URL    string    // without userinfo, query and fragment
	Step   Step      // what happened to the request
}

// maxRecords bounds the memory for records, because a Transport may run for long.
const maxRecords = 10_000

// Records returns the requests so far in the order of their arrival. Of more than
// 10,000 requests it returns the latest.
func (t *Transport) Records() []Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.records)
}

// RoundTrip plays the step that the plan chooses for the request.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	step := t.plan(req)
	t.record(req, step)
	if step.kind == pass && t.base != nil {
		return t.pass(req, step)
	}
	if err := step.receive(req); err != nil {
		return nil, err
	}
	switch step.kind {
	case failure:
		return nil, step.err
	case hang:
		<-req.Context().Done()
		return nil, context.Cause(req.Context())
	case pass:
		step.code = http.StatusOK
	}
	return step.response(req), nil
}

// record keeps the Record of a request.
func (t *Transport) record(req *http.Request, step Step) {
	r := Record{Time: time.Now(), Method: cmp.Or(req.Method, http.MethodGet), Step: step}
	if u := req.URL; u != nil {
		r.URL = u.Scheme + "://" + u.Host + u.EscapedPath()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.records) == maxRecords {
		t.records = slices.Delete(t.records, 0, maxRecords/10)
	}
	t.records = append(t.records, r)
}

// pass sends the request to the base. From then on the base owns the request's body.
func (t *Transport) pass(req *http.Request, step Step) (*http.Response, error) {
	if err := sleep(req.Context(), step.delay); err != nil {
		closeBody(req)
		return nil, err
	}
	resp, err := t.base.RoundTrip(req)
	if err != nil || resp == nil {
		return resp, err
	}
	if len(step.header) > 0 {
		if resp.Header = resp.Header.Clone(); resp.Header == nil {
			resp.Header = http.Header{}
		}
		maps.Copy(resp.Header, step.header.Clone())
	}
	step.spoil(req, resp)
	return resp, nil
}

// receive takes the request's body, as far as the step does so, and waits.
func (s Step) receive(req *http.Request) error {
	if s.kind == failure && !s.taken {
		closeBody(req)
	} else if err := takeBody(req); err != nil {
		return err
	}
	return sleep(req.Context(), s.delay)
}

// takeBody reads the body of a request to its end and closes it. If the request's
// context ends, takeBody closes the body, which makes most bodies end their Read.
// It does not wait for that, because other bodies never end it.
func takeBody(req *http.Request) error {
	ctx := req.Context()
	if req.Body == nil || req.Body == http.NoBody {
		return context.Cause(ctx)
	}
	once := sync.OnceFunc(func() { _ = req.Body.Close() })
	done := make(chan error, 1)
	go func() {
		// io.Copy only calls Read, as net/http does with most bodies.
		_, err := io.Copy(io.Discard, struct{ io.Reader }{req.Body})
		once()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		once()
		return context.Cause(ctx)
	}
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// sleep waits for d. It returns the cause if the context ends before.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// response makes the response of a step, as net/http would read it from a server.
func (s Step) response(req *http.Request) *http.Response {
	resp := &http.Response{
		StatusCode: s.code, Status: strings.TrimSpace(strconv.Itoa(s.code) + " " + http.StatusText(s.code)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: s.header.Clone(), Body: http.NoBody, ContentLength: int64(len(s.body)), Request: req,
	}
	if resp.Header == nil {
		resp.Header = http.Header{}
	}
	if resp.Header.Get("Date") == "" {
		resp.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	}
	if noBody := s.code < 200 || s.code == http.StatusNoContent || s.code == http.StatusNotModified; noBody {
		resp.ContentLength = 0
		return resp
	}
	if resp.Header.Get("Content-Length") == "" {
		resp.Header.Set("Content-Length", strconv.Itoa(len(s.body)))
	}
	if req.Method != http.MethodHead && s.body != "" {
		resp.Body = io.NopCloser(strings.NewReader(s.body))
	}
	s.spoil(req, resp)
	return resp
}
