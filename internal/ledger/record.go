// Everything that a fleet knows of a host, for a backend that keeps it in one piece.

package ledger

import (
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// The bounds of a Record.
const (
	MaxScopes = 256 // holds of a host, and as many quotas
	MaxUsers  = 128 // members that are counted for a quota
	maxUnits  = 8   // rates of a host
	MaxHost   = 512 // bytes of the name of a host
	MaxText   = 64  // bytes of a unit
	MaxWait   = 30 * 24 * time.Hour
	// MaxAmount is the largest amount. All smaller whole numbers are exact.
	MaxAmount = 1 << 53

	// A hold that ends only HoldSlack later than all members know is not told again, and
	// news of a quota, or that holds are over, is told once in a Gap.
	HoldSlack = 100 * time.Millisecond
	Gap       = 100 * time.Millisecond

	// Members are counted as users of a quota in its window, but within these bounds.
	MinPeriod = time.Second
	MaxPeriod = time.Minute
)

// A Record is everything that a fleet knows of a host. The zero Record is ready. It can be
// kept as JSON. Its news are in the order of their marks. A mark is the time of the news, or
// later.
type Record struct {
	Host   string
	At     instant.Instant // of the last change
	Gate   Host
	Outage Mark // the last time that the host went down
	Return Mark // the last time that it came back
	Ended  instant.Instant
	Holds  []Hold
	Quotas []Quota
	Rates  []Rate
	// Dropped counts the holds and quotas that made room for later ones. The backend takes it.
	Dropped uint64          `json:"-"`
	last    instant.Instant // mark
}

// A Mark says when something was told to all members, and which member need not hear it.
type Mark struct {
	Told instant.Instant
	By   int64
}

// A Hold is a wait that a server asked for.
type Hold struct {
	Mark
	Scope  uint64
	Status int
	Since  instant.Instant // when it was told first
	Until  instant.Instant
	Over   bool // before its time
	Again  bool // a probe was refused
}

// A Quota is a quota that a server named.
type Quota struct {
	Mark
	Scope         uint64
	Unit          string
	Amount, Limit float64
	Until         instant.Instant
	Users         Roll
}

// A User is a member that uses a quota.
type User struct {
	Member int64
	Until  instant.Instant // it counts until then
	Known  int             // the number of users as it was told
}

// A Rate has the tokens of a unit.
type Rate struct {
	Unit   string
	Tokens Tokens
	Full   instant.Instant // when the bucket is full
}

// Tell takes what a member says or asks, of so many members. It returns the answers, and
// whether the Record has changed. What the other members have to hear is for News.
func (r *Record) Tell(now instant.Instant, member int64, members int, m fleetmsg.Message) (answers []fleetmsg.Message, changed bool) {
	if !Valid(m) {
		return nil, false
	}
	r.Host = m.Host
	switch m.Kind {
	case fleetmsg.Meet:
		// A newcomer need not hear that something is over.
		return slices.DeleteFunc(r.News(now, member, members, -1), func(n fleetmsg.Message) bool {
			return n.Kind == fleetmsg.Up || n.Kind == fleetmsg.Hold && n.Wait == 0
		}), false
	case fleetmsg.Hold:
		changed = r.hold(now, member, m)
	case fleetmsg.Quota:
		answers, changed = r.quota(now, member, m)
	case fleetmsg.Failing:
		if r.Gate.IsDown(now) {
			return []fleetmsg.Message{r.down(now)}, false
		}
		if down, _ := r.Gate.Failing(now, member, m.Failures, now.Add(-m.Wait), members); down {
			r.Outage = Mark{r.mark(now), 0}
		}
		changed = true
	case fleetmsg.Working:
		if r.Gate.Working(now, member) {
			r.Return = Mark{r.mark(now), member}
		}
		changed = true
	case fleetmsg.AskProbe:
		granted, wait := r.Gate.Probe(now, member, members)
		answers = []fleetmsg.Message{{Kind: fleetmsg.Probe, Host: r.Host, Granted: granted, Wait: wait}}
		changed = true
	case fleetmsg.ProbeFailed:
		r.Gate.ProbeFailed(now, member)
		changed = true
	case fleetmsg.AskTokens:
		answers, changed = r.tokens(now, m)
	case fleetmsg.Unused:
		if i := r.rateOf(m); i >= 0 {
			r.Rates[i].Tokens.GiveBack(now, m.PerSecond, whole(m.Burst), whole(m.Amount))
			changed = true
		}
	}
	if changed {
		r.At = max(r.At, now)
	}
	return answers, changed
}

// Valid reports whether a message to the fleet makes sense. Other messages count as not
// sent.
func Valid(m fleetmsg.Message) bool {
	if m.Host == "" || len(m.Host) > MaxHost || len(m.Unit) > MaxText {
		return false
	}
	switch m.Kind {
	case fleetmsg.Hold:
		return m.Wait >= 0
	case fleetmsg.Quota:
		return m.Amount >= 0 && m.Limit >= 0 && m.Wait > 0
	case fleetmsg.Failing:
		return m.Failures >= 1 && m.Wait >= 0 && m.Wait <= MaxWait
	case fleetmsg.AskTokens, fleetmsg.Unused:
		return m.Wait >= 0 && m.Wait <= MaxWait && m.Spent >= 0 && m.Spent <= MaxAmount && m.PerSecond > 0 && !math.IsInf(m.PerSecond, 0) && m.Burst >= 1 && m.Burst <= MaxAmount && m.Amount >= 1 && m.Amount <= MaxAmount
	case fleetmsg.Meet, fleetmsg.Working, fleetmsg.AskProbe, fleetmsg.ProbeFailed:
		return true
	}
	return false
}

// Last returns the mark of the last news. A member that has heard everything until now has
// heard all news up to it.
func (r *Record) Last() instant.Instant {
	last := max(r.Outage.Told, r.Return.Told)
	for _, h := range r.Holds {
		last = max(last, h.Told)
	}
	for _, q := range r.Quotas {
		last = max(last, q.Told)
	}
	return last
}

// News returns what a member has not heard yet that has heard all news up to a mark.
func (r *Record) News(now instant.Instant, member int64, members int, heard instant.Instant) (news []fleetmsg.Message) {
	fresh := func(m Mark) bool { return m.Told > heard && m.By != member }
	for _, h := range r.Holds {
		if fresh(h.Mark) && (h.Over || h.Until > now) {
			news = append(news, h.message(now, r.Host))
		}
	}
	for _, q := range r.Quotas {
		if fresh(q.Mark) && q.Until > now {
			news = append(news, q.message(now, r.Host))
		}
	}
	down := r.Gate.IsDown(now)
	if fresh(r.Outage) && down {
		news = append(news, r.down(now))
	}
	if fresh(r.Return) && !down {
		news = append(news, fleetmsg.Message{Kind: fleetmsg.Up, Host: r.Host, Wait: ReturnTime(members)})
	}
	return news
}

// mark returns a mark that is later than all others.
func (r *Record) mark(now instant.Instant) instant.Instant {
	r.last = max(now, r.Last()+1, r.last+1)
	return r.last
}

func (r *Record) down(now instant.Instant) fleetmsg.Message {
	return fleetmsg.Message{Kind: fleetmsg.Down, Host: r.Host, Wait: max(0, now.Sub(r.Gate.since))}
}

func (h *Hold) message(now instant.Instant, host string) fleetmsg.Message {
	m := fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Scope: h.Scope, Status: h.Status, Again: h.Again}
	if !h.Over {
		m.Wait = h.Until.Sub(now)
	}
	return m
}

