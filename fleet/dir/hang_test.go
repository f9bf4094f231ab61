package dir

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/fleetmsg"
	"github.com/aplomb-go/aplomb/fleettest"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A disk of a test stands still after freeze and until thaw.
type standing struct {
	files
	thawed chan struct{}
	frozen atomic.Bool
	inside atomic.Int32 // goroutines that wait
	most   atomic.Int32
}

func (s *standing) wait() {
	if s.frozen.Load() {
		s.most.Store(max(s.most.Load(), s.inside.Add(1)))
		<-s.thawed
		s.inside.Add(-1)
	}
}

func (s *standing) thaw() {
	s.frozen.Store(false)
	close(s.thawed)
}

func (s *standing) Open(name string) (*os.File, error) {
	s.wait()
	return s.files.Open(name)
}

func (s *standing) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	s.wait()
	return s.files.OpenFile(name, flag, perm)
}

func (s *standing) Lstat(name string) (fs.FileInfo, error) {
	s.wait()
	return s.files.Lstat(name)
}

func (s *standing) Rename(from, to string) error {
	s.wait()
	return s.files.Rename(from, to)
}

func (s *standing) Remove(name string) error {
	s.wait()
	return s.files.Remove(name)
}

// onDisk returns a Fleet on a disk that can stand still.
func onDisk(t *testing.T, path string) (*Fleet, *standing) {
	t.Helper()
	f, err := open(Config{Path: path})
	require.NoError(t, err)
	s := &standing{files: f.files, thawed: make(chan struct{})}
	f.files = s
	f.start()
	return f, s
}

func TestDirectoryThatHangsKeepsTheContract(t *testing.T) {
	fleettest.Hang(t, func(t *testing.T) (func() transport.Fleet, func()) {
		path := filepath.Join(t.TempDir(), "fleet")
		var mu sync.Mutex
		var disks []*standing
		return func() transport.Fleet {
				f, s := onDisk(t, path)
				mu.Lock()
				defer mu.Unlock()
				disks = append(disks, s)
				t.Cleanup(func() {
					if s.frozen.Load() {
						s.thaw()
					}
					f.Close()
					<-f.ended
					assert.LessOrEqual(t, s.most.Load(), int32(1), "goroutines that the disk holds up")
				})
				return f
			}, func() {
				mu.Lock()
				defer mu.Unlock()
				for _, s := range disks {
					s.frozen.Store(true)
				}
			}
	})
}

// The disk stands still for 5 s. The first request waits for 10 ms, and none after it. When the
// disk is back, the fleet shares again.
func TestDiskStandsStill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet")
	synctest.Test(t, func(t *testing.T) {
		f, s := onDisk(t, path)
		status := 200
		tr, err := transport.New(transport.Config{
			Fleet: f,
			Rule:  policy.Rule{Attempts: 1},
			Hosts: map[string]policy.Rule{"api.test": {Rate: policy.Rate{PerSecond: 1000, Burst: 100}}},
			Base: rt(func(req *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {"3600"}}, Body: http.NoBody}, nil
			}),
		})
		require.NoError(t, err)
		took := func(url string) time.Duration {
			begin := time.Now()
			req, err := http.NewRequest(http.MethodGet, url, nil)
			require.NoError(t, err)
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			require.Equal(t, status, resp.StatusCode)
			return time.Since(begin)
		}
		took(host)
		synctest.Wait()
		s.frozen.Store(true)
		time.Sleep(2 * pollEach)
		assert.LessOrEqual(t, took("http://new.test"), answerTime, "for the file of a new host")
		status = 429
		assert.Zero(t, took("http://new.test"), "for a hold")
		status = 200
		for range 100 {
			assert.LessOrEqual(t, took(host), answerTime, "for tokens")
		}
		time.Sleep(time.Second)
		assert.False(t, f.FleetState().Connected)
		time.Sleep(4 * time.Second)
		s.thaw()
		time.Sleep(time.Second)
		assert.True(t, f.FleetState().Connected)
		f.Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "http://held.test", Status: 429, Wait: time.Hour})
		f.Close()
		<-f.ended
		assert.EqualValues(t, 1, s.most.Load())
		record, _ := (&Fleet{disk: disk{files: openAgain(t, path)}}).read("http://held.test")
		assert.Len(t, record.Holds, 1)
	})
}

func openAgain(t *testing.T, path string) files {
	files, _, err := openFolder(path)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, files.Close()) })
	return files
}

// A disk that stands still does not hold up Close.
func TestCloseOfADiskThatStandsStill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet")
	synctest.Test(t, func(t *testing.T) {
		f, s := onDisk(t, path)
		s.frozen.Store(true)
		f.Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Hour})
		begin := time.Now()
		f.Close()
		assert.LessOrEqual(t, time.Since(begin), leaving)
		s.thaw()
		<-f.ended
	})
}
