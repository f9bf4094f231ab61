package exchange_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/exchange/exchangetest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/policy"
)

// A scriptedQueue is a queue that gives the answers of a test, the last of them for ever, and notes who asks.
type scriptedQueue struct {
	answers []queue.Answer
	rejects bool
	asked   []bool // whether there was a waiter
	at      []instant.Instant
	left    int
	waiter  *queue.Waiter // that it makes
}

func (q *scriptedQueue) Enter(now instant.Instant, w *queue.Waiter) queue.Answer {
	q.asked, q.at = append(q.asked, w != nil), append(q.at, now)
	a := q.answers[0]
	if len(q.answers) > 1 {
		q.answers = q.answers[1:]
	}
	return a
}

func (q *scriptedQueue) Leave(*queue.Waiter) { q.left++ }

func (q *scriptedQueue) NewWaiter() *queue.Waiter { return q.waiter }

func (q *scriptedQueue) Rejects(*queue.Answer) bool { return q.rejects }

// How a request waits, and which waits are refused. Times are seconds from the start.
func TestWait(t *testing.T) {
	const goes = -1
	in := func(n int) time.Duration { return time.Duration(n) * time.Second }
	type answer struct{ ask, until, open int } // from the start; 0: none
	for name, row := range map[string]struct {
		answers          []answer // goes: it goes
		rejects, down    bool
		deadline, latest int  // 0: none
		cancel, wake     int  // when that happens; 0: never
		waiter           bool // the queue sees it from the start

		why    exchange.Why
		until  int
		refuse bool
		waited bool
		took   int
		asked  []bool
	}{
		"it goes":                         {answers: []answer{{ask: goes}}, asked: []bool{false}},
		"it goes with a waiter":           {answers: []answer{{ask: goes}}, waiter: true, asked: []bool{true}},
		"it waits":                        {answers: []answer{{ask: 5}, {ask: 5}, {ask: goes}}, asked: []bool{false, true, true}, waited: true, took: 5},
		"it waits with a waiter":          {answers: []answer{{ask: 5}, {ask: goes}}, waiter: true, asked: []bool{true, true}, waited: true, took: 5},
		"it is woken":                     {answers: []answer{{ask: 5}, {ask: 5}, {ask: goes}}, wake: 2, asked: []bool{false, true, true}, waited: true, took: 2},
		"it is woken in vain":             {answers: []answer{{ask: 5}, {ask: 5}, {ask: 5}, {ask: goes}}, wake: 2, asked: []bool{false, true, true, true}, waited: true, took: 5},
		"it fails fast":                   {answers: []answer{{ask: 5, until: 7}}, rejects: true, refuse: true, why: exchange.WhyFull, until: 7, asked: []bool{false}},
		"it goes, though others fail":     {answers: []answer{{ask: goes}}, rejects: true, asked: []bool{false}},
		"its turn is after the deadline":  {answers: []answer{{ask: 5, until: 7}}, deadline: 7, refuse: true, why: exchange.WhyLate, until: 7, asked: []bool{false}},
		"its turn is before the deadline": {answers: []answer{{ask: 5, until: 7}, {ask: 5, until: 7}, {ask: goes}}, deadline: 8, waited: true, took: 5, asked: []bool{false, true, true}},
		"the host is down":                {answers: []answer{{ask: 5, until: 7}, {ask: 5, until: 7}, {ask: goes}}, down: true, deadline: 7, waited: true, took: 5, asked: []bool{false, true, true}},
		"a hold ends after its turn":      {answers: []answer{{ask: 5, until: 7, open: 9}}, deadline: 6, refuse: true, why: exchange.WhyLate, until: 9, asked: []bool{false}},
		"it is overdue":                   {answers: []answer{{ask: 5, until: 7}}, latest: 6, refuse: true, why: exchange.WhyOverdue, until: 7, asked: []bool{false}},
		"it is due just in time":          {answers: []answer{{ask: 5, until: 6}, {ask: 5, until: 6}, {ask: goes}}, latest: 6, waited: true, took: 5, asked: []bool{false, true, true}},
		"its turn never comes":            {answers: []answer{{ask: 50}}, latest: 6, refuse: true, why: exchange.WhyOverdue, waited: true, took: 6, until: 6, asked: []bool{false, true, true}},
		"the deadline comes":              {answers: []answer{{ask: 50}}, deadline: 3, refuse: true, why: exchange.WhyGone, waited: true, took: 3, asked: []bool{false, true}},
		"the caller leaves":               {answers: []answer{{ask: 50}}, cancel: 2, refuse: true, why: exchange.WhyGone, waited: true, took: 2, asked: []bool{false, true}},
	} {
		play(t, name, policy.Rule{}, func(t *testing.T, s *site) {
			r, start, began := s.Request(t, in(row.deadline)), time.Now(), s.Registry.Now()
			at := func(n int) (i instant.Instant) {
				if n > 0 {
					i = began.Add(in(n))
				}
				return i
			}
			q, latest := &scriptedQueue{rejects: row.rejects, waiter: queue.NewWaiter()}, at(row.latest)
			for _, a := range row.answers {
				next := queue.Answer{Verb: queue.Wait, Ask: at(a.ask), Until: at(a.until), Open: at(a.open), Down: row.down}
				if a.ask == goes {
					next = queue.Answer{Mark: 7}
				}
				q.answers = append(q.answers, next)
			}
			if row.cancel > 0 {
				ctx, cancel := context.WithCancel(r.Ctx)
				r.Ctx = ctx
				time.AfterFunc(in(row.cancel), cancel)
			}
			if row.wake > 0 {
				time.AfterFunc(in(row.wake), func() { q.waiter.Wake() })
			}
			var w *queue.Waiter
			if row.waiter {
				w = queue.NewWaiter()
			}
			a, waited, no := r.Wait(q, w, began, latest)
			assert.Equal(t, row.asked, q.asked, "the questions, and whether there was a waiter")
			assert.Equal(t, row.waited, waited)
			assert.Equal(t, in(row.took), time.Since(start).Round(time.Millisecond))
			assert.Equal(t, began, q.at[0], "the time of the first question")
			assert.WithinDuration(t, s.Registry.TimeOf(s.Registry.Now()), s.Registry.TimeOf(q.at[len(q.at)-1]), in(row.took), "the time of the last")
			if waited || row.waiter {
				assert.Equal(t, 1, q.left, "it leaves")
			} else {
				assert.Zero(t, q.left)
			}
			if !row.refuse {
				assert.Nil(t, no)
				assert.EqualValues(t, 7, a.Mark, "the answer that lets it go")
				return
			}
			require.NotNil(t, no)
			assert.Equal(t, []any{row.why, row.why == exchange.WhyGone, ""}, []any{no.Why, no.Err != nil, no.Limit})
			if row.until == 0 {
				assert.True(t, no.Until.IsZero())
			} else {
				assert.WithinDuration(t, start.Add(in(row.until)), no.Until, time.Millisecond)
			}
		})
	}
}

