// Every client meets the same questions and the same faults. docs/clients.md has
// the results.

package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// clients has a file for each client, and is the order of the rows in docs/clients.md.
func clients() []client {
	return []client{s3Client(), gcsClient(), azureClient(), openaiClient(), connectClient(), githubClient(), websocketClient(),
		registryClient(), kubernetesClient(), proxyClient(), oauth2Client(), otelClient()}
}

// A client is a library that is given an http.Client. Its server is new for each
// test.
type client struct {
	name string

	// off says how its own retries are turned off, as Markdown. It is "has none" if
	// there are none.
	off string
	// needs says which rule it needs, as Markdown. rule is this rule.
	needs string
	rule  policy.Rule
	// h2c says that it is to speak HTTP/2.
	h2c bool
	// size is the size of a response to download, in bytes.
	size int
	// resumes says that its downloads have a validator, so that aplomb asks for the
	// rest of a cut download. Otherwise it fetches the download again.
	resumes bool
	// upgrades says that its downloads come over an upgraded connection.
	upgrades bool
	// reopens says that it continues a cut download by itself.
	reopens bool

	// serve returns the handler of its server. url is the server's URL.
	serve func(t testing.TB, url string) http.Handler
	// open sets it up.
	open func(t testing.TB, s setup) session
}

// A setup is everything that a client gets.
type setup struct {
	http    *http.Client
	url     string
	retries bool // leave its own retries on, but with short waits
}

// A session is a client that is set up.
type session struct {
	// download makes an idempotent request and checks the response's content. It
	// returns the client's error as it is.
	download func(context.Context) error
	// upload makes a request with a body and checks that the server has it. It
	// returns the client's error as it is.
	upload func(context.Context, []byte) error
	// own reports whether an error has the client's own type.
	own func(error) bool
}

var random = sync.OnceValue(func() []byte {
	b := make([]byte, 64<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
})

// content returns n bytes, at most 64 MiB, that are always the same and cannot be
// compressed. They must not be changed.
func content(n int) []byte { return random()[:n:n] }

// same returns an error if the bytes of r are not want. An error of r itself is
// returned as it is.
func same(r io.Reader, want []byte) error { return are(want)(io.ReadAll(r)) }

// are takes what a client got, and returns its error, or one if the bytes are not want.
func are(want []byte) func(got []byte, err error) error {
	return func(got []byte, err error) error {
		if err == nil && !bytes.Equal(got, want) {
			return fmt.Errorf("%d bytes, and not the right %d", len(got), len(want))
		}
		return err
	}
}

// A fault is something that the network does until it is well again.
type fault struct {
	name   string
	toxics func(size int) []toxic // nil: nobody listens
	inBody bool                   // it strikes within the body of the response
	rule   policy.Rule            // notices the fault
}

const (
	never     = int(time.Hour / time.Millisecond)
	impatient = time.Second     // how long a bare client waits, in vain
	patient   = 4 * time.Second // how long an attempt may take, on a busy machine
)

var faults = []fault{
	{name: "refused"},
	{name: "reset_peer", toxics: func(int) []toxic { return []toxic{newToxic("reset_peer", down, "timeout", 0)} }},
	{name: "timeout", toxics: func(int) []toxic { return []toxic{newToxic("timeout", down, "timeout", 0)} },
		rule: policy.Rule{AttemptTimeout: patient}},
	{name: "latency", toxics: func(int) []toxic { return []toxic{newToxic("latency", down, "latency", never)} },
		rule: policy.Rule{AttemptTimeout: patient}},
	{name: "reset in the body", inBody: true, toxics: func(size int) []toxic { return resetAfter(down, size) }},
	{name: "limit_data", inBody: true, toxics: func(size int) []toxic { return cutAfter(down, size) }},
	{name: "slow_close", inBody: true, toxics: func(size int) []toxic {
		return append(cutAfter(down, size), newToxic("slow_close", down, "delay", never))
	}, rule: policy.Rule{StallTimeout: patient}},
}

// A row has the results of the tests about a client.
type row struct {
	client           client
	alone, both, off int // attempts at the server
	survived         int // faults
}

// TestClients checks docs/clients.md as well. With -update it writes the table. The
// tests mostly wait, so more of them than there are cores can run at the same time.
func TestClients(t *testing.T) {
	all := clients()
	rows := make([]*row, len(all))
	t.Cleanup(func() { // when the parallel tests are done
		rows = slices.DeleteFunc(rows, func(r *row) bool { return r == nil })
		if !t.Failed() {
			checkTable(t, rows, len(rows) == len(all))
		}
	})
	for i, c := range all {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rows[i] = measure(t, c)
		})
	}
}

