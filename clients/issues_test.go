// Reports of users of other libraries. Each is reproduced with the library that it is about, and
// then healed by a small change of the program.

package clients

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cli/go-gh/v2/pkg/api"
	"github.com/cloudflare/cloudflare-go"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/digitalocean/godo"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"

	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// An issue is a report. Its texts are Markdown.
type issue struct {
	name, fault, change string

	// play runs a program as the report has it, or with the change. It returns what the server
	// and the program saw.
	play func(t *testing.T, healed bool) string
}

// issues is the order of the rows in README.md.
func issues() []issue {
	return []issue{{
		"kubernetes-sigs/external-dns#5971",
		"Cloudflare blocks for 5 min",
		"`cloudflare.HTTPClient(aplomb)`, `UsingRetryPolicy(0, 0, 0)`; `profile.Cloudflare()` with `MaxRetryAfter` 6 min",
		virtual(externalDNS),
	}, {
		"cert-manager/cert-manager#6230",
		"DigitalOcean refuses for 1 min",
		"`Base: aplomb` in the `oauth2.Transport`; `profile.API()`",
		virtual(certManager),
	}, {
		"containerd/containerd#10447",
		"a registry refuses for 5 s",
		"`docker.WithClient(aplomb)`; `profile.Registry()`",
		virtual(containerd),
	}, {
		"cli/go-gh#157",
		"two 502s",
		"`Transport: aplomb` in `api.ClientOptions`; `profile.GitHub()`",
		virtual(goGH),
	}, {
		"charmbracelet/crush#960",
		"`overloaded_error` within a 200, before any text",
		"`option.WithHTTPClient(aplomb)`; `profile.Anthropic()`",
		virtual(crush),
	}, {
		"golang/oauth2#226",
		"a 502 to a refresh",
		"aplomb as `oauth2.HTTPClient`; `Idempotent`, unless refresh tokens rotate",
		virtual(refresh),
	}, {
		"modelcontextprotocol/go-sdk#683",
		"one 429 ends a session (v1.1.0)",
		"`HTTPClient: aplomb` in `mcp.StreamableClientTransport`; `profile.API()`",
		virtual(poisoned),
	}}
}

// TestIssues checks README.md as well. With -update it writes the table.
func TestIssues(t *testing.T) {
	rows := make([]string, len(issues()))
	for i, issue := range issues() {
		t.Run(issue.name, func(t *testing.T) {
			before, after := issue.play(t, false), issue.play(t, true)
			assert.NotEqual(t, before, after)
			rows[i] = fmt.Sprintf("| %s | %s | %s | %s | %s |\n", issue.name, issue.fault, issue.change, before, after)
		})
	}
	checkTable(t, "README.md", "issues", "| issue | fault | change | before | after |\n|---|---|---|---|---|\n", rows)
}

// virtual plays an issue in virtual time.
func virtual(play func(t *testing.T, healed bool) string) func(*testing.T, bool) string {
	return func(t *testing.T, healed bool) (seen string) {
		inMemory(t, func(t *testing.T) { seen = play(t, healed) })
		return seen
	}
}

// client returns a client of net/http, or one with a Transport if the program is healed.
func (s *site) client(healed bool, rule policy.Rule) *http.Client {
	if healed {
		return s.under(rule)
	}
	return s.plain()
}

// ends says how a program ended.
func ends(err error) string {
	if err != nil {
		return "fails"
	}
	return "succeeds"
}

// externalDNS lists 11 pages of records, and begins anew if it fails, as a pod whose restarts
// wait longer and longer. Eight requests are free, and then Cloudflare blocks for five minutes.
func externalDNS(t *testing.T, healed bool) string {
	const block = 5 * time.Minute
	var free int
	var end time.Time
	s := newSite(t, ts.Config{Host: "api.cloudflare.com", Handler: func(r *ts.Received) ts.Step {
		left := time.Until(end)
		if left <= 0 && free == 8 {
			free, end, left = 0, time.Now().Add(block), block
		}
		if left > 0 {
			return json(429, `{"success":false,"errors":[{"code":10429,"message":"Rate limited"}]}`).
				Header("Retry-After", fmt.Sprint(int(left.Seconds())+1))
		}
		free++
		var page int
		_, _ = fmt.Sscanf(r.Target[strings.Index(r.Target, "page="):], "page=%d", &page)
		return json(200, fmt.Sprintf(`{"success":true,"result":[{"id":"r%d"}],"result_info":{"page":%d,"per_page":1,"total_pages":11}}`, page, page))
	}})
	rule := policy.Rule{MaxRetryAfter: 6 * time.Minute}.Or(profile.Cloudflare())
	starts, crashes := 0, 0
	for pause := 10 * time.Second; starts < 10; pause = min(2*pause, 5*time.Minute) {
		starts++
		options := []cloudflare.Option{cloudflare.HTTPClient(s.client(healed, rule))}
		if healed {
			options = append(options, cloudflare.UsingRetryPolicy(0, 0, 0))
		}
		a, err := cloudflare.NewWithAPIToken("token", options...)
		require.NoError(t, err)
		if _, _, err = a.ListDNSRecords(bounded(t), cloudflare.ZoneIdentifier("z1"), cloudflare.ListDNSRecordsParams{}); err == nil {
			break
		}
		crashes++
		time.Sleep(pause)
	}
	return fmt.Sprintf("%d of %d starts crash, sent %d", crashes, starts, len(s.Log()))
}

