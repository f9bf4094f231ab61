package transport_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// A version is a file as a mirror serves it.
type version struct {
	body   []byte
	etag   string // "": none
	digest bool
}

// A mirror serves a file, in parts as well, and cuts its responses.
type mirror struct {
	version
	cuts []int // how many bytes the next responses bring before they are cut; then they are whole
	down bool
}

// Mirrors are servers by their hosts.
type mirrors struct {
	mu   sync.Mutex
	by   map[string]*mirror
	reqs []*http.Request
}

func (m *mirrors) RoundTrip(req *http.Request) (*http.Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reqs = append(m.reqs, req)
	s := m.by[req.URL.Host]
	if s.down {
		return nil, syscall.ECONNREFUSED
	}
	code, from, header := 200, 0, []string{"Content-Type: application/octet-stream"}
	if s.etag != "" {
		header = append(header, "ETag: "+s.etag)
	}
	if s.digest {
		sum := sha256.Sum256(s.body)
		header = append(header, "Repr-Digest: sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":")
	}
	if r, ok := strings.CutPrefix(req.Header.Get("Range"), "bytes="); ok && s.etag != "" && (req.Header.Get("If-Range") == "" || req.Header.Get("If-Range") == s.etag) {
		from, _ = strconv.Atoi(strings.TrimSuffix(r, "-"))
		if from >= len(s.body) {
			return newResponse(req, 416, http.NoBody, "Content-Range: bytes */"+strconv.Itoa(len(s.body))), nil
		}
		code, header = 206, append(header, fmt.Sprintf("Content-Range: bytes %d-%d/%d", from, len(s.body)-1, len(s.body)))
	}
	rest := s.body[from:]
	var body io.Reader = bytes.NewReader(rest)
	if len(s.cuts) > 0 {
		if cut := s.cuts[0]; cut < len(rest) {
			body = io.MultiReader(bytes.NewReader(rest[:cut]), cutOff{})
		}
		s.cuts = s.cuts[1:]
	}
	resp := newResponse(req, code, io.NopCloser(body), header...)
	resp.ContentLength = int64(len(rest))
	return resp, nil
}

type cutOff struct{}

func (cutOff) Read([]byte) (int, error) { return 0, syscall.ECONNRESET }

func (m *mirrors) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// content returns bytes that differ from those of another seed, from same on.
func content(size, same int, seed uint64) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	_, _ = rand.NewChaCha8([32]byte{2, byte(seed)}).Read(b[min(same, size):])
	return b
}

