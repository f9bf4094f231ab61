// Package fleetmsg has the messages between a Transport and its fleet.
//
// A fleet is the processes that share what servers tell them. The Transport of each
// process is a member. It tells its [github.com/aplomb-go/aplomb/transport.Fleet] news and
// asks it questions, and hears news of the other members and answers. Each of these is a
// [Message]. Only authors of a backend need this package.
//
// A time in a Message is a duration from or to the moment at which the Message is handed
// over, so that the clocks of the processes need not agree. An amount has a Unit.
package fleetmsg

import (
	"fmt"
	"strings"
	"time"
)

// A Kind says what a Message is about, and which of its fields count. A Fleet ignores kinds
// that it does not know, and so does a Transport. A later version may have more.
type Kind uint8

// The kinds that a Transport tells its Fleet. Hold and Quota go both ways.
const (
	// Meet says that the member sends its first request to Host, or the first since an
	// Update turned on its ShareRetryAfter or QuotaPacing. The answer is
	// everything that other members know of the host: a Hold for each scope, a Quota for
	// each scope and unit, and Down.
	Meet Kind = iota + 1

	// Hold says that a server asked to wait. Scope is whose requests are held, and Status
	// is 503 if the hold is of a 503, else 429. Wait is how long the server asked to wait,
	// without jitter. A member obeys its own MaxRetryAfter.
	Hold

	// Quota says which quota a server named. Scope is whose quota it is. Amount of Unit is
	// left of Limit, which is 0 if it is not known. Wait is the time until the quota is full
	// again. To a member, Members is how many members use the quota, itself included. Each of
	// them takes its part of the rest. 0 counts as 1.
	Quota

	// Failing says that Host is down for this member: Failures in a row, 1 or more, of which the
	// first was sent or failed Wait ago. A host is reported every 250 ms at most, as long as attempts
	// fail. A member that goes on reporting after Down keeps the fleet from forgetting the outage.
	Failing

	// Working says that a request to Host succeeded, after Failing or after Down.
	Working

	// AskTokens asks for tokens of the rate that all members share: PerSecond of all members
	// together, and Burst, 1 or more. Amount of Unit is how many this member can use soon, 1
	// or more. The answer is Tokens. A member asks ten times per second and host at most. If
	// the questions before got no answer, Wait is for how long, and Spent is how many tokens
	// the member used by itself meanwhile, beyond those that it was given. A Fleet takes
	// these from the rate.
	AskTokens

	// Unused answers Leave, within the call of hear. Amount of Unit are tokens that this
	// member was given and will not use. PerSecond and Burst are as for AskTokens.
	Unused
)

// The kinds that a Transport hears from its Fleet, beside Hold and Quota.
const (
	// Members says how many members the fleet has, this one included. Below 1 counts as 1.
	// The floor of the budget is divided by it. So is the rate while the Fleet does not
	// answer.
	Members Kind = iota + 64

	// Down says that Host has been down for the fleet for Wait: several members fail, and
	// none has told of a success. The members share the probes, until Up or until a request of their
	// own succeeds. A member whose own requests have not failed probes with its next request, and tells
	// Working. So members that cannot reach a host never stop a member that can.
	Down

	// Up says that Host works again. A member for which it is down probes after a random part of Wait,
	// which counts as 5 s at most.
	Up

	// Tokens answers AskTokens. Amount of Unit may be used, by this member alone: the first
	// after First, and each further one Every later. A negative First means that some of
	// them may be used now. If Amount is 0, the member asks again after Wait.
	Tokens

	// Leave says that the Fleet is being closed. The answer is Unused for each host of whose
	// rate the member has tokens. Leave has no Host.
	Leave
)

var names = [...]string{
	Meet: "meet", Hold: "hold", Quota: "quota", Failing: "failing", Working: "working",
	AskTokens: "ask for tokens", Members: "members", Down: "down", Up: "up", Tokens: "tokens",
	Unused: "unused tokens", Leave: "leave",
}

func (k Kind) String() string {
	if int(k) < len(names) && names[k] != "" {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// A Message is a piece of news, a question or an answer. Its Kind says which fields count.
// The others are zero. Messages can be compared with ==.
type Message struct {
	Kind   Kind
	Host   string // scheme://host, as in a HostState
	Scope  uint64 // whose requests: the result of Fleet.Scope, or 0 for requests without credentials
	Status int    // 429 or 503
	Unit   string // of Amount, Limit, PerSecond and Burst; "" means requests

	Wait         time.Duration // Hold, Quota, Failing, Down, Up, AskTokens and Tokens say of what
	First, Every time.Duration // Tokens: until the first may be used, and between two

	Members          int     // Members and Quota: how many
	Failures         int     // Failing: in a row
	Amount, Limit    float64 // Quota, AskTokens, Tokens, Unused; in Units
	PerSecond, Burst float64 // AskTokens: the rate; in Units
	Spent            float64 // AskTokens: used without the fleet; in Units
}

// String returns the kind of a Message and the fields that are not zero. It has no secrets,
// because a Scope is a keyed hash.
func (m Message) String() string {
	var b strings.Builder
	b.WriteString(m.Kind.String())
	field := func(name string, value any, zero bool) {
		if !zero {
			fmt.Fprintf(&b, " %s=%v", name, value)
		}
	}
	field("host", m.Host, m.Host == "")
	field("scope", fmt.Sprintf("%x", m.Scope), m.Scope == 0)
	field("status", m.Status, m.Status == 0)
	field("unit", fmt.Sprintf("%q", m.Unit), m.Unit == "")
	field("wait", m.Wait, m.Wait == 0)
	field("first", m.First, m.First == 0)
	field("every", m.Every, m.Every == 0)
	field("members", m.Members, m.Members == 0)
	field("failures", m.Failures, m.Failures == 0)
	field("amount", m.Amount, m.Amount == 0)
	field("limit", m.Limit, m.Limit == 0)
	field("per_second", m.PerSecond, m.PerSecond == 0)
	field("burst", m.Burst, m.Burst == 0)
	field("spent", m.Spent, m.Spent == 0)
	return b.String()
}