func measure(t *testing.T, c client) *row {
	r := &row{client: c}
	t.Run("unchanged", func(t *testing.T) { unchanged(t, c) })
	t.Run("given up", func(t *testing.T) { r.alone, r.both, r.off = givenUp(t, c) })
	t.Run("early 503", func(t *testing.T) { early503(t, c) })
	t.Run("faults", func(t *testing.T) {
		for _, f := range faults {
			if f.inBody && c.upgrades {
				t.Run(f.name, func(t *testing.T) { t.Parallel(); lostBody(t, c, f) })
				continue
			}
			r.survived++ // or the test fails
			t.Run(f.name, func(t *testing.T) { t.Parallel(); survive(t, c, f) })
		}
	})
	return r
}

// A bench is a server of a client, with a network to it.
type bench struct {
	*server
	network *network
	client  client
}

func newBench(t testing.TB, c client) *bench {
	s := newServer(t, func(url string) http.Handler { return c.serve(t, url) })
	return &bench{server: s, network: newNetwork(t, s.url), client: c}
}

// bare opens the client over net/http alone.
func (b *bench) bare(t testing.TB, retries bool, timeout time.Duration) session {
	hc := &http.Client{Transport: base(t, b.network, b.client.h2c), Timeout: timeout}
	return b.client.open(t, setup{http: hc, url: b.url, retries: retries})
}

// under opens the client over a Transport.
func (b *bench) under(t testing.TB, rule policy.Rule, retries bool, on func(int, transport.AttemptEnd)) (session, *recorder) {
	hc, r := under(t, base(t, b.network, b.client.h2c), rule.Or(b.client.rule), on)
	return b.client.open(t, setup{http: hc, url: b.url, retries: retries}), r
}

// bounded is the context of a call that must end.
func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Without faults the server sees the same requests with and without aplomb.
func unchanged(t *testing.T, c client) {
	b := newBench(t, c)
	requests := func(s session) int {
		b.answer(nil)
		require.NoError(t, s.upload(bounded(t), content(1<<20)))
		require.NoError(t, s.download(bounded(t)))
		return b.seen()
	}
	want := requests(b.bare(t, true, 0))
	s, r := b.under(t, policy.Rule{}, true, nil)
	testkit.Count(t, want, requests(s), "request sent")
	assert.Empty(t, r.told())
}

// A server that answers 503 for ever sees the retries of the client times those of
// aplomb, unless the client's own are off. The client's error is its own in any
// case.
func givenUp(t *testing.T, c client) (alone, both, off int) {
	b := newBench(t, c)
	attempts := func(s session) int {
		b.answer(unavailable)
		err := s.download(bounded(t))
		require.Error(t, err)
		assert.True(t, s.own(err), "the client's own error: %v", err)
		return b.seen()
	}
	alone = attempts(b.bare(t, true, 0))
	testkit.Count(t, 1, attempts(b.bare(t, false, 0)), "request sent", "without retries")
	unbounded := policy.Rule{RetryBudget: policy.RetryBudget{Enabled: policy.Off}} // which leaves some out, as they fall in time
	s, _ := b.under(t, unbounded, true, nil)
	both = attempts(s)
	s, _ = b.under(t, policy.Rule{}, false, nil)
	off = attempts(s)
	assert.Equal(t, policy.Defaults().MaxAttempts, off)
	if c.off == hasNone {
		assert.Equal(t, 1, alone, "requests sent")
	}
	return alone, both, off
}

