package dir

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/fleettest"
	"github.com/aplomb-go/aplomb/transport"
)

func TestDirectoryKeepsTheContract(t *testing.T) {
	fleettest.Run(t, func(t *testing.T) func() transport.Fleet {
		path := t.TempDir() + "/fleet"
		return func() transport.Fleet {
			f, err := New(Config{Path: path})
			require.NoError(t, err)
			t.Cleanup(func() {
				f.Close()
				<-f.ended // the disk may be slow
			})
			return f
		}
	})
}
