package fleet

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A Redis that comes and goes writes few log lines.
func TestFlappingWritesFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := &logLines{}
		l := link{journal: &journal{logger: lines.logger()}}
		l.joined()
		for range 200 {
			l.failed(errors.New("connection refused"), "", "")
			time.Sleep(time.Second)
			l.good()
			require.True(t, l.connected()) // it is used all the same
			time.Sleep(1500 * time.Millisecond)
			l.good()
		}
		synctest.Wait() // for the log
		require.Equal(t, 2, lines.count("lost"))
		require.Equal(t, 1, lines.count("back"))
		time.Sleep(2 * time.Second)
		l.good()
		synctest.Wait()
		require.Equal(t, 2, lines.count("back"))
		// After a calm minute the next loss is told as soon as the first.
		time.Sleep(2 * calm)
		l.good()
		l.unsubscribed(errors.New("connection refused"))
		require.False(t, l.connected())
		require.False(t, l.lost("")) // commands still work
		l.joined()
		time.Sleep(time.Second)
		l.good()
		synctest.Wait()
		require.Equal(t, 3, lines.count("lost"))
		require.Equal(t, 3, lines.count("back"))
	})
}

// The link knows how long Redis was lost in all.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := link{journal: &journal{}, cluster: true}
		lost := errors.New("connection refused")
		for i := range time.Duration(3) {
			time.Sleep(time.Minute)
			require.Equal(t, i*3*time.Second, l.away())
			l.failed(lost, "", "")
			time.Sleep(time.Second)
			l.failed(lost, "", "h") // it is lost already
			time.Sleep(time.Second)
			require.Equal(t, i*3*time.Second+2*time.Second, l.away())
			l.failed(lost, "a node", "")
			time.Sleep(time.Second)
			l.good()
		}
		l.failed(lost, "", "h")
		l.failed(lost, "", "") // the heartbeat fails, and then the question is answered
		l.served("")
		require.True(t, l.lost(""))
		l.good()
		require.False(t, l.lost(""))
		l.failed(lost, "a node", "h") // the hosts of the other nodes are shared
		time.Sleep(time.Minute)
		require.Equal(t, 9*time.Second, l.away())
	})
}

// TestLinesInTheDocs: docs/observability.md shows the lines about Redis as they are.
func TestLinesInTheDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/observability.md")
	require.NoError(t, err)
	for _, line := range []string{"WARN " + lostText("Redis", "connection refused", false), "WARN " + lostText("Redis", "NOAUTH Authentication required.", true), "INFO " + backText} {
		assert.Contains(t, string(text), "`"+line+"`")
	}
	for _, refused := range []bool{false, true} {
		assert.LessOrEqual(t, len([]rune(lostText("Redis", strings.Repeat("x", 1000), refused))), 120)
	}
}
