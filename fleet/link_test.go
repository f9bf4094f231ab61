package fleet

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A Redis that comes and goes writes few log lines.
func TestFlappingWritesFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := &logLines{}
		l := link{logger: lines.logger()}
		l.joined()
		for range 200 {
			l.failed(errors.New("connection refused"), false)
			time.Sleep(time.Second)
			l.good()
			require.True(t, l.connected()) // it is used all the same
			time.Sleep(1500 * time.Millisecond)
			l.good()
		}
		require.Equal(t, 2, lines.count("lost"))
		require.Equal(t, 1, lines.count("back"))
		time.Sleep(2 * time.Second)
		l.good()
		require.Equal(t, 2, lines.count("back"))
		// After a calm minute the next loss is told as soon as the first.
		time.Sleep(2 * calm)
		l.good()
		l.failed(errors.New("connection refused"), true)
		require.False(t, l.connected())
		require.False(t, l.lost()) // commands still work
		l.joined()
		time.Sleep(time.Second)
		l.good()
		require.Equal(t, 3, lines.count("lost"))
		require.Equal(t, 3, lines.count("back"))
	})
}
