package failover_test

import (
	"cmp"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/failover"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A request that has something for one endpoint alone stays with the first, unless another allows it by
// name. It stays also if the first is down.
func TestWhatDoesNotTravel(t *testing.T) {
	const never = "-"
	for _, row := range []struct {
		url, header string
		host        string
		trailer     string
		needs       string // the name to allow, if it is not that of the header; "-": none
	}{
		{header: "Authorization: Bearer x"},
		{header: "authorization: Bearer x"},
		{header: "Cookie: a=b"},
		{header: "Proxy-Authorization: Basic eA=="},
		{header: "X-Api-Key: x"},
		{header: "Dd-Application-Key: x"},
		{header: "X-Custom_Token: x"},
		{header: "X-Anything: bearer x"},
		{header: "Referer: https://c.test/?sig=x"},
		{header: "X-Ms-Copy-Source: https://user:x@c.test/"},
		{header: "DPoP: x"},
		{header: "dpop: x"},
		{header: "X-Passphrase: x"},
		{header: "X-Api-Key-V2: x"},
		{header: "apiKeyV2: x"},
		{header: "X-Anything: eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.x_-y"},
		{header: "X-Anything: v=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.x_-y; n=1"},
		{header: `X-Anything: Digest username="x"`},
		{header: "X-Anything: NTLM TlRMTVNTUAAB"},
		{header: "X-Anything: negotiate YII"},
		{header: "X-Anything:  Token\tx"},
		{header: "X-Anything: AWS4-HMAC-SHA256 Credential=x"},
		{trailer: "X-Signature", needs: "X-Signature"},

		{url: "http://user:x@a.test/", needs: "Authorization"},
		{url: "http://a.test/?X-Amz-Signature=x", needs: "X-Amz-Signature"},
		{url: "http://a.test/?a=b&%73ig=x", needs: "sig"},
		{url: "http://a.test/?api_key=x", needs: "api_key"},
		{url: "http://a.test/?access_token=x", needs: "access_token"},
		{url: "http://a.test/?userCode=x", needs: "usercode"},
		{url: "http://a.test/?connect.sid=x", needs: "connect.sid"},
		{url: "http://a.test/?PHPSESSID=x", needs: "PHPSESSID"},
		{url: "http://a.test/?hdnea=x", needs: "hdnea"},
		{url: "http://a.test/?pass=x", needs: "pass"},
		{url: "http://a.test/?a=b&to=https%3A%2F%2Fc.test%2F%3Fsig%3Dx", needs: "to"},
		{url: "http://a.test/?a=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.x_-y", needs: "a"},
		{url: "http://a.test/?%zz=x", needs: never},
		{url: "http://a.test/?a=b;sig=x", needs: never},

		{header: `If-None-Match: "v1"`},
		{header: `IF-NONE-MATCH: "v1"`},
		{header: "If-Modified-Since: x"},
		{header: "Range: bytes=5-"},
		{header: "range: bytes=5-"},
		{header: "Last-Event-ID: 5"},
		{header: "x-goog-if-generation-match: 5"},
		{header: "X-Ms-Range: bytes=5-"},
		{header: `If: (["v1"])`},
		{header: "Upgrade: websocket"},
		{header: "upgrade: websocket"},
		{header: "host: other.test"},
		{host: "other.test", needs: "Host"},

		{url: "http://a.test/../x", needs: never},
		{url: "http://a.test/..;/x", needs: never},
		{url: "http://a.test/..%5c..%5cetc", needs: never},
		{url: "http://a.test/x/..%5cetc", needs: never},
		{url: "http://a.test/%2e%2E/etc", needs: never},
		{url: "http://a.test/%252e%252e/etc", needs: never},
		{url: "http://a.test/.%2509./etc", needs: never},
	} {
		name, value, _ := strings.Cut(row.header, ": ")
		for _, allowed := range []string{"", "X-Unrelated", cmp.Or(row.needs, name)} {
			synctest.Test(t, func(t *testing.T) {
				r := newRegions()
				r.set("a.test", refuses)
				tr := mustNew(t, failover.Endpoint{URL: "http://a.test", Transport: r},
					failover.Endpoint{URL: "http://b.test", Transport: r},
					failover.Endpoint{URL: "http://c.test", Transport: r, Allow: []string{allowed, strings.ToUpper(allowed)}})
				for range 7 { // five of them take the first down
					req := newRequest(t, http.MethodGet, cmp.Or(row.url, "http://a.test/"), nil)
					if row.header != "" {
						req.Header[name] = []string{value} // as the row spells it
					}
					if row.trailer != "" {
						req.Trailer = http.Header{row.trailer: nil}
					}
					if row.host != "" {
						req.Host = row.host
					}
					_, _ = do(tr, req)
				}
				assert.Empty(t, r.at("b.test", 0), "%+v", row)
				travels := allowed == cmp.Or(row.needs, name) && row.needs != never
				all := r.at("c.test", 0)
				assert.Equal(t, travels, len(all) == 7, "%+v with %q", row, allowed)
				if travels && name != "" {
					assert.Equal(t, []string{value}, all[0].req.Header[name], "nothing is stripped")
				}
				if travels && row.host != "" {
					assert.Equal(t, row.host, all[0].req.Host)
				}
			})
		}
	}
	for _, free := range []string{
		"Accept: x", "Content-Type: x", "Idempotency-Key: x", "X-Amz-Date: x", "User-Agent: Token/1 (like Basic)", "Referer: https://c.test/x?page=1",
		"Traceparent: x", "Monkeys: x", "Accept-Encoding: gzip", "X-Amz-Content-Sha256: x", "Baggage: processId=1,addressId=2", "X-Opaque-Id: x",
		"Accept: text/plain; q=0.5, eyJ/x", "X-Note: bytes ...", "Accept-Ranges: none",
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRegions()
			r.set("a.test", refuses)
			req := newRequest(t, http.MethodGet, "http://a.test/?page=2&sort=x&prefix=y&classId=3&decode=1&continue=eyJhIjoxfQ&v=..x&to=a..b", nil)
			name, value, _ := strings.Cut(free, ": ")
			req.Header.Set(name, value)
			assert.Equal(t, "200 b.test", ask(r.transport(t, "a.test", "b.test"), req), free)
		})
	}
}

