package simulate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestConfirmed checks which refusals confirm a hold.
func TestConfirmed(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	h, s := &host{}, &scene{trip: ms(20)}
	type sent struct{ at, status int }
	for _, c := range []struct {
		name string
		sent []sent
		want []span
	}{
		{"none", nil, nil},
		{"two in a row", []sent{{0, 429}, {40, 429}, {65, 200}, {85, 429}}, nil},
		{"three in flight together", []sent{{0, 429}, {5, 429}, {10, 429}, {40, 200}}, nil},
		{"a success was sent between", []sent{{0, 429}, {25, 200}, {50, 429}, {70, 429}}, nil},
		{"a success was under way", []sent{{0, 429}, {5, 200}, {40, 429}, {60, 429}}, []span{{ms(20), ms(80 + 1000 + 500 + 200)}}},
		{"a success was sent in the instant of the refusal", []sent{{0, 429}, {20, 200}, {40, 429}, {60, 429}}, []span{{ms(20), ms(80 + 1000 + 500 + 200)}}},
		{"three in a row", []sent{{0, 429}, {40, 429}, {60, 429}, {1700, 200}}, []span{{ms(20), ms(80 + 1000 + 500 + 200)}}},
		{"two in flight and two probes", []sent{{0, 429}, {5, 429}, {45, 429}, {65, 429}}, []span{{ms(20), ms(85 + 1700)}}},
		{"most are refused, but not in a row", []sent{
			{0, 429}, {5, 429}, {10, 200}, {15, 429}, {20, 429}, {25, 200}, {30, 429}, {35, 429},
		}, []span{{ms(55), ms(55 + 1700)}}},
	} {
		w := &world{attempts: []*attempt{{host: &host{}, status: 429}}} // another host does not count
		for _, a := range c.sent {
			w.attempts = append(w.attempts, &attempt{host: h, began: ms(a.at), ended: ms(a.at + 20), status: a.status, told: time.Second})
		}
		assert.Equal(t, c.want, w.confirmed(h, s), c.name)
	}
}
