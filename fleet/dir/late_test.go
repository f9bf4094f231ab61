package dir

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/ledger"
)

// News that was put off is not told after newer news of the same.
func TestPutOffNewsIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet")
	synctest.Test(t, func(t *testing.T) {
		f, err := open(Config{Path: path})
		require.NoError(t, err)
		defer f.Close()
		f.start()
		tell := func(m fleetmsg.Message) {
			m.Host = host
			f.Tell(m)
			synctest.Wait()
		}
		quota := fleetmsg.Message{Kind: fleetmsg.Quota, Limit: 10, Wait: time.Hour}
		for _, left := range []float64{9, 8, 7} {
			quota.Amount = left
			tell(quota)
			time.Sleep(ledger.Gap/2 + time.Millisecond)
		}
		time.Sleep(2 * ledger.Gap)
		tell(fleetmsg.Message{Kind: fleetmsg.Meet})
		record, _ := f.read(host)
		require.Len(t, record.Quotas, 1)
		assert.EqualValues(t, 7, record.Quotas[0].Amount)
	})
}
