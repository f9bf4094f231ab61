package profile_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/policy/profile"
)

// A slow is the body of a response whose pieces come one after the other.
type slow struct {
	pieces []string
	gap    time.Duration
	end    error // after the pieces; nil: io.EOF
}

func (s slow) open() io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		for _, p := range s.pieces {
			time.Sleep(s.gap)
			_, _ = io.WriteString(w, p)
		}
		_ = w.CloseWithError(s.end)
	}()
	return r
}

// insides plays a 200 with a body, and then a 200 with another body.
func insides(t *testing.T, contentType string, first slow, then string) (base roundTripper, sent *int) {
	sent = new(int)
	return func(req *http.Request) (*http.Response, error) {
		if req.Body != nil {
			_, _ = io.Copy(io.Discard, req.Body)
			_ = req.Body.Close()
		}
		*sent++
		resp := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {contentType}}, ContentLength: -1, Request: req}
		if resp.Body = io.NopCloser(strings.NewReader(then)); *sent == 1 {
			resp.Body = first.open()
		}
		return resp, nil
	}, sent
}

const (
	xmlHead = `<?xml version="1.0" encoding="UTF-8"?>` + "\n"
	done    = "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"
)

func s3Failure(code string) string {
	return "<Error><Code>" + code + "</Code><Message>Try again.</Message></Error>"
}

// S3 sends white space for minutes before it says that it has failed.
func TestErrorsInsideS3(t *testing.T) {
	const (
		complete  = "POST /bucket/key?uploadId=abc"
		copyIt    = "PUT /bucket/key\nX-Amz-Copy-Source: /bucket/other"
		copyPart  = "PUT /bucket/key?partNumber=1&uploadId=abc\nX-Amz-Copy-Source: /bucket/other"
		condition = complete + "\nIf-None-Match: *"
	)
	for name, tt := range map[string]struct {
		request string
		result  string
		end     error
		want    int // attempts
	}{
		"complete/InternalError":              {complete, s3Failure("InternalError"), nil, 2},
		"complete/SlowDown":                   {complete, s3Failure("SlowDown"), nil, 2},
		"complete/ServiceUnavailable":         {complete, s3Failure("ServiceUnavailable"), nil, 2},
		"complete/final":                      {complete, s3Failure("InvalidPart"), nil, 1},
		"complete/success":                    {complete, done, nil, 1},
		"complete/torn":                       {complete, "<Compl", io.ErrUnexpectedEOF, 1},
		"complete/no result":                  {complete, "", nil, 1},
		"complete/not XML":                    {complete, "ok", nil, 1},
		"complete/condition/InternalError":    {condition, s3Failure("InternalError"), nil, 1},
		"complete/condition/SlowDown":         {condition, s3Failure("SlowDown"), nil, 2},
		"copy/InternalError":                  {copyIt, s3Failure("InternalError"), nil, 2},
		"copy/AccessDenied":                   {copyIt, s3Failure("AccessDenied"), nil, 1},
		"copy/success":                        {copyIt, "<CopyObjectResult></CopyObjectResult>", nil, 1},
		"copy/torn":                           {copyIt, "<CopyObj", io.ErrUnexpectedEOF, 2},
		"copy/no result":                      {copyIt, "", nil, 2},
		"part/InternalError":                  {copyPart, s3Failure("InternalError"), nil, 2},
		"another POST/InternalError":          {"POST /bucket/key?uploads", s3Failure("InternalError"), nil, 1},
		"another parameter/InternalError":     {"POST /bucket/key?nouploadId=1", s3Failure("InternalError"), nil, 1},
		"another PUT/InternalError":           {"PUT /bucket/key", s3Failure("InternalError"), nil, 1},
		"a comment before it/InternalError":   {copyIt, "<!-- > --><!DOCTYPE x>" + s3Failure("InternalError"), nil, 2},
		"an element with attributes/SlowDown": {copyIt, strings.Replace(s3Failure("SlowDown"), "<Error>", `<Error xmlns="x">`, 1), nil, 2},
	} {
		inBubble(t, name, func(t *testing.T) {
			pieces := []string{xmlHead}
			for range 40 {
				pieces = append(pieces, " ")
			}
			for _, c := range tt.result {
				pieces = append(pieces, string(c))
			}
			base, sent := insides(t, "application/xml", slow{pieces, 7 * time.Second, tt.end}, done)
			body, err := fetch(t, newTransport(t, base, profile.AWS()), tt.request)
			assert.Equal(t, tt.want, *sent, "attempts")
			if tt.want == 2 {
				require.NoError(t, err)
				assert.Equal(t, done, body)
				return
			}
			assert.Equal(t, strings.Join(pieces, ""), body, "the caller gets the whole")
			assert.Equal(t, tt.end, err)
		})
	}
}

