package rules

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBroken(t *testing.T) {
	for _, test := range []struct {
		text string
		want []string
	}{
		{"", []string{""}},
		{"short", []string{"short"}},
		{"just fits", []string{"just fits"}},
		{"two words more", []string{"two words", "more"}},
		{"a,b,c,d,e,f", []string{"a,b,c,d,", "e,f"}},
		{"indivisible", []string{"indivisib", "le"}},
		{"ää ööööööööö", []string{"ää", "ööööööööö"}},
		{"ööööööööööö", []string{"ööööööööö", "öö"}},
	} {
		assert.Equal(t, test.want, broken(test.text, 9), test.text)
	}
}

// The cost of a text grows with its length, not with its square.
func TestBrokenLongText(t *testing.T) {
	allocated := func(n int) uint64 {
		text := strings.Repeat("h.test, ", n)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		broken(text, 80)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	assert.Less(t, allocated(8000), 16*allocated(1000))
}