// certManager asks for the records of a domain, and again 150 ms after a failure.
func certManager(t *testing.T, healed bool) string {
	const hold = time.Minute
	begin := time.Now()
	s := newSite(t, ts.Config{Host: "api.digitalocean.com", Handler: busyFor(hold,
		json(429, `{"id":"too_many_requests"}`).Header("Ratelimit-Remaining", "0").Header("Ratelimit-Reset", fmt.Sprint(begin.Add(hold).Unix())),
		always(`{"domain_records":[]}`))})
	base := s.client(healed, profile.API()).Transport
	token := oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "token"})
	c, err := godo.New(&http.Client{Transport: &oauth2.Transport{Source: token, Base: base}})
	require.NoError(t, err)
	for {
		if _, _, err := c.Domains.Records(bounded(t), "example.com", nil); err == nil {
			break
		}
		time.Sleep(150 * time.Millisecond)
	}
	return fmt.Sprintf("sent %d, %d too early", len(s.Log()), s.early(hold))
}

// containerd pushes a manifest to a registry that is busy at first.
func containerd(t *testing.T, healed bool) string {
	sent, hasty, err := push(t, healed, 5*time.Second)
	return fmt.Sprintf("%s, sent %d, %d at once", ends(err), sent, hasty)
}

// If the registry stays busy, the retries of the resolver and of the Transport multiply.
func TestContainerdMultiplies(t *testing.T) {
	inMemory(t, func(t *testing.T) {
		sent, hasty, err := push(t, true, 24*time.Hour)
		require.Error(t, err)
		assert.Equal(t, 6*6, sent)
		assert.Equal(t, 1, hasty)
	})
}

// push pushes a manifest to a registry that is busy for a time. It returns how many PUTs were sent,
// and how many of them in the first second.
func push(t *testing.T, healed bool, busyTime time.Duration) (sent, hasty int, err error) {
	manifest := []byte(`{"schemaVersion":2}`)
	desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromBytes(manifest), Size: int64(len(manifest))}
	busy := busyFor(busyTime, json(429, `{"errors":[{"code":"TOOMANYREQUESTS"}]}`), func(*ts.Received) ts.Step {
		return ts.Status(201).Header("Docker-Content-Digest", desc.Digest.String())
	})
	begin := time.Now()
	s := newSite(t, ts.Config{Host: "registry.example.com", Handler: func(r *ts.Received) ts.Step {
		if r.Method == http.MethodHead {
			return ts.Status(404)
		}
		sent++
		if time.Since(begin) < time.Second {
			hasty++
		}
		return busy(r)
	}})
	hosts := docker.ConfigureDefaultRegistries(docker.WithClient(s.client(healed, profile.Registry())))
	pusher, err := docker.NewResolver(docker.ResolverOptions{Hosts: hosts}).Pusher(bounded(t), "registry.example.com/app:v1")
	require.NoError(t, err)
	w, err := pusher.Push(bounded(t), desc)
	require.NoError(t, err)
	defer func() { _ = w.Close() }()
	err = content.Copy(bounded(t), w, bytes.NewReader(manifest), desc.Size, desc.Digest)
	return sent, hasty, err
}

// goGH reads a repository.
func goGH(t *testing.T, healed bool) string {
	s := newSite(t, ts.Config{Host: "api.github.com", Handler: firstly(2, ts.Status(502), always(`{"name":"cli"}`))})
	c, err := api.NewRESTClient(api.ClientOptions{
		Host: "github.com", AuthToken: "token", LogIgnoreEnv: true,
		Transport: s.client(healed, profile.GitHub()).Transport,
	})
	require.NoError(t, err)
	var got struct{ Name string }
	err = c.Get("repos/cli/cli", &got)
	if err == nil {
		assert.Equal(t, "cli", got.Name)
	}
	return fmt.Sprintf("%s, sent %d", ends(err), len(s.Log()))
}

