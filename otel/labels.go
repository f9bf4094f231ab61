package aplombotel

import (
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/aplomb-go/aplomb/transport"
)

// The keys of the semantic conventions, and our own.
const (
	methodKey   = attribute.Key("http.request.method")
	originalKey = attribute.Key("http.request.method_original")
	resendKey   = attribute.Key("http.request.resend_count")
	statusKey   = attribute.Key("http.response.status_code")
	sizeKey     = attribute.Key("http.response.body.size")
	urlKey      = attribute.Key("url.full")
	addressKey  = attribute.Key("server.address")
	portKey     = attribute.Key("server.port")
	errorKey    = attribute.Key("error.type")

	attemptsKey = attribute.Key("aplomb.attempts")
	kindKey     = attribute.Key("aplomb.attempt.kind")
	numberKey   = attribute.Key("aplomb.attempt.number")
	outrunKey   = attribute.Key("aplomb.attempt.outrun")
	offsetKey   = attribute.Key("aplomb.offset")
	queueKey    = attribute.Key("aplomb.queue")
	queuedKey   = attribute.Key("aplomb.queued")
	reasonKey   = attribute.Key("aplomb.reason")
	resumesKey  = attribute.Key("aplomb.resumes")
	waitKey     = attribute.Key("aplomb.wait")
)

// about returns the attributes of a request, with room for more.
func about(req *http.Request) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 5)
	known, method := methodOf(req)
	attrs = append(attrs, methodKey.String(known))
	if known != method {
		attrs = append(attrs, originalKey.String(method))
	}
	return append(server(attrs, req.URL), urlKey.String(transport.SafeURL(req.URL)))
}

// server appends the address and the port of a URL's host.
func server(attrs []attribute.KeyValue, u *url.URL) []attribute.KeyValue {
	attrs = append(attrs, addressKey.String(u.Hostname()))
	port := 0
	if text := u.Port(); text != "" {
		port, _ = strconv.Atoi(text)
	}
	switch {
	case port != 0:
	case u.Scheme == "https":
		port = 443
	case u.Scheme == "http":
		port = 80
	default:
		return attrs
	}
	return append(attrs, portKey.Int(port))
}

// methodOf returns the method of a request, and the same as a known method. An unknown
// method is "_OTHER", because servers and callers can invent any number of them.
func methodOf(req *http.Request) (known, method string) {
	switch method = req.Method; method {
	case "":
		return http.MethodGet, http.MethodGet
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace, "QUERY":
		return method, method
	}
	return "_OTHER", method
}

// requestName returns the name of the span of a request.
func requestName(req *http.Request) string {
	if name := name(req); name != http.MethodGet {
		return "aplomb " + name
	}
	return "aplomb GET"
}

// name returns the name of the span of an attempt.
func name(req *http.Request) string {
	if known, method := methodOf(req); known == method {
		return method
	}
	return "HTTP"
}

// labels are the attributes of a measurement that do not come from the request. The zero
// value has none, and leaves the method out as well.
type labels struct {
	status     int
	failure    string // the error type
	key        attribute.Key
	value      string
	serverOnly bool
}

// A set has the attributes of a measurement as options. They are made once, because to
// sort them costs more than to count.
type set struct {
	add     []metric.AddOption
	record  []metric.RecordOption
	observe []metric.ObserveOption
}

// maxSets bounds the sets that are kept. Further sets are made each time.
const maxSets = 4096

// sets keeps the sets of a Telemetry.
type sets struct {
	mu    sync.RWMutex // guards known
	known map[setKey]*set
}

type setKey struct {
	scheme, host, method string
	labels
}

// of returns the set for a request.
func (s *sets) of(req *http.Request, l labels) *set {
	method, _ := methodOf(req)
	key := setKey{req.URL.Scheme, req.URL.Host, method, l}
	s.mu.RLock()
	known := s.known[key] // a sync.Map would allocate for the key
	s.mu.RUnlock()
	if known != nil {
		return known
	}
	made := newSet(req.URL, method, l)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[setKey]*set{}
	}
	if len(s.known) < maxSets {
		s.known[key] = made
	}
	return made
}

func newSet(u *url.URL, method string, l labels) *set {
	attrs := server(make([]attribute.KeyValue, 0, 6), u)
	if !l.serverOnly {
		attrs = append(attrs, methodKey.String(method))
	}
	if l.status != 0 {
		attrs = append(attrs, statusKey.Int(l.status))
	}
	if l.failure != "" {
		attrs = append(attrs, errorKey.String(l.failure))
	}
	if l.key != "" {
		attrs = append(attrs, l.key.String(l.value))
	}
	with := metric.WithAttributeSet(attribute.NewSet(attrs...))
	return &set{add: []metric.AddOption{with}, record: []metric.RecordOption{with}, observe: []metric.ObserveOption{with}}
}
