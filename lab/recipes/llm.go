package recipes

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

func llm(log *slog.Logger) transport.Config {
	rule := policy.Rule{
		StallTimeout:      5 * time.Minute, // no headers, or no more of the body
		FirstEventTimeout: 2 * time.Minute, // a stream has begun and says nothing
		// A second answer costs its tokens, and does no other harm.
		Idempotent: func(*http.Request) bool { return true },
		// The last fifth of a quota is spread over its window.
		QuotaPacing: policy.On,
		Cost:        func(req *http.Request) int { return int(req.ContentLength/4) + 1000 }, // tokens of question and answer
	}.Or(profile.OpenAI()) // or profile.Anthropic()
	return transport.Config{Logger: log, Hosts: map[string]policy.Rule{"llm.example.com": rule}}
}