// crush reads an answer as a stream.
func crush(t *testing.T, healed bool) string {
	const began = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m1\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[]}}\n\n"
	stream := func(events string) ts.Step {
		return ts.Status(200).Header("Content-Type", "text/event-stream").Body(began + events).Chunked()
	}
	overloaded := stream("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n")
	well := stream("event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hello\"}}\n\n" +
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
	s := newSite(t, ts.Config{Host: "api.anthropic.com", Handler: firstly(2, overloaded, func(*ts.Received) ts.Step { return well })})
	c := newAnthropic(s.client(healed, profile.Anthropic()), !healed)
	events := c.Messages.NewStreaming(bounded(t), prompt())
	text := ""
	for events.Next() {
		text += events.Current().Delta.Text
	}
	if events.Err() == nil {
		assert.Equal(t, "hello", text)
	}
	return fmt.Sprintf("%s, sent %d", ends(events.Err()), len(s.Log()))
}

// refresh gets a new token with one that does not change.
func refresh(t *testing.T, healed bool) string {
	s := newSite(t, ts.Config{Host: "oauth2.googleapis.com", Handler: firstly(1, ts.Status(502), always(`{"access_token":"a","token_type":"Bearer"}`))})
	rule := policy.Rule{Idempotent: func(*http.Request) bool { return true }} // this client gets tokens only
	ctx := context.WithValue(bounded(t), oauth2.HTTPClient, s.client(healed, rule))
	c := oauth2.Config{ClientID: "id", Endpoint: oauth2.Endpoint{TokenURL: s.URL + "/token", AuthStyle: oauth2.AuthStyleInParams}}
	_, err := c.TokenSource(ctx, &oauth2.Token{RefreshToken: "kept"}).Token()
	return fmt.Sprintf("%s, sent %d", ends(err), len(s.Log()))
}

// poisoned calls a tool of an MCP server three times. The server refuses the second call once.
func poisoned(t *testing.T, healed bool) string {
	var calls atomic.Int64
	hc := serveHTTP(t, toolServer(func(w http.ResponseWriter) bool {
		if calls.Add(1) != 2 {
			return false
		}
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}))
	if healed {
		hc.Transport = transport.MustNew(transport.Config{Base: hc.Transport, Rule: profile.API()})
	}
	session := connect(t, hc)
	failed := 0
	for range 3 {
		if _, err := session.CallTool(bounded(t), &mcp.CallToolParams{Name: "greet"}); err != nil {
			failed++
		}
	}
	return fmt.Sprintf("%d of 3 calls fail", failed)
}

// In the same version a session also refuses every call after one that http.Client.Timeout ended.
// That timeout is above the transport, so it has no part in that. A deadline of the call's own does
// no harm.
func TestTimeoutPoisonsSession(t *testing.T) {
	for _, deadline := range []bool{false, true} {
		inMemory(t, func(t *testing.T) {
			var calls atomic.Int64
			t.Cleanup(func() { time.Sleep(2 * time.Second) }) // at last, for the timers of http.Client
			slow := make(chan struct{})
			defer close(slow)
			hc := serveHTTP(t, toolServer(func(http.ResponseWriter) bool {
				if calls.Add(1) == 1 {
					<-slow
				}
				return false
			}))
			hc.Transport = transport.MustNew(transport.Config{Base: hc.Transport, Rule: profile.API()})
			ctx := bounded(t)
			if deadline {
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				ctx = short
			} else {
				hc.Timeout = time.Second
			}
			session := connect(t, hc)
			_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "greet"})
			require.Error(t, err)
			_, err = session.CallTool(bounded(t), &mcp.CallToolParams{Name: "greet"})
			assert.Equal(t, deadline, err == nil, "%v", err)
		})
	}
}

// toolServer is an MCP server with one tool. early is asked first about each call of the tool. If
// it returns true, it has answered.
func toolServer(early func(http.ResponseWriter) bool) http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "server"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "greet"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{}, nil, nil
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		if !bytes.Contains(body, []byte("tools/call")) || !early(w) {
			handler.ServeHTTP(w, req)
		}
	})
}

func connect(t *testing.T, hc *http.Client) *mcp.ClientSession {
	c := mcp.NewClient(&mcp.Implementation{Name: "client"}, nil)
	session, err := c.Connect(bounded(t), &mcp.StreamableClientTransport{Endpoint: "http://mcp.example.com", HTTPClient: hc}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return session
}
