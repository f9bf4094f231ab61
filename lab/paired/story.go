// A story: the plays of a plan, and what the judge says.

package paired

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// mostRequests bounds the requests of a story over all plays.
const mostRequests = 2000

// A story is a plan that was played in pairs.
type story struct {
	plan      *plan
	judged    []*judgement
	requests  int
	plays     int
	bareTimes map[time.Duration]*result
	luck      []violation // that few replays show
}

// A violation is replayed so often, with starts that are moved by up to so much.
const (
	replays = 6
	moves   = 5 * time.Millisecond
)

// tell plays a plan over net/http alone and over each client, and judges the pairs. If chance may
// explain what the judge finds, net/http plays again with the extra arrivals of aplomb, and with
// other starts.
func tell(t *testing.T, p *plan, kinds []kind) *story {
	s := &story{plan: p, bareTimes: map[time.Duration]*result{}}
	alone := s.play(t, bare(0), nil, 0, 0)
	s.bareTimes[0] = alone
	for i, k := range kinds {
		ref := s.reference(t, alone, k)
		r := s.play(t, k, nil, 0, 0)
		j := judge(p, []*result{ref}, r)
		if slices.ContainsFunc(j.found, func(v violation) bool { return v.soft }) {
			extra := s.ghosts(r, ref)
			refs := []*result{ref}
			others := len(kinds) - i - 1 // each may need a reference, too
			share := (mostRequests - s.requests - 2*others*len(p.calls)) / (others + 1)
			for n := range min(4, max(share/(len(p.calls)+len(extra)), 1)) {
				move := moves
				if n == 0 {
					move = 0
				}
				refs = append(refs, s.play(t, bare(ref.kind.timeout), extra, move, uint64(n)))
			}
			j = judge(p, refs, r)
		}
		s.replay(t, j)
		s.judged = append(s.judged, j)
	}
	return s
}

func (s *story) play(t *testing.T, k kind, ghosts []ghost, move time.Duration, nth uint64) *result {
	r := play(t, s.plan, k, ghosts, move, nth)
	s.requests += r.requests
	s.plays++
	return r
}

// reference returns the play of net/http for a client. If the client gives up attempts, so does
// its reference.
func (s *story) reference(t *testing.T, alone *result, k kind) *result {
	limit := k.rule.AttemptTimeout
	if limit <= 0 {
		return alone
	}
	if known := s.bareTimes[limit]; known != nil {
		return known
	}
	for _, o := range alone.outcomes {
		if o.head == never && o.took() >= limit || o.head != never && o.head-o.began >= limit {
			s.bareTimes[limit] = s.play(t, bare(limit), nil, 0, 0)
			return s.bareTimes[limit]
		}
	}
	return alone
}

// ghosts returns the arrivals that net/http does not have: those after the first of each call, and
// the first if it comes late. Tries that found no connection are among them.
func (s *story) ghosts(r, ref *result) (all []ghost) {
	theirs := ref.byCall()
	for id, of := range r.byCall() {
		again := resent(of)
		for i, a := range of {
			extra := i > 0 && !a.rest && !again[i]
			late := i == 0 && len(theirs[id]) > 0 && a.at-r.outcomes[id].began > theirs[id][0].at-ref.outcomes[id].began+lateMost
			if late || extra {
				all = append(all, ghost{a.call, a.n, a.at, a.left})
			}
		}
	}
	for id, of := range r.tries {
		arrivals := r.byCall()[id]
		for i, t := range of {
			if i > 0 && !slices.ContainsFunc(arrivals, func(a *arrival) bool { return t.at <= a.at && a.at <= t.left }) {
				all = append(all, ghost{s.plan.calls[id], i + 1, t.at, t.left})
			}
		}
	}
	slices.SortFunc(all, func(a, b ghost) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.call.id, b.call.id)) })
	return all
}

// replay plays a client with violations again, and net/http beside it, with the same other starts and
// with the extra arrivals. It counts how many of these plays show each violation, compared with all
// plays of net/http. What chance may explain is a violation only if more than half of them show it.
func (s *story) replay(t *testing.T, j *judgement) {
	if len(j.found) == 0 {
		return
	}
	var plays []*result
	for n := range uint64(replays) {
		r := play(t, s.plan, j.kind, nil, moves, replays+n)
		plays = append(plays, r)
		j.refs = append(j.refs, play(t, s.plan, bare(j.refs[0].kind.timeout), s.ghosts(r, j.refs[0]), moves, replays+n))
	}
	for _, r := range plays {
		found := judge(s.plan, j.refs, r).found
		for i := range j.found {
			if slices.ContainsFunc(found, j.found[i].same) {
				j.found[i].again++
			}
		}
	}
	j.found = slices.DeleteFunc(j.found, func(v violation) bool {
		if !v.soft || v.again > replays/2 {
			return false
		}
		s.luck = append(s.luck, v)
		x := &j.tallies[v.clause]
		x.judged, x.excused = 0, x.excused+x.judged
		return true
	})
}

// violations returns those of all pairs.
func (s *story) violations() (all []violation) {
	for _, j := range s.judged {
		all = append(all, j.found...)
	}
	return all
}

// describe tells a violation, with what became of its call.
func (s *story) describe(v violation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %s, clause %d: %s\n    %s\n  %v", s.plan.seed, v.kind, v.clause, v.what, v.text, s.plan)
	for _, j := range s.judged {
		if j.kind.name != v.kind || v.call < 0 {
			continue
		}
		c := s.plan.calls[v.call]
		fmt.Fprintf(&b, "  call %d, tenant %d, deadline %v, reading %d, source fails at %d, guilty %v\n", c.id, c.tenant, c.deadline, c.reads, c.fails, c.guilty)
		for _, r := range []*result{j.refs[0], j.r} {
			o := r.outcomes[v.call]
			fmt.Fprintf(&b, "    %s: at %v %s after %v, headers after %v, %d bytes, longest Read %v, error %v\n", r.kind.name, o.began, o.same(), o.took(), o.head-o.began, len(o.body), o.gap, o.err)
			for _, a := range r.byCall()[v.call] {
				fmt.Fprintf(&b, "      %v: %d over connection %d of %v, %v, status %d, wait %d s, failed %v, left %v, acted %v, for a part %v\n", a.at, a.n, a.conn, a.site.ip, a.fate, a.status, a.wait, is(a.failed), is(a.left), a.acted, a.rest)
			}
		}
	}
	return b.String()
}

// is returns a time, or a dash.
func is(d time.Duration) string {
	if d == never {
		return "–"
	}
	return d.String()
}
