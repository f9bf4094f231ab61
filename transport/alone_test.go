// Bodies that a reader gets over a Transport as over net/http alone.

package transport_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// A delivery is what a reader gets of a body.
type delivery struct {
	parts []string
	times []time.Duration // since the request, of each part
	end   string          // the error
}

// asAlone reads the response to a GET over net/http alone and over Transports, each with a server of
// its own that plays the steps. It asserts that they deliver the same, and that at most so many
// requests arrive over a Transport.
func asAlone(t *testing.T, most int, read func(t *testing.T, body io.Reader, add func(part string)) error, steps ...ts.Step) {
	over := func(rule policy.Rule) func(http.RoundTripper) http.RoundTripper {
		return func(base http.RoundTripper) http.RoundTripper {
			return mustNew(t, transport.Config{Base: base, Rule: rule})
		}
	}
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		play := func(wrap func(http.RoundTripper) http.RoundTripper) (d delivery, arrived int) {
			s := ts.Start(t, cfg, steps...)
			defer s.Close()
			base := s.Transport()
			defer base.CloseIdleConnections()
			start := time.Now()
			resp := mustRoundTrip(t, wrap(base), newRequest(t, http.MethodGet, s.URL+"/", nil))
			err := read(t, resp.Body, func(part string) {
				d.parts, d.times = append(d.parts, part), append(d.times, time.Since(start))
			})
			d.end = fmt.Sprint(err)
			require.NoError(t, resp.Body.Close())
			return d, s.Arrivals()
		}
		want, _ := play(func(base http.RoundTripper) http.RoundTripper { return base })
		for name, wrap := range map[string]func(http.RoundTripper) http.RoundTripper{
			"default": over(policy.Rule{}),
			"API":     over(policy.API()),
			"Service": over(policy.Service()),
			"GitHub":  over(profile.GitHub()),
			"a pair":  func(base http.RoundTripper) http.RoundTripper { return over(policy.API())(over(policy.API())(base)) },
		} {
			got, arrived := play(wrap)
			assert.Equal(t, want, got, name)
			assert.LessOrEqual(t, arrived, most, name)
		}
	})
}

// The last chunk of a JSON response is missing. A decoder has all of the text, and never reads that
// far.
func TestJSONWithoutItsLastChunk(t *testing.T) {
	whole := jsonStep(`{"id":1}`, false, false)
	asAlone(t, 1, func(_ *testing.T, body io.Reader, add func(string)) error {
		var v json.RawMessage
		err := json.NewDecoder(body).Decode(&v)
		add(string(v))
		return err
	}, whole.CutAt(8, ts.Close), whole)
}

// The daemon of Docker tells events as JSON, each to those who listen then. It restarts within a
// second. Its reader has to learn that, with every event until then, so that it asks again for
// those after it.
func TestEventsOfDockerAreCut(t *testing.T) {
	events := func(first int) (s string) {
		for id := range 5 {
			s += fmt.Sprintf(`{"Action":"start","id":%d}`+"\n", first+id)
		}
		return s
	}
	size := len(events(1)) / 5
	step := func(first int) ts.Step {
		return ts.OK(events(first)).Header("Content-Type", "application/json").Chunked().Drip(size, 30*time.Millisecond)
	}
	asAlone(t, 2, func(t *testing.T, body io.Reader, add func(string)) error {
		for d := json.NewDecoder(body); ; {
			var event json.RawMessage
			if err := d.Decode(&event); err != nil {
				assert.NotEqual(t, io.EOF, err, "the events that follow are lost")
				return err
			}
			add(string(event))
		}
	}, step(1).CutAt(int64(5*size), ts.Close), step(6))
}

// Each line of a log comes when it was written.
func TestLinesThatComeSlowly(t *testing.T) {
	const line = "a line of a log\n"
	asAlone(t, 1, func(_ *testing.T, body io.Reader, add func(string)) error {
		buf := make([]byte, len(line))
		for {
			if _, err := io.ReadFull(body, buf); err != nil {
				return err
			}
			add(string(buf))
		}
	}, ts.OK(strings.Repeat(line, 20)).Header("Content-Type", "text/plain").Chunked().Drip(len(line), 90*time.Millisecond))
}

// A base transport may wrap all bodies, also that of a HEAD, whose header is that of a GET.
func TestHeadThroughABaseThatWrapsBodies(t *testing.T) {
	const text = "right!"
	for name, rule := range map[string]policy.Rule{"default": {}, "API": policy.API(), "AWS": profile.AWS()} {
		for _, length := range []int64{int64(len(text)), -1} {
			bubble(t, func(t *testing.T) {
				req := newRequest(t, http.MethodHead, "http://h.test/", nil)
				if length < 0 {
					req = req.WithContext(transport.Repeatable(req.Context()))
				}
				base := script(func(req *http.Request) (*http.Response, error) {
					resp := newResponse(req, 200, reader(strings.NewReader("")),
						"Content-Digest: "+field256(text), "Repr-Digest: "+field256(text), "X-Amz-Checksum-Crc32c: AAAAAQ==")
					resp.ContentLength = length
					return resp, nil
				})
				got := do(over(t, transport.Config{Rule: rule}, base), req)
				require.NoError(t, got.err, name)
				assert.Equal(t, 200, got.status)
				assert.Empty(t, got.body)
				assert.Equal(t, 1, base.attempts())
			})
		}
	}
}
