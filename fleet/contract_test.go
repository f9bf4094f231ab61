package fleet

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/fleettest"
	"github.com/aplomb-go/aplomb/internal/ledger"
	"github.com/aplomb-go/aplomb/transport"
)

func TestRedisKeepsTheContract(t *testing.T) {
	t.Parallel()
	addr := sharedServer(t).Addr
	fleettest.Run(t, func(t *testing.T) func() transport.Fleet {
		c := options(t, addr)
		return func() transport.Fleet {
			f, err := New(c)
			require.NoError(t, err)
			t.Cleanup(f.Close)
			eventually(t, func() bool { return f.FleetState().Connected }, "not connected")
			return f
		}
	})
}

// The scripts keep the fields of ledger.Host, in the same order.
func TestScriptsHaveTheFieldsOfTheLedger(t *testing.T) {
	list := regexp.MustCompile(`local NAMES = \{(.*)\}`).FindStringSubmatch(gate)
	require.Len(t, list, 2)
	var want []string
	for i := range reflect.TypeFor[ledger.Host]().NumField() {
		want = append(want, "'"+reflect.TypeFor[ledger.Host]().Field(i).Name+"'")
	}
	require.Equal(t, strings.Join(want, ", "), list[1])
}

// A script defines each constant that it uses, and gets those of the ledger from there.
func TestScriptsDefineTheirConstants(t *testing.T) {
	used := 0
	for _, text := range []string{gate, failingText, workingText, probeText, probeFailedText, holdText, quotaText, bucketText, tokensText, unusedText, meetText, beatText} {
		code := regexp.MustCompile(`--.*|'[^']*'|KEYS|ARGV`).ReplaceAllString(text, "")
		for _, name := range regexp.MustCompile(`\b[A-Z][A-Z_]+\b`).FindAllString(code, -1) {
			used++
			require.Contains(t, constants(text)+text, "local "+name+" =", name)
		}
		require.NotRegexp(t, `\d{5}`, regexp.MustCompile(`local KEEP = \d+`).ReplaceAllString(code, ""))
	}
	require.Greater(t, used, 20)
}
