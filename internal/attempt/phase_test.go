package attempt

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/policy"
)

// phases and events name what the table of transitions has.
var (
	phases = strings.Fields("untimed waiting connecting reading sending early answered lingering late over")
	events = strings.Fields("seeksConnection hasConnection readsUpload hasPiece uploadEnds responds bodyEnds timeIsUp leaves")
)

// TestEachEventInEachPhase compares all cells of the table with what they have to be, and looks
// at what each change of the phase does. A dot is an event that changes nothing.
func TestEachEventInEachPhase(t *testing.T) {
	want := map[string]string{ // in the order of events
		"untimed":    ".          .       .       .       .       .        .         .    .",
		"waiting":    "connecting .       reading .       .       answered .         late over",
		"connecting": ".          waiting reading .       .       answered .         late over",
		"reading":    ".          .       reading sending waiting early    .         .    over",
		"sending":    ".          .       reading .       waiting early    .         late over",
		"early":      ".          .       .       .       answered .       lingering late over",
		"answered":   ".          .       early   .       .       .        over      late over",
		"lingering":  ".          .       .       .       over    .        .         .    over",
		"late":       ".          .       .       .       .       .        .         .    .",
		"over":       ".          .       .       .       .       .        .         .    .",
	}
	for p, from := range phases {
		for e, to := range strings.Fields(want[from]) {
			t.Run(from+"/"+events[e], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { checkCell(t, phase(p), event(e), to) })
			})
		}
	}
}

// A clock is a home that has the time only.
type clock struct{ home }

func (clock) Now() instant.Instant { return instant.Instant(time.Now().UnixNano()) }

// checkCell lets e happen in a phase.
func checkCell(t *testing.T, from phase, e event, to string) {
	timeouts := TimeoutsOf(&policy.Rule{AttemptTimeout: time.Hour, ConnectTimeout: time.Minute, Stall: policy.Stall{Timeout: time.Minute}})
	unlinked, why := false, errors.New("why")
	a := &attemptContext{Context: t.Context(), Timeouts: &timeouts, home: clock{}, phase: from,
		unlink: func() bool { unlinked = true; return true }}
	a.began = a.home.Now()
	a.Done() // somebody waits, so a timer runs
	d, _ := a.bound()
	a.limit(a.began, d)
	before := a.due
	counts := a.on(e, why)
	switch {
	case to == "." && (counts || a.phase != from || a.due != before):
		t.Fatalf("the event counts, and the phase is %v", phases[a.phase])
	case to == ".":
		return
	case !counts || phases[a.phase] != to:
		t.Fatalf("the event counts: %v; the phase is %v, want %v", counts, phases[a.phase], to)
	}
	ends := a.phase >= late
	if (a.Err() != nil) != ends || unlinked != ends || ends && context.Cause(a) != why {
		t.Errorf("the context has the error %v and the cause %v; it is unlinked: %v", a.Err(), context.Cause(a), unlinked)
	}
	var want instant.Instant
	if d, _ := a.bound(); from >= early && !ends {
		want = before // that of a Read goes on
	} else if a.phase < early && d > 0 {
		want = a.began.Add(d)
	}
	if a.due != want {
		t.Errorf("the time ends at %v, want %v", a.due, want)
	}
	runs := a.timer != nil && a.timer.Stop()
	if want := want != 0 || to == "late"; runs != want { // then it fires at once
		t.Errorf("the timer runs: %v", runs)
	}
}

// TestStoriesOfAnAttempt plays events, each a second after the one before, and tells what
// becomes of the attempt. The name of a story is what happens.
func TestStoriesOfAnAttempt(t *testing.T) {
	whole := policy.Rule{AttemptTimeout: 10 * time.Second, ConnectTimeout: 5 * time.Second}
	for _, story := range []struct {
		name   string
		rule   policy.Rule
		events string
		phase  string
		left   time.Duration // of the time of the phase
	}{
		{"it has the rest of its time when it is connected", whole, "seek connect", "waiting", 8 * time.Second},
		{"a connection is sought twice, and found", whole, "seek seek connect", "waiting", 7 * time.Second},
		{"a connection is sought twice, and the first search counts", whole, "seek seek", "connecting", 4 * time.Second},
		{"a connection is sought again later", whole, "seek connect seek", "waiting", 7 * time.Second},
		{"no connection comes", whole, "seek . . . . .", "late", 0},
		{"the attempt would end before its search", policy.Rule{AttemptTimeout: 10 * time.Second, ConnectTimeout: 9500 * time.Millisecond}, "seek", "waiting", 9 * time.Second},
		{"only the search is bounded", policy.Rule{ConnectTimeout: 5 * time.Second}, "seek connect . . . . .", "waiting", 0},
		{"a reader of the caller's is slow", whole, "read . . . . . . . . . .", "reading", 0},
		{"the body ends, and no response comes", whole, "read . . . . . . . . . . end . . . . . . . . . .", "late", 0},
		{"it comes back for a piece too late", policy.Rule{Stall: policy.Stall{Timeout: 3 * time.Second}}, "read piece . . .", "late", 0},
		{"nobody needs the response", whole, "leave", "over", 0},
		{"nobody needs the response, after the end of its time", whole, ". . . . . . . . . . leave", "late", 0},
	} {
		t.Run(story.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playStory(t, &story.rule, story.events, story.phase, story.left) })
		})
	}
}

func playStory(t *testing.T, rule *policy.Rule, events, phase string, left time.Duration) {
	timeouts, body := TimeoutsOf(rule), &timedBody{ReadCloser: io.NopCloser(strings.NewReader(""))}
	a := &attemptContext{Context: t.Context(), home: clock{}}
	a.start(&timeouts, false)
	a.Done()
	began := time.Now()
	happen := map[string]func(){
		".":       func() {},
		"seek":    a.seekConnection,
		"connect": a.connect,
		"read":    func() { a.uploads(body, readsUpload) },
		"piece":   func() { a.uploads(body, hasPiece) },
		"end":     func() { a.uploads(body, uploadEnds) },
		"leave":   a.Abandon,
	}
	for _, e := range strings.Fields(events) {
		time.Sleep(time.Second)
		synctest.Wait()
		happen[e]()
	}
	if got := phases[a.phase]; got != phase {
		t.Errorf("the phase is %v after %v, want %v", got, time.Since(began), phase)
	}
	if left > 0 {
		time.Sleep(left - 1)
		if synctest.Wait(); a.Err() != nil {
			t.Errorf("the time is over after %v", time.Since(began))
		}
		time.Sleep(time.Nanosecond)
		if synctest.Wait(); phases[a.phase] != "late" {
			t.Errorf("the phase is %v after %v, want late", phases[a.phase], time.Since(began))
		}
	}
	tooLate := phases[a.phase] == "late"
	if err := a.outcome(nil); (err != nil) != tooLate {
		t.Errorf("the error is %v", err)
	}
}

// TestPanicOfTheBaseEndsTheContext has an attempt that ends without a response or an error.
func TestPanicOfTheBaseEndsTheContext(t *testing.T) {
	timeouts := TimeoutsOf(&policy.Rule{AttemptTimeout: time.Hour})
	a := &attemptContext{Context: t.Context(), home: clock{}}
	a.start(&timeouts, true)
	if err := a.outcome(nil); err != nil || a.Err() != context.Canceled {
		t.Errorf("the outcome is %v, and the context has %v", err, a.Err())
	}
}
