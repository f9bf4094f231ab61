// Everything that a fleet in memory knows of a host.

package ledger

import (
	"math"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// The bounds of a Record.
const (
	MaxScopes = 256 // holds of a host, and as many quotas
	maxUsers  = 128 // members that are counted for a quota
	maxUnits  = 8   // rates of a host
	MaxHost   = 512 // bytes of the name of a host
	MaxText   = 64  // bytes of a unit
	MaxWait   = 30 * 24 * time.Hour
	// MaxAmount is the largest amount. All smaller whole numbers are exact.
	MaxAmount = 1 << 53

	// A hold that ends only HoldSlack later than all members know is not told again, and
	// news of a quota is told once in a Gap.
	HoldSlack = 100 * time.Millisecond
	Gap       = 100 * time.Millisecond

	// Members are counted as users of a quota in its window, but within these bounds.
	MinPeriod = time.Second
	MaxPeriod = time.Minute
)

// A Record is everything that a fleet knows of a host. The zero Record is ready.
type Record struct {
	// Told is when a member told something last, or asked for tokens.
	Told instant.Instant
	// Dropped counts the holds and quotas that made room for others. The backend takes it.
	Dropped uint64

	outage Host
	holds  []hold
	quotas []quota
	rates  []rate
}

// A hold is a wait that a server asked for.
type hold struct {
	scope  uint64
	status int
	told   instant.Instant // the last time that it was news
	by     int64           // the member that told it
	until  instant.Instant
}

// A quota is a quota that a server named.
type quota struct {
	scope         uint64
	unit          string
	told          instant.Instant // the last time that it was news
	by            int64           // the member that told it
	amount, limit float64
	until         instant.Instant
	users         []user
}

// A user is a member that uses a quota.
type user struct {
	member int64
	until  instant.Instant // it counts until then
	known  int             // the number of users as it was told
}

// A rate has the tokens of a unit.
type rate struct {
	unit   string
	tokens Tokens
}

// Tell takes a message of a member, of so many members. It returns the answers, and the news
// for all other members.
func (r *Record) Tell(now instant.Instant, member int64, members int, m fleetmsg.Message) (answers, news []fleetmsg.Message) {
	if !Valid(m) {
		return nil, nil
	}
	if m.Kind == fleetmsg.Meet {
		return r.meet(now, member, m.Host), nil
	}
	r.Told = now
	switch m.Kind {
	case fleetmsg.Hold:
		return nil, r.hold(now, member, m)
	case fleetmsg.Quota:
		return r.quota(now, member, m)
	case fleetmsg.Failing:
		return r.failing(now, member, members, m)
	case fleetmsg.Working:
		if r.outage.Working(now) {
			news = []fleetmsg.Message{{Kind: fleetmsg.Up, Host: m.Host, Wait: ReturnTime(members)}}
		}
	case fleetmsg.AskTokens:
		return r.take(now, m), nil
	case fleetmsg.Unused:
		if i := r.rateOf(m); i >= 0 {
			r.rates[i].tokens.GiveBack(now, m.PerSecond, whole(m.Burst), whole(m.Amount))
		}
	}
	return answers, news
}

// Valid reports whether a message to the fleet makes sense. Other messages count as not
// sent.
func Valid(m fleetmsg.Message) bool {
	if m.Host == "" || len(m.Host) > MaxHost || len(m.Unit) > MaxText {
		return false
	}
	isWait := within(m.Wait, 0, MaxWait)
	switch m.Kind {
	case fleetmsg.Hold:
		return m.Wait > 0
	case fleetmsg.Quota:
		return m.Amount >= 0 && m.Limit >= 0 && m.Wait > 0
	case fleetmsg.Failing:
		return m.Failures >= 1 && isWait
	case fleetmsg.AskTokens, fleetmsg.Unused:
		return isWait && within(m.Spent, 0, MaxAmount) && within(m.PerSecond, math.SmallestNonzeroFloat64, math.MaxFloat64) &&
			within(m.Burst, 1, MaxAmount) && within(m.Amount, 1, MaxAmount)
	case fleetmsg.Meet, fleetmsg.Working:
		return true
	}
	return false
}

// within reports whether x is a number from low to high.
func within[N time.Duration | float64](x, low, high N) bool { return low <= x && x <= high }

// meet returns the news for a member that uses the host for the first time. It does not hear
// its own news.
func (r *Record) meet(now instant.Instant, member int64, host string) (all []fleetmsg.Message) {
	for i := range r.holds {
		if h := &r.holds[i]; h.by != member && h.until > now {
			all = append(all, h.message(now, host))
		}
	}
	for i := range r.quotas {
		if q := &r.quotas[i]; q.by != member && q.until > now {
			all = append(all, q.message(now, host))
		}
	}
	if r.outage.IsDown() {
		all = append(all, r.down(now, host))
	}
	return all
}

// failing notes a member's failures. If the host is down from now on, all members hear of it, the
// member itself as well. If it was down before, only the member does.
func (r *Record) failing(now instant.Instant, member int64, members int, m fleetmsg.Message) (answers, news []fleetmsg.Message) {
	wasDown := r.outage.IsDown()
	down, _ := r.outage.Failing(now, member, m.Failures, now.Add(-m.Wait), members)
	if wasDown || down {
		answers = []fleetmsg.Message{r.down(now, m.Host)}
	}
	if down {
		news = answers
	}
	return answers, news
}

func (r *Record) down(now instant.Instant, host string) fleetmsg.Message {
	return fleetmsg.Message{Kind: fleetmsg.Down, Host: host, Wait: max(0, now.Sub(r.outage.since))}
}

func (h *hold) message(now instant.Instant, host string) fleetmsg.Message {
	return fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Scope: h.scope, Status: h.status, Wait: h.until.Sub(now)}
}