// A CONNECT has no path, and its response is a connection.
func TestConnectStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegions()
		r.set("a.test", refuses)
		_, err := do(r.transport(t, "a.test", "b.test"), newRequest(t, http.MethodConnect, "http://a.test", nil))
		assert.Error(t, err)
		assert.Empty(t, r.at("b.test", 0))
	})
}

// The server may act on a request and reset the connection, and be down when the caller sends the request
// again with its key. An endpoint that doesn't know the key would act as well.
func TestIdempotencyKey(t *testing.T) {
	for _, row := range []struct {
		method string
		key    string
		shared bool
		twice  bool // the caller allows to repeat it
		want   bool // to go elsewhere
	}{
		{method: http.MethodPost, key: "Idempotency-Key"},
		{method: http.MethodPost, key: "idempotency-key"},
		{method: http.MethodPost, key: "X-Idempotency-Key"},
		{method: http.MethodPost, key: "Idempotency-Key", shared: true, want: true},
		{method: http.MethodPost, key: "Idempotency-Key", twice: true, want: true},
		{method: http.MethodPost, key: "X-Other", shared: true},
		{method: http.MethodPut, key: "Idempotency-Key", want: true},
	} {
		for _, ours := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := newRegions()
				var base http.RoundTripper = r
				if ours {
					base = transport.MustNew(transport.Config{Base: r, Rule: policy.Rule{Attempts: 1}})
				}
				b := failover.Endpoint{URL: "http://b.test", Transport: base}
				if row.shared {
					b.Allow = []string{"idempotency-key"}
				}
				tr := mustNew(t, failover.Endpoint{URL: "http://a.test", Transport: base}, b)
				r.set("a.test", resets) // it acts before that
				for i := range 8 {
					req := newRequest(t, row.method, "http://a.test/", nil)
					req.Header[row.key] = []string{"1"}
					if row.twice {
						req = req.WithContext(transport.Repeatable(req.Context()))
					}
					_, _ = do(tr, req)
					if row.key == "X-Other" && i > 3 {
						break // a refusal of it would be no harm
					}
					if row.key != "X-Other" {
						r.set("a.test", refuses)
					}
				}
				assert.Equal(t, row.want, len(r.at("b.test", 0)) > 0, "%+v, ours: %v", row, ours)
			})
		}
	}
}

// If one of the endpoints does not know the keys of the others, none counts.
func TestKeysAreSharedByAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegions()
		r.set("a.test", status(503))
		r.set("b.test", status(503))
		tr := mustNew(t, failover.Endpoint{URL: "http://a.test", Transport: r},
			failover.Endpoint{URL: "http://b.test", Transport: r, Allow: []string{"Idempotency-Key"}}, failover.Endpoint{URL: "http://c.test", Transport: r})
		req := newRequest(t, http.MethodPost, "http://a.test/", nil)
		req.Header.Set("Idempotency-Key", "1")
		assert.Equal(t, "503 a.test", ask(tr, req))
		assert.Empty(t, r.at("b.test", 0))
	})
}