func (q *Quota) message(now instant.Instant, host string) fleetmsg.Message {
	return fleetmsg.Message{Kind: fleetmsg.Quota, Host: host, Scope: q.Scope, Unit: q.Unit, Amount: q.Amount, Limit: q.Limit,
		Wait: q.Until.Sub(now), Members: q.users(now)}
}

// WouldHold reports whether a hold would be news.
func (r *Record) WouldHold(now instant.Instant, m fleetmsg.Message) bool {
	if i := r.holdOf(m); i >= 0 && r.Holds[i].holds(now) {
		return m.Again || m.Wait == 0 || now.Add(min(m.Wait, MaxWait)).Sub(r.Holds[i].Until) > HoldSlack
	}
	return m.Wait > 0
}

// holdOf returns the index of the hold that a message is about, or -1.
func (r *Record) holdOf(m fleetmsg.Message) int {
	return slices.IndexFunc(r.Holds, func(h Hold) bool { return h.Scope == m.Scope && h.Status == HoldStatus(m.Status) })
}

func (h *Hold) holds(now instant.Instant) bool { return !h.Over && h.Until > now }

// HoldStatus returns 503 for 503, else 429.
func HoldStatus(status int) int {
	if status == 503 {
		return 503
	}
	return 429
}

// ToldQuota reports whether a member told of a quota less than a Gap ago.
func (r *Record) ToldQuota(now instant.Instant, member int64, scope uint64, unit string) bool {
	for i := range r.Quotas {
		if q := &r.Quotas[i]; q.Scope == scope && q.Unit == unit {
			return q.By == member && now.Sub(q.Told) < Gap
		}
	}
	return false
}