func (q *quota) message(now instant.Instant, host string) fleetmsg.Message {
	return fleetmsg.Message{Kind: fleetmsg.Quota, Host: host, Scope: q.scope, Unit: q.unit, Amount: q.amount, Limit: q.limit,
		Wait: q.until.Sub(now), Members: q.count(now)}
}

// HoldStatus returns 503 for 503, else 429.
func HoldStatus(status int) int {
	if status == 503 {
		return 503
	}
	return 429
}

// hold notes a hold, and returns the news. A hold only becomes longer.
func (r *Record) hold(now instant.Instant, member int64, m fleetmsg.Message) []fleetmsg.Message {
	i := slices.IndexFunc(r.holds, func(h hold) bool { return h.scope == m.Scope && h.status == HoldStatus(m.Status) })
	until := now.Add(min(m.Wait, MaxWait))
	if i < 0 {
		r.holds = room(r, r.holds, func(h *hold) (told, until instant.Instant) { return h.told, h.until }, now)
		r.holds = append(r.holds, hold{scope: m.Scope, status: HoldStatus(m.Status)})
		i = len(r.holds) - 1
	}
	h := &r.holds[i]
	if h.until > now && until.Sub(h.until) <= HoldSlack {
		return nil
	}
	h.told, h.by, h.until = now, member, max(h.until, until)
	return []fleetmsg.Message{h.message(now, m.Host)}
}

// room makes room for another element in a list that is full. All elements that are over go. If
// there are none, the element that was told longest ago goes. about returns when an element was
// told, and until when it counts.
func room[E any](r *Record, list []E, about func(*E) (told, until instant.Instant), now instant.Instant) []E {
	if len(list) < MaxScopes {
		return list
	}
	list = slices.DeleteFunc(list, func(e E) bool {
		_, until := about(&e)
		return until <= now
	})
	if len(list) < MaxScopes {
		return list
	}
	oldest := 0
	for i := range list {
		a, _ := about(&list[i])
		if b, _ := about(&list[oldest]); a < b {
			oldest = i
		}
	}
	r.Dropped++
	return slices.Delete(list, oldest, oldest+1)
}

// quota notes a quota and its user. The answer says how many use it, if the user does not
// know.
func (r *Record) quota(now instant.Instant, member int64, m fleetmsg.Message) (answers, news []fleetmsg.Message) {
	i := slices.IndexFunc(r.quotas, func(q quota) bool { return q.scope == m.Scope && q.unit == m.Unit })
	isNew := i < 0
	if isNew {
		r.quotas = room(r, r.quotas, func(q *quota) (told, until instant.Instant) { return q.told, q.until }, now)
		r.quotas = append(r.quotas, quota{scope: m.Scope, unit: m.Unit})
		i = len(r.quotas) - 1
	}
	q := &r.quotas[i]
	wait := min(m.Wait, MaxWait)
	q.amount, q.limit, q.until = min(m.Amount, MaxAmount), min(m.Limit, MaxAmount), now.Add(wait)
	u := q.use(now, member, now.Add(min(max(MinPeriod, wait), MaxPeriod)))
	if u != nil && u.known != q.count(now) {
		u.known = q.count(now)
		answers = []fleetmsg.Message{q.message(now, m.Host)}
	}
	if isNew || now.Sub(q.told) >= Gap {
		q.told, q.by = now, member
		news = []fleetmsg.Message{q.message(now, m.Host)}
	}
	return answers, news
}

// use counts a member as a user of a quota until a time. It returns nil if there are too many.
func (q *quota) use(now instant.Instant, member int64, until instant.Instant) *user {
	q.users = slices.DeleteFunc(q.users, func(u user) bool { return u.until <= now })
	i := slices.IndexFunc(q.users, func(u user) bool { return u.member == member })
	if i < 0 {
		if len(q.users) >= maxUsers {
			return nil
		}
		q.users = append(q.users, user{member: member, known: 1})
		i = len(q.users) - 1
	}
	q.users[i].until = until
	return &q.users[i]
}

// count returns how many members use a quota.
func (q *quota) count(now instant.Instant) (n int) {
	for _, u := range q.users {
		if u.until > now {
			n++
		}
	}
	return max(1, n)
}

// rateOf returns the index of the rate that a message is about, or -1.
func (r *Record) rateOf(m fleetmsg.Message) int {
	return slices.IndexFunc(r.rates, func(x rate) bool { return x.unit == m.Unit })
}

// take answers a question for tokens. There is no answer if the host has too many units.
func (r *Record) take(now instant.Instant, m fleetmsg.Message) []fleetmsg.Message {
	i := r.rateOf(m)
	if i < 0 {
		if len(r.rates) >= maxUnits {
			return nil
		}
		r.rates = append(r.rates, rate{unit: m.Unit})
		i = len(r.rates) - 1
	}
	bucket, burst := &r.rates[i].tokens, whole(m.Burst)
	bucket.Repay(now, m.PerSecond, burst, Absence{Silence: m.Wait, Spent: m.Spent})
	n, first, every, again := bucket.Take(now, m.PerSecond, burst, whole(m.Amount))
	a := fleetmsg.Message{Kind: fleetmsg.Tokens, Host: m.Host, Unit: m.Unit, Amount: float64(n), Every: every, Wait: again}
	if n > 0 {
		a.First = first.Sub(now)
	}
	return []fleetmsg.Message{a}
}

// whole returns how many whole tokens there are, as many as an int may have.
func whole(amount float64) int { return int(min(amount, math.MaxInt32)) }