// A body that comes from A is cut, and A is down. What B has continues it only if it surely
// is the same.
func TestBodyAtAnAlternate(t *testing.T) {
	small, large := 100<<10, 3<<20
	one := content(large, 0, 1)
	for name, row := range map[string]struct {
		a, b       version
		validators policy.Switch
		back       bool   // A is back in a minute
		want       []byte // nil: the body ends with an error
		asks       string // the last Range and If-Range at B
	}{
		"the rule says that the tags are the same": {
			a: version{body: one, etag: `"1"`}, b: version{body: one, etag: `"1"`}, validators: policy.On,
			want: one, asks: `bytes=2000000- "1"`,
		},
		"the rule says so, and the tags differ": {
			a: version{body: one, etag: `"1"`}, b: version{body: one, etag: `"2"`}, validators: policy.On,
		},
		"the same tag proves nothing": {
			a: version{body: one, etag: `"1"`}, b: version{body: content(large, 0, 2), etag: `"1"`},
		},
		"the same digest": {
			a: version{body: one, etag: `"1"`, digest: true}, b: version{body: one, etag: `"2"`, digest: true},
			want: one, asks: "bytes=2000000- ",
		},
		"another digest": {
			a: version{body: one, etag: `"1"`, digest: true}, b: version{body: content(large, 1<<20, 2), etag: `"1"`, digest: true},
		},
		"a digest on one side": {
			a: version{body: one, etag: `"1"`, digest: true}, b: version{body: one, etag: `"1"`},
		},
		"small, and the same": {
			a: version{body: one[:small], etag: `"1"`}, b: version{body: one[:small], etag: `"1"`},
			want: one[:small], asks: " ",
		},
		"small, the same tag, and other bytes": {
			a: version{body: one[:small], etag: `"1"`}, b: version{body: content(small, 0, 2), etag: `"1"`},
		},
		"small, and other bytes behind the cut": { // it is exactly that of B
			a: version{body: content(small, 60<<10, 1), etag: `"1"`}, b: version{body: content(small, 60<<10, 2), etag: `"1"`},
			want: content(small, 60<<10, 2), asks: " ",
		},
		"small, and another tag": { // the caller has the tag of A already
			a: version{body: one[:small], etag: `"1"`}, b: version{body: one[:small], etag: `"2"`},
		},
		"without a validator, and the same": {
			a: version{body: one[:small]}, b: version{body: one[:small]}, want: one[:small], asks: " ",
		},
		"without a validator, and other bytes": {
			a: version{body: one[:small]}, b: version{body: content(small, 0, 2)},
		},
		"B does not have it, and A is back": {
			a: version{body: one[:small], etag: `"1"`}, b: version{body: content(small, 0, 2), etag: `"1"`}, back: true,
			want: one[:small],
		},
		"nobody asks B, and A is back": {
			a: version{body: one, etag: `"1"`}, b: version{body: one, etag: `"2"`}, back: true, want: one,
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			cut := 2_000_000
			if len(row.a.body) == small {
				cut = 50_000
			}
			m := &mirrors{by: map[string]*mirror{"a.test": {version: row.a, cuts: []int{cut}}, "b.test": {version: row.b}}}
			rule := policy.Rule{Alternates: policy.Alternates{Bases: []string{"http://b.test"}, Validators: row.validators}}
			tr := mustNew(t, transport.Config{Base: m, Hosts: map[string]policy.Rule{"a.test": rule}})
			resp := mustRoundTrip(t, tr, newRequest(t, http.MethodGet, "http://a.test/f", nil))
			m.change(func() { m.by["a.test"].down = true })
			if row.back {
				time.AfterFunc(10*time.Second, func() { m.change(func() { m.by["a.test"].down = false }) })
			}
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, resp.Body.Close())
			if row.want == nil {
				require.Error(t, err)
				assert.True(t, bytes.HasPrefix(row.a.body, got), "every byte before the error is good")
			} else {
				require.NoError(t, err)
				assert.True(t, bytes.Equal(row.want, got))
			}
			asks := ""
			for _, req := range m.reqs {
				if req.URL.Host == "b.test" {
					asks = req.Header.Get("Range") + " " + req.Header.Get("If-Range")
				}
			}
			if row.asks != "" {
				assert.Equal(t, row.asks, asks)
			}
			for _, s := range tr.Snapshot() {
				assert.Zero(t, s.InFlight, s.Host)
			}
		})
	}
}

// A body goes on from one endpoint to the next, and back, with the validator of each.
func TestBodyGoesOnAndBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		one := content(3<<20, 0, 1)
		m := &mirrors{by: map[string]*mirror{
			"a.test": {version: version{one, `"a"`, true}, down: true},
			"b.test": {version: version{one, `"b"`, true}, cuts: []int{1 << 20, 1 << 18, 1 << 19}},
		}}
		rule := policy.Rule{Alternates: policy.Alternates{Bases: []string{"http://b.test"}}}
		tr := mustNew(t, transport.Config{Base: m, Hosts: map[string]policy.Rule{"a.test": rule}})
		resp := mustRoundTrip(t, tr, newRequest(t, http.MethodGet, "http://a.test/f", nil))
		assert.Equal(t, "b.test", resp.Request.URL.Host)
		got := make([]byte, 1<<20+1<<18) // two segments of B
		_, err := io.ReadFull(resp.Body, got)
		require.NoError(t, err)
		m.change(func() {
			m.by["a.test"].down, m.by["a.test"].cuts, m.by["b.test"].down = false, []int{1 << 19, 1 << 20}, true
		})
		rest := mustRead(t, resp)
		assert.True(t, bytes.Equal(one, append(got, rest...)))
		var hosts, ifs []string
		for _, req := range m.reqs {
			hosts = append(hosts, req.URL.Host[:1])
			ifs = append(ifs, req.Header.Get("If-Range"))
		}
		assert.Equal(t, `[a b b b a a]`, fmt.Sprint(hosts[:6]), "the fourth is refused")
		assert.Equal(t, `["" "" "\"b\"" "\"b\"" "" "\"a\""]`, fmt.Sprintf("%q", ifs[:6]))
	})
}