const hasNone = "has none"

// A server that answers 503 before it reads the body breaks an upload, and the next
// attempt sends the body again whole.
func early503(t *testing.T, c client) {
	b := newBench(t, c)
	b.answer(busyUntil(3))
	require.Error(t, b.bare(t, false, 0).upload(bounded(t), content(1<<20)))
	s, r := b.under(t, policy.Rule{}, false, nil)
	b.answer(busyUntil(3))
	require.NoError(t, s.upload(bounded(t), content(1<<20)))
	assert.Len(t, r.told(), 2, "attempts told")
}

// survive shows that a fault breaks the bare client, and that with aplomb the
// client's call succeeds if the fault ends after the first failed attempt.
func survive(t *testing.T, c client, f fault) {
	b := newBench(t, c)
	strike := func() {
		if f.toxics == nil {
			b.network.close()
		} else {
			require.NoError(t, b.network.set(f.toxics(c.size/4)...))
		}
	}
	if !f.inBody || !c.reopens {
		strike()
		require.Error(t, b.bare(t, false, impatient).download(bounded(t)))
	}

	strike()
	s, r := b.under(t, f.rule, false, func(n int, _ transport.AttemptEnd) {
		if n == 1 {
			assert.NoError(t, b.network.set())
		}
	})
	require.NoError(t, s.download(bounded(t)))
	told := r.told()
	require.NotEmpty(t, told)
	for _, e := range told {
		assert.Equal(t, transport.ReasonRetry, e.Reason)
	}
}

// lostBody shows that the rest of an upgraded connection is lost, and that the client
// says so.
func lostBody(t *testing.T, c client, f fault) {
	b := newBench(t, c)
	require.NoError(t, b.network.set(f.toxics(c.size/4)...))
	s, _ := b.under(t, f.rule, false, nil)
	require.Error(t, s.download(bounded(t)))
	assert.Equal(t, 1, b.seen(), "requests that arrived")
}

// asError reports whether err has the type T.
func asError[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

var update = flag.Bool("update", false, "write the table of docs/clients.md")

const (
	tableFile  = "../docs/clients.md"
	tableStart = "<!-- measured by e2e; make e2e UPDATE=1 writes it -->\n"
	tableEnd   = "<!-- end -->\n"
)

// String returns the row in Markdown.
func (r *row) String() string {
	c := r.client
	attempts := fmt.Sprintf("%d → %d → %d", r.alone, r.both, r.off)
	download := "continued"
	switch {
	case c.reopens:
		download = "continued, also by the client itself"
	case c.upgrades:
		download = "an upgraded connection is handed over"
	case !c.resumes:
		download = "continued, from a second whole response"
	}
	return "| " + strings.Join([]string{c.name, c.off, attempts, download, fmt.Sprint(r.survived), c.needs}, " | ") + " |\n"
}

// checkTable compares the rows with docs/clients.md. If whole is set, the table must
// have no other rows.
func checkTable(t *testing.T, rows []*row, whole bool) {
	text, err := os.ReadFile(tableFile)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), tableStart)
	require.True(t, ok, "%s lacks %q", tableFile, tableStart)
	table, after, ok := strings.Cut(rest, tableEnd)
	require.True(t, ok, "%s lacks %q", tableFile, tableEnd)

	if !whole {
		for _, r := range rows {
			assert.Contains(t, table, r.String())
		}
		return
	}
	var want strings.Builder
	want.WriteString("| client | its own retries off | 503 for ever: attempts alone → with aplomb without a budget → with its own retries off | a cut download | faults survived | rule |\n")
	want.WriteString("|---|---|---|---|---|---|\n")
	for _, r := range rows {
		want.WriteString(r.String())
	}
	if *update {
		require.NoError(t, os.WriteFile(tableFile, []byte(before+tableStart+want.String()+tableEnd+after), 0o644))
		return
	}
	assert.Equal(t, want.String(), table, "make e2e UPDATE=1 writes the table")
}