// The look ends with the caller's context, and a body that stands still is cut.
func TestLookIntoS3Ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, sent := insides(t, "application/xml", slow{[]string{xmlHead, done}, time.Hour, nil}, done)
		rule := profile.AWS()
		rule.StallTimeout = time.Minute
		tr := newTransport(t, base, rule)
		start := time.Now()
		status, _, err := send(t, tr, "PUT /bucket/key\nX-Amz-Copy-Source: /bucket/other")
		require.NoError(t, err)
		assert.Equal(t, 200, status)
		assert.Equal(t, 2, *sent, "requests sent")
		assert.Equal(t, time.Minute, time.Since(start))
		time.Sleep(3 * time.Hour)
	})
}

// The first event of a stream decides, however late it comes.
func TestErrorsInFirstEvents(t *testing.T) {
	event := func(kind, data string) string {
		if kind != "" {
			kind = "event: " + kind + "\n"
		}
		return kind + "data: " + data + "\n\n"
	}
	anthropic := func(kind string) string {
		return event("error", `{"type":"error","error":{"type":"`+kind+`","message":"Sorry"}}`)
	}
	start := event("message_start", `{"type":"message_start","message":{"id":"msg_1"}}`)
	block := func(content string) string {
		return event("content_block_start", `{"type":"content_block_start","index":0,"content_block":`+content+`}`)
	}
	created := event("response.created", `{"type":"response.created","response":{"error":null}}`) + event("", `{"type":"response.in_progress"}`)
	item := func(kind string) string {
		return event("", `{"type":"response.output_item.added","item":{"type":"`+kind+`"}}`)
	}
	delta := func(d string) string {
		return event("", `{"object":"chat.completion.chunk","choices":[{"index":0,"delta":`+d+`,"finish_reason":null}]}`)
	}
	failed := event("error", `{"type":"error","code":"rate_limit_exceeded","error":{"code":"rate_limit_exceeded"}}`)
	for name, tt := range map[string]struct {
		rule      func() policy.Rule
		text      string
		get, post int
	}{
		"anthropic/overloaded":          {profile.Anthropic, anthropic("overloaded_error"), 2, 2},
		"anthropic/rate limit":          {profile.Anthropic, anthropic("rate_limit_error"), 2, 2},
		"anthropic/spend limit":         {profile.Anthropic, event("error", `{"type":"error","error":{"type":"rate_limit_error","details":{"error_code":"enforced_spend_limit_reached"}}}`), 1, 1},
		"anthropic/api error":           {profile.Anthropic, anthropic("api_error"), 2, 1},
		"anthropic/timeout":             {profile.Anthropic, anthropic("timeout_error"), 2, 1},
		"anthropic/bad request":         {profile.Anthropic, anthropic("invalid_request_error"), 1, 1},
		"anthropic/unknown":             {profile.Anthropic, anthropic("some_error"), 1, 1},
		"anthropic/after a ping":        {profile.Anthropic, event("ping", `{"type":"ping"}`) + anthropic("overloaded_error"), 2, 2},
		"anthropic/after the start":     {profile.Anthropic, start + anthropic("overloaded_error"), 2, 2},
		"anthropic/after an empty text": {profile.Anthropic, start + block(`{"type":"text","text":""}`) + event("ping", `{"type":"ping"}`) + anthropic("overloaded_error"), 2, 2},
		"anthropic/after text":          {profile.Anthropic, start + block(`{"type":"text","text":""}`) + event("content_block_delta", `{"type":"content_block_delta","delta":{"type":"text_delta","text":"Hi"}}`) + anthropic("overloaded_error"), 1, 1},
		"anthropic/after a thought":     {profile.Anthropic, start + block(`{"type":"thinking","thinking":"Hm"}`) + anthropic("overloaded_error"), 1, 1},
		"anthropic/after a call":        {profile.Anthropic, start + block(`{"type":"tool_use","id":"1","name":"f","input":{}}`) + anthropic("overloaded_error"), 1, 1},
		"anthropic/success":             {profile.Anthropic, start, 1, 1},
		"openai/chat, server error":     {profile.OpenAI, event("", `{"error":{"message":"The server had an error","type":"server_error","code":null}}`), 2, 1},
		"openai/chat, overloaded":       {profile.OpenAI, event("", `{"error":{"message":"That model is currently overloaded","type":"server_error"}}`), 2, 2},
		"openai/responses, rate limit":  {profile.OpenAI, event("error", `{"type":"error","code":"rate_limit_exceeded","message":"Rate limit reached","param":null}`), 2, 2},
		"openai/responses, nested":      {profile.OpenAI, event("error", `{"type":"error","error":{"type":"too_many_requests","code":"too_many_requests"}}`), 2, 2},
		"openai/responses, quota":       {profile.OpenAI, event("error", `{"type":"error","error":{"type":"insufficient_quota","code":"insufficient_quota"}}`), 1, 1},
		"openai/responses, failed":      {profile.OpenAI, event("response.failed", `{"type":"response.failed","response":{"error":{"code":"server_error"}}}`), 2, 1},
		"openai/a status":               {profile.OpenAI, event("", `{"error":{"code":429,"message":"Rate limited"}}`), 2, 2},
		"openai/bad request":            {profile.OpenAI, event("", `{"error":{"code":"invalid_prompt","type":"invalid_request_error"}}`), 1, 1},
		"openai/success":                {profile.OpenAI, event("", `{"id":"chatcmpl-1","choices":[]}`), 1, 1},
		"openai/responses, success":     {profile.OpenAI, event("response.created", `{"type":"response.created","response":{"error":null}}`), 1, 1},
		"openai/after the frames":       {profile.OpenAI, created + item("message") + event("", `{"type":"response.content_part.added","part":{"type":"output_text","text":""}}`) + failed, 2, 2},
		"openai/after reasoning began":  {profile.OpenAI, created + item("reasoning") + failed, 2, 2},
		"openai/after reasoning":        {profile.OpenAI, created + item("reasoning") + event("", `{"type":"response.reasoning_summary_text.delta","delta":"Hm"}`) + failed, 1, 1},
		"openai/after a call":           {profile.OpenAI, created + item("function_call") + failed, 1, 1},
		"openai/after text":             {profile.OpenAI, created + event("", `{"type":"response.output_text.delta","delta":"Hi"}`) + failed, 1, 1},
		"openai/chat, after the role":   {profile.OpenAI, delta(`{"role":"assistant","content":"","refusal":null}`) + failed, 2, 2},
		"openai/chat, after text":       {profile.OpenAI, delta(`{"role":"assistant","content":"Hi"}`) + failed, 1, 1},
		"openai/chat, after reasoning":  {profile.OpenAI, delta(`{"role":"assistant","content":null,"reasoning_content":"Hm"}`) + failed, 1, 1},
		"openai/chat, after a call":     {profile.OpenAI, delta(`{"tool_calls":[{"index":0,"id":"1"}]}`) + failed, 1, 1},
		"openai/not JSON":               {profile.OpenAI, event("", `[DONE]`), 1, 1},
		"openai/nothing but a comment":  {profile.OpenAI, ": OPENROUTER PROCESSING\n\n", 1, 1},
		"openai/an error without parts": {profile.OpenAI, event("error", `{"type":"error"}`), 1, 1},
	} {
		for method, want := range map[string]int{http.MethodGet: tt.get, http.MethodPost: tt.post} {
			inBubble(t, name+"/"+method, func(t *testing.T) {
				pieces := []string{": thinking\n\n", ": thinking\n\n", tt.text}
				base, sent := insides(t, "text/event-stream", slow{pieces, 2 * time.Minute, nil}, start)
				body := testkit.Must(fetch(t, newTransport(t, base, tt.rule()), method+" /v1/messages"))(t)
				assert.Equal(t, want, *sent, "attempts")
				if want == 1 {
					assert.Equal(t, strings.Join(pieces, ""), body)
				} else {
					assert.Equal(t, start, body)
				}
			})
		}
	}
}