// A reconnect goes nowhere before the end of a wait that the request was told there.
func TestReconnectKeepsTheWaitOfEachEndpoint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		body := content(80<<10, 0, 1)
		m := &mirrors{by: map[string]*mirror{
			"a.test": {version: version{body: body, etag: `"1"`}},
			"b.test": {version: version{body: body, etag: `"1"`}, cuts: []int{1000}},
		}}
		var at []time.Duration // of the attempts at A
		begun := time.Now()
		rule := policy.Rule{Cooldown: policy.Off, Backoff: backoff.Constant(time.Millisecond), Alternates: policy.Alternates{Bases: []string{"http://b.test"}}}
		tr := mustNew(t, transport.Config{Hosts: map[string]policy.Rule{"a.test": rule}, Base: rt(func(req *http.Request) (*http.Response, error) {
			if req.URL.Host == "a.test" {
				if at = append(at, time.Since(begun)); len(at) == 1 {
					return play(req, status(503, "Retry-After: 16"))
				}
			}
			return m.RoundTrip(req)
		})})
		resp := mustRoundTrip(t, tr, newRequest(t, http.MethodGet, "http://a.test/f", nil))
		m.change(func() { m.by["b.test"].down = true })
		assert.Equal(t, string(body), mustRead(t, resp))
		require.Len(t, at, 2)
		assert.GreaterOrEqual(t, at[1]-at[0], 16*time.Second)
	})
}

// A reconnect does not go to an alternate that had said before that it does not have the body.
func TestReconnectLeavesOutWhoHasNotTheBody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		body := content(80<<10, 0, 1)
		m := &mirrors{by: map[string]*mirror{
			"c.test": {version: version{body: body, etag: `"1"`}, cuts: []int{1000}},
		}}
		var hosts []string
		rule := policy.Rule{Cooldown: policy.Off, Backoff: backoff.Constant(time.Millisecond), Alternates: policy.Alternates{Bases: []string{"http://b.test", "http://c.test"}}}
		tr := mustNew(t, transport.Config{Hosts: map[string]policy.Rule{"a.test": rule}, Base: rt(func(req *http.Request) (*http.Response, error) {
			hosts = append(hosts, req.URL.Hostname()[:1])
			switch {
			case req.URL.Host == "b.test":
				return play(req, status(404))
			case req.URL.Host == "a.test", len(hosts) == 4:
				return play(req, status(503))
			}
			return m.RoundTrip(req)
		})})
		resp := mustRoundTrip(t, tr, newRequest(t, http.MethodGet, "http://a.test/f", nil))
		assert.Equal(t, string(body), mustRead(t, resp))
		assert.Equal(t, "[a b c c a c]", fmt.Sprint(hosts))
	})
}

