package fleet

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// During a rolling upgrade members of two versions use the same state of a host. A version
// that knows more fields or fewer does not forget an outage, and keeps the fields of the other.
func TestStateOfAnotherVersion(t *testing.T) {
	ctx := context.Background()
	client := connect(t, sharedServer(t).Addr)
	now := 100 * time.Second
	change := func(t *testing.T, key, how string) {
		t.Helper()
		text := "local v = cmsgpack.unpack(redis.call('GET', KEYS[1])) " + how + " redis.call('SET', KEYS[1], cmsgpack.pack(v)) return 1"
		require.NoError(t, client.Eval(ctx, text, []string{key}).Err(), how)
	}
	for name, how := range map[string]string{"a later version": "v[13] = 'news'", "an earlier version": "v[12] = nil", "a wrong type": "v[11] = 7"} {
		t.Run(name, func(t *testing.T) {
			key := unique(t)
			run := func(s *redis.Script, member int64, args ...any) *redis.Cmd {
				return s.Run(ctx, client, []string{key}, append([]any{now.Microseconds(), strconv.FormatInt(member, 16), ""}, args...)...)
			}
			for member := range int64(3) {
				require.NoError(t, run(failingScript, 1+member, "h", 10, (3*time.Second).Microseconds(), 3).Err())
			}
			change(t, key, how)
			got, err := run(failingScript, 4, "h", 1, 0, 3).Slice()
			require.NoError(t, err)
			require.Equal(t, "3000000", got[1], "the outage is forgotten")
			got, err = run(probeScript, 4, "h", 3).Slice()
			require.NoError(t, err)
			require.Equal(t, int64(1), got[0])
			if name == "a later version" {
				last, err := client.Eval(ctx, "return cmsgpack.unpack(redis.call('GET', KEYS[1]))[13]", []string{key}).Text()
				require.NoError(t, err)
				require.Equal(t, "news", last)
			}
		})
	}
	t.Run("a permit of an earlier version", func(t *testing.T) {
		key := unique(t)
		run := func(member int64) any {
			got, err := probeScript.Run(ctx, client, []string{key}, now.Microseconds(), strconv.FormatInt(member, 16), "", "h", 3).Slice()
			require.NoError(t, err)
			return got[0]
		}
		require.Equal(t, int64(1), run(1))
		change(t, key, "v[7] = 1 v[8] = v[8] + 9000000") // it lent a permit for 10 s
		require.Equal(t, int64(0), run(2))
		require.Equal(t, int64(1), run(1))
		now += 2 * time.Second
		require.Equal(t, int64(1), run(2))
	})
}
