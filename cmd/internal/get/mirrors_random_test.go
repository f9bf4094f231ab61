package get

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testserver"
)

// A randomServer serves the versions of a file, and changes and fails at random.
type randomServer struct {
	*testserver.Server
	random   *rand.Rand
	versions [][]byte
	now      int      // the version
	tags     []int    // of each version that it had, as a number that the server counts
	served   [][]byte // the versions that it has sent
	urls     *[]string

	tag, digest, fails int
	parts, lies        bool
	down               int // requests that fail from now on
	elsewhere          int // requests for the rest of what another server has sent
}

// newRandomServer makes a server that is like others of its kind: all count their versions, so
// two of them have the same ETag for two versions.
func newRandomServer(t *testing.T, n *testserver.Net, random *rand.Rand, versions [][]byte, urls *[]string) *randomServer {
	s := &randomServer{
		random: random, versions: versions, now: random.IntN(len(versions)), urls: urls,
		tag: random.IntN(6), digest: random.IntN(3), fails: 20 + random.IntN(70), parts: random.IntN(6) > 0, lies: random.IntN(12) == 0,
	}
	s.Server = testserver.Start(t, testserver.Config{Net: n, Host: fmt.Sprintf("s%d.test", len(*urls)), Handler: s.step})
	*urls = append(*urls, fmt.Sprintf("%s/%d/a.bin", s.URL, len(*urls)))
	return s
}

// step chooses a response. The client has one request at a time, so steps are not concurrent.
func (s *randomServer) step(got *testserver.Received) testserver.Step {
	r := s.random
	if got.Header.Get("Range") != "" && got.Header.Get("If-Range") == "" {
		s.elsewhere++
	}
	if s.down > 0 {
		s.down--
		return testserver.Status(503)
	}
	if r.IntN(6) == 0 {
		s.now = r.IntN(len(s.versions))
	}
	if r.IntN(100) < s.fails {
		switch r.IntN(20) {
		case 0:
			return testserver.Status(404)
		case 1:
			return testserver.Status(503).Header("Retry-After", fmt.Sprint(1+r.IntN(20)))
		case 2:
			return testserver.ResetBeforeHeaders()
		case 3:
			return testserver.Status(302).Header("Location", (*s.urls)[r.IntN(len(*s.urls))])
		case 4, 5, 6:
			return testserver.Status(503)
		}
	}
	body := s.versions[s.now]
	s.served = append(s.served, body)
	n := slices.Index(s.tags, s.now)
	if n < 0 {
		n, s.tags = len(s.tags), append(s.tags, s.now)
	}
	tag := fmt.Sprintf(`"%d"`, n)
	switch s.tag {
	case 0:
		tag = ""
	case 1:
		tag = "W/" + tag
	}
	step := testserver.Content(body, tag)
	if !s.parts {
		step = testserver.OK(string(body)).Header("ETag", tag)
		if tag == "" {
			step = testserver.OK(string(body))
		}
	}
	if s.lies {
		body = s.versions[r.IntN(len(s.versions))]
	}
	if s.digest > r.IntN(2) {
		step = step.Header("Repr-Digest", digestField(body))
	}
	if r.IntN(4) == 0 {
		step = step.Chunked()
	}
	if r.IntN(100) < s.fails && len(body) > 0 {
		step = step.CutAt(int64(r.IntN(len(body))), testserver.Close)
		s.down = r.IntN(6)
	}
	return step
}

// randomVersions returns versions that are nearly the same.
func randomVersions(r *rand.Rand) [][]byte {
	base := make([]byte, 1+r.IntN(100_000))
	for i := range base {
		base[i] = byte(r.Uint32())
	}
	versions := [][]byte{base}
	for range 1 + r.IntN(3) {
		v := slices.Clone(base)
		for range 2 + r.IntN(4) {
			v[r.IntN(len(v))] ^= byte(1 + r.IntN(255))
		}
		if r.IntN(4) == 0 {
			v = v[:1+r.IntN(len(v))]
		}
		versions = append(versions, v)
	}
	return versions
}

// Whatever servers do, and however often the command is interrupted and run again, the file is
// one version that one server has sent.
func TestRandomMirrors(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 100
	}
	seen := make(map[string]int)
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { randomMirrors(t, seed, seen) })
		require.False(t, t.Failed(), "seed %d", seed)
	}
	t.Log(seen)
	for _, text := range []string{"exit status 0", "exit status 1", "exit status 3", "exit status 130", "compares the part", "another version than the part", "goes on at", "the rest from elsewhere", "to stdout"} {
		assert.False(t, seen[text] == 0 && !testing.Short(), "this never happened: %s", text)
	}
}