// A request whose context panics leaves the queue, because it would stop those behind it.
func TestWaitOfAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := exchangetest.New(t, policy.Rule{}).Request(t, 0)
		q := &scriptedQueue{answers: []queue.Answer{{Verb: queue.Wait, Ask: instant.Never}}}
		r.Ctx = panics{r.Ctx}
		assert.Panics(t, func() { _, _, _ = r.Wait(q, queue.NewWaiter(), 1, 0) })
		assert.Equal(t, 1, q.left)
	})
}

// panics is a context of a user's that panics.
type panics struct{ context.Context }

func (panics) Done() <-chan struct{} { panic("context") }

// A request has to go at its deadline or at the latest time of its rule, whichever comes first.
func TestSendAtLatest(t *testing.T) {
	play(t, "", policy.Rule{}, func(t *testing.T, s *site) {
		now := s.Registry.Now()
		for _, row := range []struct {
			deadline     time.Duration
			latest, want instant.Instant
		}{
			{0, 0, 0}, {0, 7, 7}, {time.Second, 0, now.Add(time.Second)},
			{time.Second, now.Add(time.Minute), now.Add(time.Second)}, {time.Minute, now.Add(time.Second), now.Add(time.Second)},
		} {
			assert.Equal(t, row.want, s.Request(t, row.deadline).SendAtLatest(row.latest), row)
		}
	})
}

// A turn that comes too late, and one that does not. A turn in the past is now.
func TestTooLate(t *testing.T) {
	play(t, "", policy.Rule{}, func(t *testing.T, s *site) {
		now := time.Now()
		for name, row := range map[string]struct {
			deadline, turn time.Duration
			latest         time.Duration // 0: none
			want           *exchange.Rejection
		}{
			"nothing bounds it":             {turn: time.Hour},
			"before the deadline":           {deadline: 2, turn: 1},
			"at the deadline":               {deadline: 2, turn: 2, want: &exchange.Rejection{Why: exchange.WhyLate, Until: now.Add(2)}},
			"after the deadline":            {deadline: 2, turn: 3, want: &exchange.Rejection{Why: exchange.WhyLate, Until: now.Add(3)}},
			"at the latest time":            {latest: 2, turn: 2},
			"after the latest time":         {latest: 2, turn: 3, want: &exchange.Rejection{Why: exchange.WhyOverdue, Until: now.Add(3)}},
			"now, after the latest time":    {latest: -2, turn: -3, want: &exchange.Rejection{Why: exchange.WhyOverdue, Until: now}},
			"the deadline is the reason":    {deadline: 2, latest: 2, turn: 3, want: &exchange.Rejection{Why: exchange.WhyLate, Until: now.Add(3)}},
			"the latest time is the sooner": {deadline: 4, latest: 2, turn: 3, want: &exchange.Rejection{Why: exchange.WhyOverdue, Until: now.Add(3)}},
		} {
			r, latest := s.Request(t, row.deadline), instant.Instant(0)
			if row.latest != 0 {
				latest = s.Registry.InstantOf(now.Add(row.latest))
			}
			assert.Equal(t, row.want, r.TooLate(now, now.Add(row.turn), latest), name)
		}
		over, cancel := context.WithDeadline(t.Context(), now.Add(-time.Second))
		defer cancel()
		r := s.Request(t, 0)
		r.Ctx = over
		assert.Nil(t, r.TooLate(now, now, 0), "a turn that is now is not late")
	})
}
