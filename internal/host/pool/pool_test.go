package pool

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

const start = instant.Instant(time.Hour)

// TestWhenAPoolIsBad says which failures in a row are a proof. g is a good response.
func TestWhenAPoolIsBad(t *testing.T) {
	weights := map[rune]int32{'w': Weak, 'a': Alone, 'h': Half, 'p': Proof}
	for row, bad := range map[string]bool{
		"": false, "p": true, "h": false, "hh": true, "hgaaa": false, "wwww": false, "wwwww": true, "wwwwgw": false, "hww": false, "hwww": true, "pg": false, "aaa": false, "haw": true,
	} {
		var s Pools
		for _, c := range row {
			if c == 'g' {
				s.Good(nil, true)
			} else {
				s.Failed(s.Current(), weights[c], nil)
			}
		}
		assert.Equal(t, bad, !s.Calm(), row)
	}
}

// TestMove plays how a host moves, and how it stays.
func TestMove(t *testing.T) {
	var s Pools
	good := func(p *Pool, alone bool) *Pool {
		left, _ := s.Good(p, alone)
		return left
	}
	other := s.Other(start, nil)
	require.NotNil(t, other)
	assert.Equal(t, 1, other.Number)
	assert.Nil(t, good(other, false), "nothing was bad")

	s.Failed(s.Current(), Proof, "silent")
	s.Good(s.Current(), true)
	assert.Nil(t, good(other, false), "the suspicion is over")

	s.Failed(s.Current(), Proof, "silent again")
	assert.Same(t, other, s.Other(start, nil))
	assert.Nil(t, s.Other(start, other), "there is one other pool at a time")
	first := s.Current()
	assert.Nil(t, good(other, true), "one response proves nothing while nobody else asks")
	left, cause := s.Good(other, true)
	assert.Same(t, first, left)
	assert.Equal(t, "silent again", cause)
	assert.Same(t, other, s.Current())
	assert.True(t, s.Calm())

	next := s.Other(start, s.Current())
	require.NotNil(t, next)
	assert.Nil(t, s.Failed(next, Half, nil))
	assert.Same(t, next, s.Failed(next, Half, nil), "the other pool is given up")
	assert.True(t, s.Calm())
	assert.ElementsMatch(t, []*Pool{other, next}, s.All())

	third := s.Other(start.Add(time.Hour), nil)
	s.Failed(s.Current(), Proof, nil)
	assert.Same(t, other, good(third, false))
	assert.ElementsMatch(t, []*Pool{other, next, third}, s.All(), "the pools of before are kept")
	s.Failed(third, Proof, nil)
	assert.Nil(t, good(other, false))
	assert.Same(t, third, s.Current(), "the host does not move back")
}

// TestNewPoolsAreLimited: two at once, and then one in 10 s. Closing idle connections counts as one.
func TestNewPoolsAreLimited(t *testing.T) {
	var s Pools
	opens := func(at instant.Instant) bool {
		p := s.Other(at, nil)
		if p != nil {
			s.Failed(p, Proof, nil)
		}
		return p != nil
	}
	assert.True(t, opens(start))
	assert.True(t, opens(start))
	assert.False(t, opens(start))
	assert.False(t, opens(start.Add(9*time.Second)))
	assert.True(t, opens(start.Add(10*time.Second)))
	assert.False(t, s.MayRefresh(start.Add(10*time.Second)))
	s.Failed(s.Current(), Proof-1, nil)
	assert.True(t, s.MayRefresh(start.Add(20*time.Second)))
	s.Failed(s.Current(), Proof-1, nil)
	assert.True(t, s.Calm(), "the failures of the closed connections count no more")
	assert.False(t, s.MayRefresh(start.Add(time.Minute)), "nothing has come since")
	s.first.Hear(start.Add(time.Minute))
	assert.True(t, s.MayRefresh(start.Add(time.Minute)))
	assert.False(t, opens(start.Add(20*time.Second)))
	for range 5 {
		start := start.Add(time.Hour)
		_ = opens(start)
	}
	assert.Len(t, s.All(), keeps, "not all pools of before are kept")
}

// TestWaits: as many requests wait as were in flight, until a response is good.
func TestWaits(t *testing.T) {
	var s Pools
	p := s.Current()
	take := func() (all []bool) { return append(all, p.TakesWait(), p.TakesWait(), p.TakesWait()) }
	assert.Equal(t, []bool{false, false, false}, take())
	p.Silent(2)
	p.Silent(1)
	assert.Equal(t, []bool{true, true, false}, take())
	p.Silent(2)
	s.Failed(p, Weak, nil)
	_, _ = s.Good(p, false)
	assert.Equal(t, []bool{false, false, false}, take())
}

// TestTurns: one attempt at a time makes the first connection of a pool.
func TestTurns(t *testing.T) {
	var p Pool
	free, _ := p.TakeTurn()
	none, ended := p.TakeTurn()
	assert.Nil(t, none)
	select {
	case <-ended:
		t.Error("the turn has ended early")
	default:
	}
	free()
	next, _ := p.TakeTurn()
	free() // has no turn to end
	<-ended
	none, _ = p.TakeTurn()
	assert.True(t, next != nil && none == nil, "the next has its turn")
}

// TestConnectionOfAPool says when an attempt may seek the first connection of a pool.
func TestConnectionOfAPool(t *testing.T) {
	var s Pools
	p := s.Other(start, nil)
	assert.Nil(t, p.Base())
	p.Make(http.DefaultTransport)
	assert.Same(t, http.DefaultTransport, p.Base())
	assert.True(t, p.IsDue(start))
	p.Missed(start)
	assert.False(t, p.IsDue(start.Add(9*time.Second)))
	assert.True(t, p.IsDue(start.Add(10*time.Second)))
	p.Dialled()
	assert.True(t, p.IsDue(0), "the dial has ended after the attempt")
	p.Missed(start)
	p.Connected()
	assert.True(t, p.IsOpen())
	assert.True(t, p.IsDue(0))

	first := s.Current()
	for _, weight := range []int32{Proof - 1, Proof} {
		p.Missed(start)
		assert.Nil(t, s.Failed(first, weight, nil))
		_, _ = s.Good(first, false)
		assert.Equal(t, weight == Proof, p.IsDue(start), "the host could not be reached at all, and now it can")
	}

	assert.False(t, p.Doubtful().IsValid())
	p.Doubt("[::ffff:192.0.2.1]:80", true)
	assert.True(t, p.Answers())
	p.Doubt("", false)
	assert.False(t, p.Answers(), "the last failure")
	assert.Equal(t, netip.MustParseAddr("192.0.2.1"), p.Doubtful(), "the last one that was known")

	p.Use(start)
	assert.False(t, s.Rests(p, start.Add(2*time.Second-1), Rest))
	assert.True(t, s.Rests(p, start.Add(2*time.Second), Rest))
	assert.False(t, p.IsOpen())
	assert.False(t, s.Rests(s.Current(), start.Add(time.Hour), Rest), "the current pool keeps its connections")
}