// hold notes a hold, and reports whether it is news. A hold only becomes longer, or is over.
func (r *Record) hold(now instant.Instant, member int64, m fleetmsg.Message) (news bool) {
	if !r.WouldHold(now, m) {
		return false
	}
	i := r.holdOf(m)
	if m.Wait == 0 {
		// A server that refuses at random makes many holds that end early.
		if r.Ended > 0 && now.Sub(r.Ended) < Gap {
			return false
		}
		r.Ended = now
		r.Holds[i].Mark, r.Holds[i].Over = Mark{r.mark(now), member}, true
		return true
	}
	if i < 0 {
		r.Holds = room(r, r.Holds, func(h *Hold) (Mark, bool) { return h.Mark, h.Until > now })
		r.Holds = append(r.Holds, Hold{Scope: m.Scope, Status: HoldStatus(m.Status)})
		i = len(r.Holds) - 1
	}
	h := &r.Holds[i]
	if !h.holds(now) {
		h.Since, h.Until, h.Over = now, 0, false
	}
	h.Mark, h.Until, h.Again = Mark{r.mark(now), member}, max(h.Until, now.Add(min(m.Wait, MaxWait))), m.Again
	return true
}

// room makes room for one more in a list that is full. All elements that are over go. If there
// are none, the one that was told longest ago goes. about returns the mark of an element, and
// whether it still counts.
func room[E any](r *Record, list []E, about func(*E) (Mark, bool)) []E {
	if len(list) < MaxScopes {
		return list
	}
	list = slices.DeleteFunc(list, func(e E) bool {
		_, counts := about(&e)
		return !counts
	})
	for len(list) >= MaxScopes {
		oldest := 0
		for i := range list {
			a, _ := about(&list[i])
			if b, _ := about(&list[oldest]); a.Told < b.Told {
				oldest = i
			}
		}
		list = slices.Delete(list, oldest, oldest+1)
		r.Dropped++
	}
	return list
}

// quota notes a quota and its user. The answer says how many use it, if the user does not
// know.
func (r *Record) quota(now instant.Instant, member int64, m fleetmsg.Message) (answers []fleetmsg.Message, changed bool) {
	i := slices.IndexFunc(r.Quotas, func(q Quota) bool { return q.Scope == m.Scope && q.Unit == m.Unit })
	if i < 0 {
		r.Quotas = room(r, r.Quotas, func(q *Quota) (Mark, bool) { return q.Mark, q.Until > now })
		r.Quotas = append(r.Quotas, Quota{Scope: m.Scope, Unit: m.Unit})
		i = len(r.Quotas) - 1
	}
	q := &r.Quotas[i]
	wait := min(m.Wait, MaxWait)
	q.Amount, q.Limit, q.Until = min(m.Amount, MaxAmount), min(m.Limit, MaxAmount), now.Add(wait)
	q.Users = slices.DeleteFunc(q.Users, func(u User) bool { return u.Until <= now })
	j := slices.IndexFunc(q.Users, func(u User) bool { return u.Member == member })
	if j < 0 && len(q.Users) < MaxUsers {
		q.Users = append(q.Users, User{Member: member, Known: 1})
		j = len(q.Users) - 1
	}
	if q.Told == 0 || now.Sub(q.Told) >= Gap {
		q.Mark = Mark{r.mark(now), member}
	}
	if j < 0 {
		return nil, true
	}
	u := &q.Users[j]
	u.Until = now.Add(min(max(MinPeriod, wait), MaxPeriod))
	if n := q.users(now); n != u.Known {
		u.Known = n
		answers = []fleetmsg.Message{q.message(now, r.Host)}
	}
	return answers, true
}

// users returns how many members use a quota.
func (q *Quota) users(now instant.Instant) int { return max(1, q.Users.Count(now)) }

// rateOf returns the index of the rate that a message is about, or -1.
func (r *Record) rateOf(m fleetmsg.Message) int {
	return slices.IndexFunc(r.Rates, func(x Rate) bool { return x.Unit == m.Unit })
}

func (r *Record) tokens(now instant.Instant, m fleetmsg.Message) ([]fleetmsg.Message, bool) {
	i := r.rateOf(m)
	if i < 0 {
		if len(r.Rates) >= maxUnits {
			return nil, false
		}
		r.Rates = append(r.Rates, Rate{Unit: m.Unit})
		i = len(r.Rates) - 1
	}
	x := &r.Rates[i]
	bucket, burst := &x.Tokens, whole(m.Burst)
	bucket.Repay(now, m.PerSecond, burst, Absence{Silence: m.Wait, Spent: m.Spent})
	n, first, every, again := bucket.Take(now, m.PerSecond, burst, whole(m.Amount))
	x.Full = max(x.Full, min(bucket.next.Add(saved(every, burst)), now.Add(MaxWait)))
	a := fleetmsg.Message{Kind: fleetmsg.Tokens, Host: r.Host, Unit: m.Unit, Amount: float64(n), Every: every, Wait: again}
	if n > 0 {
		a.First = first.Sub(now)
	}
	return []fleetmsg.Message{a}, true
}