// A stream that is cut before its first event is a lost response.
func TestStreamLostBeforeItsFirstEvent(t *testing.T) {
	for method, want := range map[string]int{http.MethodGet: 2, http.MethodPost: 1} {
		synctest.Test(t, func(t *testing.T) {
			first := slow{[]string{": thinking\n\n"}, time.Minute, io.ErrUnexpectedEOF}
			base, sent := insides(t, "text/event-stream", first, "data: {}\n\n")
			_, err := fetch(t, newTransport(t, base, profile.Anthropic()), method+" /v1/messages")
			assert.Equal(t, want == 1, err == io.ErrUnexpectedEOF)
			assert.Equal(t, want, *sent)
		})
	}
}

// The stream goes on after its first event, and the caller has that at once.
func TestStreamIsReturnedWithItsFirstEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, _ := insides(t, "text/event-stream", slow{[]string{"data: {}\n\n", "data: {}\n\n"}, time.Minute, nil}, "")
		start := time.Now()
		resp := testkit.Must(newTransport(t, base, profile.OpenAI()).RoundTrip(request(t, "POST /v1/responses")))(t)
		assert.Equal(t, time.Minute, time.Since(start))
		buf := make([]byte, 100)
		n := testkit.Must(resp.Body.Read(buf))(t)
		assert.Equal(t, "data: {}\n\n", string(buf[:n]))
		assert.Equal(t, time.Minute, time.Since(start))
		testkit.Must(io.ReadAll(resp.Body))(t)
		assert.Equal(t, 2*time.Minute, time.Since(start))
		require.NoError(t, resp.Body.Close())
	})
}

