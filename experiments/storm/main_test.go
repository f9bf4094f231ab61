package main

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aplomb-go/aplomb/experiments/storm/internal/record"
)

// The experiment starts this program as its servers.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "server" {
		if err := serve(os.Args[2:], os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestExperiment(t *testing.T) {
	for _, how := range []string{"-by-hand=false", "-by-hand=true"} {
		if how == "-by-hand=false" && howFrozen != "SIGSTOP" {
			continue
		}
		o, err := parse([]string{how, "-clients", "30", "-think", "500ms", "-speed", "10", "-steady", "2s", "-frozen", "4s",
			"-watched", "10s", "-strategies", "google,own,shared"}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		runs, err := experiment(t.Context(), o, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			// The bounds are loose. The test is about all parts working together.
			if f := r.Figures(); f.Peak == 0 || f.SentFrozen == 0 || f.LastGood < 0.3 {
				t.Errorf("%s: %s: %+v", how, r.Name, f)
			}
			// A frozen server sees no request. After the resume it sees those that waited.
			var total int
			for i, s := range r.Samples {
				total += s.Arrived
				if at := time.Duration(i) * record.Step; at >= r.Stop && at < r.Resume && s.Arrived > 0 {
					t.Errorf("%s: %s: %d arrived at %v, while the server was frozen", how, r.Name, s.Arrived, at)
				}
			}
			then := r.Samples[r.Resume/record.Step:]
			if !slices.ContainsFunc(then, func(s record.Sample) bool { return s.Arrived > 0 }) || total > r.Sent {
				t.Errorf("%s: %s: %d arrived of %d that were sent, or none after the resume", how, r.Name, total, r.Sent)
			}
			waited := slices.ContainsFunc(r.Samples, func(s record.Sample) bool { return s.Waiting > 0 })
			if waited != (r.Key == "shared") {
				t.Errorf("%s: %s: waited at a gate: %v", how, r.Name, waited)
			}
		}
	}
}

// The program stops at once when it is interrupted, even while the server is
// frozen.
func TestStopped(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	args := []string{"-clients", "5", "-steady", "300ms", "-strategies", "own", "-out", ""}
	if err := run(ctx, args, io.Discard, io.Discard); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestLongest(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), []string{"-longest", "-runs", "1", "-frozen", "3s", "-watched", "20s", "-strategies", "fixed,google"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if strings.Count(out.String(), "survives") != 2 {
		t.Errorf("%s", &out)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range []string{"x", "-speed 0", "-clients 0", "-strategies nope", "-watched 1s", "-sim -tick 1us", "-processes 1,2", "-sim -processes 0", "-sim -processes x", "-sim -processes 2000", "-sim -fleet-delay 1ms"} {
		if err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
}

func TestSweepRuns(t *testing.T) {
	var out strings.Builder
	err := run(t.Context(), []string{"-sim", "-runs", "1", "-processes", "1,40", "-clients", "30", "-watched", "10s", "-out", t.TempDir()}, &out, io.Discard)
	if err != nil || !strings.Contains(out.String(), "processes  clients  alone  holds  probe  fleet  shared") || !strings.Contains(out.String(), "       40       40") {
		t.Errorf("%v, %s", err, &out)
	}
}