// whole returns how many whole tokens there are, as many as an int may have.
func whole(amount float64) int { return int(min(amount, math.MaxInt32)) }

// Expires returns when nothing in the Record counts any more.
func (r *Record) Expires() instant.Instant {
	end := max(r.At, r.Gate.fresh, r.Gate.quiet).Add(DownTime + Objection)
	for _, h := range r.Holds {
		end = max(end, h.Until)
	}
	for _, q := range r.Quotas {
		end = max(end, q.Until)
	}
	for _, x := range r.Rates {
		end = max(end, x.Full)
	}
	return end
}

// Sane reports whether a Record that was read from a file can be believed. It must not be
// from the future by more than slack, and nothing in it may be further ahead than the
// rules allow.
func (r *Record) Sane(now instant.Instant, slack time.Duration) bool {
	most, soon := now.Add(MaxWait+slack), now.Add(slack)
	g := &r.Gate
	ok := max(r.At, r.Outage.Told, r.Return.Told, r.Ended, g.since, g.fresh, g.worked, g.probing) <= soon &&
		g.quiet <= soon.Add(Objection) && max(g.free, g.turn, g.others) <= soon.Add(2*ProbeTime+time.Minute) &&
		len(g.failing) <= MaxReports && len(g.tried) <= MaxTried && len(r.Holds) <= MaxScopes && len(r.Quotas) <= MaxScopes && len(r.Rates) <= maxUnits &&
		min(r.At, r.Outage.Told, r.Return.Told, r.Ended, g.fresh, g.worked, g.probing, g.quiet, g.free, g.turn, g.others) >= 0
	for _, h := range r.Holds {
		ok = ok && h.Told <= soon && h.Since <= soon && h.Until <= most && min(h.Told, h.Until) >= 0
	}
	for _, q := range r.Quotas {
		ok = ok && q.Told <= soon && q.Until <= most && min(q.Told, q.Until) >= 0 && q.Amount >= 0 && q.Limit >= 0 && len(q.Users) <= MaxUsers
	}
	for _, x := range r.Rates {
		b := &x.Tokens
		ok = ok && b.next <= soon.Add(2*MaxEvery) && x.Full <= most && b.debt.Abs() <= MaxWait && max(b.asked, b.resumed) <= soon // Take bounds it further
	}
	return ok
}

// MarshalJSON returns the fields as a list.
func (h *Host) MarshalJSON() ([]byte, error) { return json.Marshal(h.fields()) }

// UnmarshalJSON reads what MarshalJSON returned. A later version may have more fields.
func (h *Host) UnmarshalJSON(b []byte) error {
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	for i, field := range h.fields() {
		if i < len(list) {
			if err := json.Unmarshal(list[i], field); err != nil {
				return err
			}
		}
	}
	return nil
}

// MarshalJSON returns the fields as a list, or null for a full bucket.
func (t *Tokens) MarshalJSON() ([]byte, error) {
	if !t.used {
		return []byte("null"), nil
	}
	return json.Marshal([...]int64{int64(t.next), int64(t.debt), int64(t.asked), int64(t.resumed)})
}

// UnmarshalJSON reads what MarshalJSON returned.
func (t *Tokens) UnmarshalJSON(b []byte) error {
	var list []int64
	err := json.Unmarshal(b, &list)
	if err != nil || len(list) < 4 {
		*t = Tokens{}
		return err
	}
	*t = Tokens{instant.Instant(list[0]), time.Duration(list[1]), instant.Instant(list[2]), instant.Instant(list[3]), true}
	return nil
}

// A Roll has members of a fleet. Each counts until its time.
type Roll []User

// Join counts a member until a time, which may be now, and forgets those whose time is over.
func (r *Roll) Join(now instant.Instant, member int64, until instant.Instant) {
	*r = slices.DeleteFunc(*r, func(u User) bool { return u.Member == member || u.Until <= now })
	if len(*r) < maxRoll {
		*r = append(*r, User{Member: member, Until: until})
	}
}

// Count returns how many members there are.
func (r *Roll) Count(now instant.Instant) (n int) {
	for _, u := range *r {
		if u.Until > now {
			n++
		}
	}
	return n
}

// maxRoll bounds the members of a fleet that is kept in one piece.
const maxRoll = 10_000
