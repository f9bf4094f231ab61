package exchange_test

import (
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/exchange/exchangetest"
	"github.com/aplomb-go/aplomb/policy"
)

// How long an outcome asks to wait. The rule is only asked about a 429, a 503, and what is retried.
func TestRetryAfter(t *testing.T) {
	const again, refused, final = classify.Ambiguous, classify.Refused, classify.Final
	tired := &exchange.ProxyAnswer{Resp: exchangetest.Answer(503, "Retry-After: 4")}
	assert.Equal(t, http.StatusText(http.StatusServiceUnavailable), tired.Error())
	for name, row := range map[string]struct {
		o     attempt.Outcome
		after string
		want  time.Duration
		asked bool
	}{
		"success":                     {attempt.Outcome{Resp: exchangetest.Answer(200), Class: final}, "4", 0, false},
		"400":                         {attempt.Outcome{Resp: exchangetest.Answer(400), Class: again}, "4", 4 * time.Second, true},
		"503 at once":                 {attempt.Outcome{Resp: exchangetest.Answer(503), Class: again}, "0", 0, true},
		"429":                         {attempt.Outcome{Resp: exchangetest.Answer(429), Class: again}, "4", 4 * time.Second, true},
		"final 429":                   {attempt.Outcome{Resp: exchangetest.Answer(429), Class: final}, "4", 4 * time.Second, true},
		"503":                         {attempt.Outcome{Resp: exchangetest.Answer(503), Class: refused}, "4", 4 * time.Second, true},
		"503 and a body that broke":   {attempt.Outcome{Resp: exchangetest.Answer(503), Class: again, BodyBroke: true}, "4", 4 * time.Second, true},
		"503 without a wait":          {attempt.Outcome{Resp: exchangetest.Answer(503), Class: again}, "", 0, true},
		"500":                         {attempt.Outcome{Resp: exchangetest.Answer(500), Class: again}, "4", 4 * time.Second, true},
		"final 500":                   {attempt.Outcome{Resp: exchangetest.Answer(500), Class: final}, "4", 0, false},
		"500 and a body that broke":   {attempt.Outcome{Resp: exchangetest.Answer(500), Class: again, BodyBroke: true}, "4", 0, false},
		"403":                         {attempt.Outcome{Resp: exchangetest.Answer(403), Class: again}, "4", 4 * time.Second, true},
		"final 403":                   {attempt.Outcome{Resp: exchangetest.Answer(403), Class: final}, "4", 0, false},
		"409":                         {attempt.Outcome{Resp: exchangetest.Answer(409), Class: again}, "4", 4 * time.Second, true},
		"425":                         {attempt.Outcome{Resp: exchangetest.Answer(425), Class: refused}, "4", 4 * time.Second, true},
		"an error":                    {attempt.Outcome{Class: again, Err: syscall.ECONNRESET}, "", 0, true},
		"a proxy that is tired":       {attempt.Outcome{Class: refused, Err: tired}, "", 4 * time.Second, true},
		"a proxy, and nobody retries": {attempt.Outcome{Class: final, Err: tired}, "", 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked := false
			s := exchangetest.New(t, policy.Rule{RetryAfter: func(o classify.Outcome) (time.Duration, bool) {
				asked = true
				assert.NotNil(t, o.Request, name)
				assert.True(t, (o.Response == nil) != (o.Err == nil), name)
				return classify.RetryAfter(o)
			}})
			if row.after != "" {
				row.o.Resp.Header.Set("Retry-After", row.after)
			}
			row.o.Kind = attempt.First
			told, _ := s.Done(s.Request(t, 0), nil, &row.o)
			assert.Equal(t, []any{row.want, row.asked}, []any{told, asked}, name)
		})
	}
	for told, want := range map[time.Duration]time.Duration{-time.Second: 0, time.Second: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := exchangetest.New(t, policy.Rule{RetryAfter: func(classify.Outcome) (time.Duration, bool) { return told, true }})
			assert.Equal(t, want, s.Ends(t, nil, 503, again), told)
		})
	}
	for code, want := range map[int]bool{0: false, 200: false, 428: false, 429: true, 500: false, 503: true} {
		assert.Equal(t, want, exchange.TellsToWait(code), code)
	}
}
