package fleet

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/ledger"
)

// A message is news that Redis sends to all members. The scripts write it, as a text with
// these fields. The first is the version. The time is that of sending, by the clock of
// Redis.
//
//	1 h time member scope status wait host                        a hold
//	1 q time member scope remaining limit reset members host      a quota
//	1 d time member since host                                    a host is down
//	1 u time member host                                          a host works again
//	1 s time member                                               a member came or went
//
// Times and durations are in microseconds. Members and scopes are hexadecimal. The scope of a
// quota is followed by a colon and the unit, escaped as in a query, unless it counts requests.
type message struct {
	at   int64 // microseconds, by the clock of Redis
	from string

	news fleetmsg.Message // as the Transport hears it
}

// maxSize bounds the members.
const maxSize = 1 << 24

var errMessage = errors.New("malformed message")

// parse reads a message. Anybody who may write to Redis may have sent it, so each field
// is checked.
func parse(text string) (m message, err error) {
	f := fields{rest: text}
	if len(text) > ledger.MaxHost+3*ledger.MaxText+256 || f.next() != "1" {
		return m, errMessage
	}
	kind := f.next()
	m.at = f.number(math.MaxInt64)
	m.from = strconv.FormatUint(f.hex(), 16)
	switch kind {
	case "h":
		m.news = f.hold()
		m.news.Host = f.host()
		if s := m.news.Status; s != 429 && s != 503 {
			return m, errMessage
		}
	case "q":
		m.news = f.quota()
		m.news.Host = f.host()
	case "d":
		m.news = fleetmsg.Message{Kind: fleetmsg.Down, Wait: f.duration(), Host: f.host()}
	case "u":
		m.news = fleetmsg.Message{Kind: fleetmsg.Up, Host: f.host()}
	case "s":
		m.news = fleetmsg.Message{Kind: fleetmsg.Members}
	default:
		return m, fmt.Errorf("%w: unknown kind %q", errMessage, kind)
	}
	if !f.valid() {
		return m, errMessage
	}
	return m, nil
}

// fields reads the fields of a message or of a reply one after the other.
type fields struct {
	rest string
	bad  bool
}

// fieldsOf returns the fields of a reply.
func fieldsOf(reply []any) *fields {
	texts := make([]string, len(reply))
	for i := range reply {
		texts[i], _ = reply[i].(string) // anything else is malformed, and so is an empty text
	}
	return &fields{rest: strings.Join(texts, " ")}
}

// valid reports whether all fields were read, and none was malformed.
func (f *fields) valid() bool { return !f.bad && f.rest == "" }

func (f *fields) hold() fleetmsg.Message {
	return fleetmsg.Message{Kind: fleetmsg.Hold, Scope: f.hex(), Status: int(f.number(999)), Wait: f.duration()}
}

func (f *fields) quota() fleetmsg.Message {
	scope, unit := f.scope()
	return fleetmsg.Message{Kind: fleetmsg.Quota, Scope: scope, Unit: unit, Amount: float64(f.number(math.MaxInt64)),
		Limit: float64(f.number(math.MaxInt64)), Wait: f.duration(), Members: int(f.number(maxSize))}
}

func (f *fields) next() string {
	s, rest, _ := strings.Cut(f.rest, " ")
	f.rest = rest
	return s
}

func (f *fields) number(most int64) int64 {
	n, err := strconv.ParseUint(f.next(), 10, 63)
	if err != nil || int64(n) > most {
		f.bad = true
		return 0
	}
	return int64(n)
}

func (f *fields) hex() uint64 {
	n, err := strconv.ParseUint(f.next(), 16, 64)
	f.bad = f.bad || err != nil
	return n
}

// scopeText returns the scope of a quota and its unit as a text.
func scopeText(scope uint64, unit string) string {
	if unit == "" {
		return hex(scope)
	}
	return hex(scope) + ":" + url.QueryEscape(unit)
}

// scope reads what scopeText returned.
func (f *fields) scope() (scope uint64, unit string) {
	text, unit, named := strings.Cut(f.next(), ":")
	scope, err := strconv.ParseUint(text, 16, 64)
	f.bad = f.bad || err != nil
	if unit, err = url.QueryUnescape(unit); err != nil || named && unit == "" || len(unit) > ledger.MaxText {
		f.bad = true
	}
	return scope, unit
}

func (f *fields) duration() time.Duration {
	return time.Duration(f.number(ledger.MaxWait.Microseconds())) * time.Microsecond
}

// host takes the rest of the message.
func (f *fields) host() string {
	s := f.rest
	f.rest = ""
	f.bad = f.bad || !validHost(s)
	return s
}

// validHost reports whether a name can be part of a key and of a message. The names that a
// Transport makes are.
func validHost(s string) bool {
	return s != "" && len(s) <= ledger.MaxHost && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f })
}