// After its first event a stream is held for at most 5 s and 64 KiB. Then the caller gets all of
// it, and an error that comes later is the caller's.
func TestStreamIsHeldForContent(t *testing.T) {
	const start, failed = `data: {"type":"response.created"}` + "\n\n", `data: {"type":"error","code":"rate_limit_exceeded"}` + "\n\n"
	for name, tt := range map[string]struct {
		pieces   []string
		pause    time.Duration
		returned time.Duration
		attempts int
	}{
		"an error in time":  {[]string{start, failed}, 4 * time.Second, 8 * time.Second, 2},
		"an error too late": {[]string{start, failed}, 6 * time.Second, 11 * time.Second, 1},
		"frames for ever":   {[]string{start, start, start, start, failed}, 2 * time.Second, 7 * time.Second, 1},
		"large frames":      {[]string{strings.Repeat(start, 64<<10/len(start)), start + failed}, time.Second, 2 * time.Second, 1},
		"the end":           {[]string{start}, time.Minute, time.Minute, 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			base, sent := insides(t, "text/event-stream", slow{tt.pieces, tt.pause, nil}, "data: {}\n\n")
			rule := profile.OpenAI()
			rule.Backoff = backoff.Constant(0)
			began := time.Now()
			resp := testkit.Must(newTransport(t, base, rule).RoundTrip(request(t, "POST /v1/responses")))(t)
			assert.Equal(t, tt.returned, time.Since(began))
			assert.Equal(t, tt.attempts, *sent)
			body := testkit.Must(io.ReadAll(resp.Body))(t)
			require.NoError(t, resp.Body.Close())
			if tt.attempts == 1 {
				assert.Equal(t, strings.Join(tt.pieces, ""), string(body))
			}
		})
	}
}

// No profile reads the body of any other success.
func TestSuccessesAreNotRead(t *testing.T) {
	for name, rule := range ofProviders() {
		for _, line := range []string{"GET /", "POST /graphql", "POST /api/chat.postMessage", "PUT /bucket/key", "POST /bucket/key?uploads"} {
			body := new(unread)
			tr := newTransport(t, roundTripper(func(req *http.Request) (*http.Response, error) {
				h := http.Header{"Content-Type": {"application/json"}, "X-Ratelimit-Remaining": {"0"}}
				return &http.Response{StatusCode: 200, Header: h, ContentLength: -1, Body: body, Request: req}, nil
			}), rule)
			testkit.Must(tr.RoundTrip(request(t, line)))(t)
			assert.Zero(t, body.reads.Load(), "%s: %s", name, line)
		}
	}
}

// An unread is a body that counts its Reads.
type unread struct{ reads atomic.Int32 }

func (u *unread) Read([]byte) (int, error) { u.reads.Add(1); return 0, io.EOF }
func (u *unread) Close() error             { return nil }
