package fleet

import (
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/ledger"
)

// An ask is a question of the Transport for tokens.
type ask struct {
	fleetmsg.Message
	at time.Time
}

// rateOf returns the name of the key of the rate that a message is about.
func rateOf(m fleetmsg.Message) string {
	if m.Unit == "" {
		return "rate"
	}
	return "rate:" + url.QueryEscape(m.Unit)
}

// bucket returns the name of the same rate in buckets.
func (a *ask) bucket() string {
	if a.Unit == "" {
		return a.Host
	}
	return a.Host + " " + a.Unit
}

// askLoop answers questions, until Close. It has a connection of its own, so that no
// question waits behind news.
func (f *Fleet) askLoop() {
	for {
		var asks []ask
		select {
		case a := <-f.desk.asks:
			asks = append(asks, a)
		case <-f.life.done:
			return
		}
		most := f.store.link.batch()
		for len(asks) < most && len(f.desk.asks) > 0 { // nobody else receives
			asks = append(asks, <-f.desk.asks)
		}
		var shared []ask
		for _, a := range asks {
			if f.store.link.lost("") || time.Since(a.at) > askLife {
				f.store.dropped.Add(1)
			} else {
				shared = append(shared, a)
			}
		}
		f.sendQuestions(shared)
	}
}

// sendQuestions sends questions and hands over the answers.
func (f *Fleet) sendQuestions(asks []ask) {
	commands := make([]command, 0, len(asks))
	sent, away := time.Now(), f.store.link.away()
	clock := f.roster.now()
	if f.store.link.cluster {
		clock.base = time.Time{} // each node has a clock of its own
	}
	for _, a := range asks {
		missed := f.desk.buckets.missed(a.bucket(), a.Wait, away)
		commands = append(commands, command{tokensScript, a.Host, []string{f.store.keyOf(a.Host, rateOf(a.Message))},
			append(bucketArgs(a.Message), missed.Microseconds(), int64(a.Spent), f.desk.buckets.due(a.bucket(), sent), clock.deadline(a.at.Add(askLife)))})
	}
	replies := f.store.run(f.store.ctx, commands)
	for i, a := range asks {
		f.hearTokens(a, sent, away, replies[i])
	}
}

// hearTokens hands over the answer to a question for tokens that was sent at a time.
func (f *Fleet) hearTokens(a ask, sent time.Time, away time.Duration, r *redis.Cmd) {
	v, err := r.Slice()
	if err != nil || len(v) != 3 {
		return
	}
	n, _ := v[0].(int64)
	first, ok1 := micros(v[1])
	again, ok2 := micros(v[2])
	if ok1 && ok2 && n >= 0 && n <= int64(a.Amount) {
		every := everyOf(a.Message)
		next := first + time.Duration(n)*every
		if n == 0 {
			next = again + max(ledger.FirstAhead, every)/2
		}
		f.desk.buckets.answered(a.bucket(), sent.Add(next), away)
		f.hear(fleetmsg.Message{Kind: fleetmsg.Tokens, Host: a.Host, Unit: a.Unit, Amount: float64(n), First: first, Every: every, Wait: again})
	}
}

// bucketArgs returns the arguments of each script of a rate.
func bucketArgs(m fleetmsg.Message) []any {
	return []any{float64(everyOf(m)) / float64(time.Microsecond), int64(m.Burst), int64(m.Amount)}
}

// everyOf is the time between two tokens.
func everyOf(m fleetmsg.Message) time.Duration {
	return max(1, time.Duration(min(float64(time.Second)/m.PerSecond, float64(ledger.MaxWait))))
}