// Random requests to random endpoints with random versions, cuts, outages and credentials.
// The bytes of two versions never mix, and no credential leaves its host.
func TestAlternatesNeverMixAndNeverLeak(t *testing.T) {
	type tally struct{ whole, cut, away, withKey int }
	var all tally
	for seed := range uint64(soak.Size(100, 1000)) {
		bubble(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 25))
			size := []int{3000, 80 << 10, 1200 << 10}[rng.IntN(3)]
			if size > 1<<20 && rng.IntN(4) > 0 {
				size = 5000
			}
			versions := make([][]byte, 3)
			for i := range versions {
				versions[i] = content(size, rng.IntN(2)*rng.IntN(size), uint64(i))
			}
			shared := rng.IntN(3) == 0 // the rule says that tags are the same, and it is true
			digests := rng.IntN(2) == 0
			pick := func(changes bool) version {
				i := rng.IntN(len(versions))
				v := version{versions[i], `"same"`, digests || rng.IntN(4) == 0}
				if shared || changes || rng.IntN(2) == 0 { // a host never gives a tag to two versions
					v.etag = fmt.Sprintf(`"%d"`, i)
				}
				if !shared && rng.IntN(4) == 0 {
					v.etag = ""
				}
				return v
			}
			hosts := []string{"a.test", "b.test", "c.test"}
			m := &mirrors{by: map[string]*mirror{}}
			for _, h := range hosts {
				m.by[h] = &mirror{version: pick(false)}
			}
			rule := policy.Rule{Attempts: 4, Backoff: backoff.Constant(100 * time.Millisecond), Alternates: policy.Alternates{Bases: []string{"http://b.test", "http://c.test/"}}}
			if shared {
				rule.Alternates.Validators = policy.On
			}
			trusted := rng.IntN(4) == 0
			if trusted {
				rule.Alternates.Credentials = policy.On
			}
			tr := mustNew(t, transport.Config{Base: m, Hosts: map[string]policy.Rule{"a.test": rule}})
			for range 10 {
				m.change(func() {
					m.reqs = nil
					for _, h := range hosts {
						s := m.by[h]
						s.down = rng.IntN(3) == 0
						s.cuts = nil
						for range rng.IntN(3) {
							s.cuts = append(s.cuts, rng.IntN(size+1))
						}
					}
				})
				req := newRequest(t, http.MethodGet, "http://a.test/f", nil)
				key := addKey(rng, req)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				resp, err := tr.RoundTrip(req.WithContext(ctx))
				if err == nil {
					half := make([]byte, rng.IntN(size))
					n, err := io.ReadFull(resp.Body, half)
					got := half[:n]
					m.change(func() {
						for _, h := range hosts {
							m.by[h].down = rng.IntN(3) == 0
							if rng.IntN(4) == 0 && !shared {
								m.by[h].version = pick(true)
							}
						}
					})
					if err == nil {
						var rest []byte
						rest, err = io.ReadAll(resp.Body)
						got = append(got, rest...)
					}
					_ = resp.Body.Close()
					good := false
					for _, v := range versions {
						good = good || err == nil && bytes.Equal(v, got) || err != nil && bytes.HasPrefix(v, got)
					}
					assert.True(t, good || resp.StatusCode != 200, "seed %d: a mix, %v", seed, err)
					if err == nil {
						all.whole++
					} else {
						all.cut++
					}
				}
				cancel()
				for _, seen := range m.reqs {
					away := seen.URL.Host != "a.test"
					if away {
						all.away++
					}
					if key && away {
						all.withKey++
						assert.True(t, trusted, "seed %d: %s got a credential", seed, seen.URL)
					}
				}
			}
			for _, s := range tr.Snapshot() {
				assert.Zero(t, s.InFlight, s.Host)
			}
		})
	}
	t.Logf("%+v", all)
	assert.Positive(t, all.cut)
	assert.Greater(t, all.whole, all.cut)
	assert.Positive(t, all.away)
	assert.Positive(t, all.withKey, "with Credentials they travel")
}

// addKey adds a random credential to a third of the requests.
func addKey(rng *rand.Rand, req *http.Request) bool {
	if rng.IntN(3) > 0 {
		return false
	}
	names := []string{"Authorization", "Cookie", "Proxy-Authorization", "X-Api-Key", "X-Auth-Token", "Private-Token", "X-Amz-Security-Token", "X-Session-Id"}
	switch i := rng.IntN(len(names) + 3); i {
	case len(names):
		req.URL.RawQuery = "sig=secret"
	case len(names) + 1:
		req.URL.RawQuery = "a=b&X-Goog-Signature=secret"
	case len(names) + 2:
		req.Header["x-api-key"] = []string{"secret"} // not in canonical form
	default:
		req.Header.Set(names[i], "secret")
	}
	return true
}