func randomMirrors(t *testing.T, seed uint64, seen map[string]int) {
	r := rand.New(rand.NewPCG(seed, 0))
	n, versions := testserver.NewNet(), randomVersions(r)
	var urls []string
	var servers []*randomServer
	for range 1 + r.IntN(3) {
		servers = append(servers, newRandomServer(t, n, r, versions, &urls))
	}
	dir, begin, story := t.TempDir(), time.Now(), ""
	file := filepath.Join(dir, "a.bin")
	old := []byte("an older one")
	require.NoError(t, os.WriteFile(file, old, 0o600))
	for range 1 + r.IntN(4) {
		mine := slices.Clone(urls)
		r.Shuffle(len(mine)-1, func(i, j int) { mine[1+i], mine[1+j] = mine[1+j], mine[1+i] })
		args := []string{"-o", dir, "-attempts", fmt.Sprint(1 + r.IntN(3))}
		if mine = mine[:1+r.IntN(len(mine))]; len(mine) > 1 {
			args = append(args, "-mirrors")
		}
		var wanted []byte
		if r.IntN(4) == 0 {
			wanted = versions[r.IntN(len(versions))]
			args = append(args, "-sha256", hexDigest(wanted))
		}
		toStdout := r.IntN(8) == 0
		if toStdout {
			args[1] = "-"
			seen["to stdout"]++
		}
		ctx, cancel := context.WithCancel(t.Context())
		limit := r.IntN(3 * len(versions[0]))
		var out, errs bytes.Buffer
		code := run(ctx, append(args, mine...), world{stdout: &out, stderr: &errs, base: servers[0].Transport(),
			wrap: func(r reporter) reporter { return &stopper{r, cancel, limit} }})
		cancel()
		all := errs.String()
		if !toStdout {
			all = out.String() + all
		}
		story += fmt.Sprintf("%s %s\n%sexit status %d\n", strings.Join(args, " "), strings.Join(mine, " "), all, code)
		seen[fmt.Sprintf("exit status %d", code)]++
		for _, text := range []string{"compares the part", "another version than the part", "goes on at", "starts anew"} {
			seen[text] += strings.Count(all, text)
		}

		got, err := os.ReadFile(file)
		switch {
		case toStdout && !bytes.Equal(got, old):
			err = fmt.Errorf("there is a file of %d bytes", len(got))
		case toStdout:
			got = out.Bytes()
		case code != exitFine && !bytes.Equal(got, old):
			err = fmt.Errorf("the file was replaced by %d bytes", len(got))
		case code != exitFine:
			got = nil
		}
		if err == nil && (code == exitFine || len(got) > 0) {
			err = isOneVersion(got, wanted, servers, code == exitFine)
		}
		if err == nil && time.Since(begin) > time.Hour {
			err = fmt.Errorf("it took %v", time.Since(begin))
		}
		require.NoError(t, err, "\n%s", story)
		if code == exitFine && !toStdout {
			break
		}
	}
	for _, s := range servers {
		seen["the rest from elsewhere"] += s.elsewhere
	}
}

// isOneVersion checks that a server has sent just these bytes, or a version that begins with
// them.
func isOneVersion(got, wanted []byte, servers []*randomServer, whole bool) error {
	if whole && wanted != nil && !bytes.Equal(got, wanted) {
		return fmt.Errorf("%d bytes are not those of -sha256", len(got))
	}
	for _, s := range servers {
		for _, v := range s.served {
			if bytes.Equal(got, v) || !whole && bytes.HasPrefix(v, got) {
				return nil
			}
		}
	}
	return fmt.Errorf("no server has sent a file with these %d bytes", len(got))
}

// A stopper interrupts a run after some bytes.
type stopper struct {
	reporter
	cancel func()
	left   int
}

func (s *stopper) track(name string) tracker { return &stoppingTracker{s.reporter.track(name), s} }

type stoppingTracker struct {
	tracker
	s *stopper
}

func (t *stoppingTracker) wrote(n int) {
	t.tracker.wrote(n)
	if t.s.left -= n; t.s.left < 0 {
		t.s.cancel()
	}
}
