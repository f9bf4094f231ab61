package fleet

import (
	"math"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/ledger"
	"github.com/aplomb-go/aplomb/transport"
)

// An ask is a question of the Transport. It is for tokens if they have a host, else for a
// probe.
type ask struct {
	host   string
	tokens transport.FleetTokens
	local  bool // the part is not shared, so that this process decides alone
	at     time.Time
}

// askLoop answers questions, until Close. It has a connection of its own, so that no
// question waits behind news.
func (f *Fleet) askLoop() {
	own := map[string]*ledger.Tokens{} // the rates that are not shared
	start := time.Now()
	for {
		var asks []ask
		select {
		case a := <-f.asks:
			asks = append(asks, a)
		case <-f.done:
			return
		}
		most := f.link.batch()
	more:
		for len(asks) < most {
			select {
			case a := <-f.asks:
				asks = append(asks, a)
			default:
				break more
			}
		}
		var shared []ask
		for _, a := range asks {
			switch {
			case a.tokens.Host != "" && !valid(a.tokens):
			case a.local && a.tokens.Host == "":
				f.peer().Probe(a.host, true, 0)
			case a.local:
				f.peer().Tokens(ownTokens(own, a.tokens, time.Since(start)))
			case f.link.lost("") || time.Since(a.at) > askLife:
				f.dropped.Add(1)
				f.buckets.unanswered(a.tokens.Host, a.at, time.Now())
			default:
				shared = append(shared, a)
			}
		}
		if len(shared) > 0 {
			f.askAll(shared)
		}
	}
}

// askAll sends questions and hands over the answers.
func (f *Fleet) askAll(asks []ask) {
	commands := make([]command, 0, len(asks))
	sent, away := time.Now(), f.link.away()
	for _, a := range asks {
		if t := a.tokens; t.Host != "" {
			every := float64(everyOf(t)) / float64(time.Microsecond)
			commands = append(commands, command{tokensScript, t.Host, []string{f.keyOf(t.Host, "rate")}, []any{every, t.Burst, t.Want, f.buckets.known(t.Host, sent, away)}})
		} else {
			commands = append(commands, command{probeScript, a.host, []string{f.keyOf(a.host, "gate")}, []any{a.host, f.members()}})
		}
	}
	replies := f.run(f.ctx, commands)
	for i, a := range asks {
		if a.tokens.Host != "" {
			f.grant(a, sent, away, replies[i])
		} else {
			f.permit(a.host, replies[i])
		}
	}
}

// permit hands over the answer to a question for a probe.
func (f *Fleet) permit(host string, r *redis.Cmd) {
	v, err := r.Slice()
	if err != nil || len(v) != 2 {
		// Redis may have granted the probe and failed then.
		f.ProbeFailed(host)
		return
	}
	granted, _ := v[0].(int64)
	if wait, ok := micros(v[1]); ok {
		f.peer().Probe(host, granted == 1, wait)
	}
}

// grant hands over the answer to a question for tokens that was sent at a time.
func (f *Fleet) grant(a ask, sent time.Time, away time.Duration, r *redis.Cmd) {
	t := a.tokens
	v, err := r.Slice()
	if err != nil || len(v) != 3 {
		f.buckets.unanswered(t.Host, a.at, time.Now())
		return
	}
	n, _ := v[0].(int64)
	first, ok1 := micros(v[1])
	again, ok2 := micros(v[2])
	if ok1 && ok2 && n >= 0 && n <= int64(t.Want) {
		next := first + time.Duration(n)*everyOf(t)
		if n == 0 {
			next = again + max(ledger.FirstAhead, everyOf(t))/2
		}
		f.buckets.answered(t.Host, sent.Add(next), away)
		f.peer().Tokens(transport.FleetGrant{Host: t.Host, N: int(n), First: first, Every: everyOf(t), Again: again})
	}
}

func valid(t transport.FleetTokens) bool {
	return t.PerSecond > 0 && !math.IsInf(t.PerSecond, 0) && t.Burst > 0 && t.Want > 0
}

// everyOf is the time between two tokens.
func everyOf(t transport.FleetTokens) time.Duration {
	return max(1, time.Duration(min(float64(time.Second)/t.PerSecond, float64(maxWait))))
}

// ownTokens answers a question for tokens of a rate that is not shared.
func ownTokens(own map[string]*ledger.Tokens, t transport.FleetTokens, now time.Duration) transport.FleetGrant {
	if own[t.Host] == nil {
		if len(own) >= maxItems {
			clear(own)
		}
		own[t.Host] = new(ledger.Tokens)
	}
	n, first, every, again := own[t.Host].Take(instant.At(now), t.PerSecond, t.Burst, t.Want)
	return transport.FleetGrant{Host: t.Host, N: n, First: first.Since() - now, Every: every, Again: again}
}
