package dir

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/ledger"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

const host = "http://api.test"

// A witness notes what a member hears.
type witness struct {
	mu    sync.Mutex
	heard []fleetmsg.Message
}

func (w *witness) hear(m fleetmsg.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.Kind != fleetmsg.AskUse {
		w.heard = append(w.heard, m)
	}
}

func (w *witness) count(k fleetmsg.Kind) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.heard {
		if m.Kind == k {
			n++
		}
	}
	return n
}

// member returns a Fleet with a member that only hears what it asks for, because nothing polls.
func member(t testing.TB, path string) (*Fleet, *witness) {
	t.Helper()
	f, err := open(Config{Path: path})
	require.NoError(t, err)
	w := new(witness)
	require.NoError(t, f.Join(w.hear))
	t.Cleanup(f.Close)
	return f, w
}

// tell does at once what the goroutine of a Fleet does later.
func tell(f *Fleet, m fleetmsg.Message) {
	if m.Kind == fleetmsg.Use {
		f.use(m)
	} else if ledger.Valid(m) {
		f.take(m, time.Now())
	}
}

// inside returns the folder of the files.
func inside(path string) string { return filepath.Join(path, folderName) }

func meet(f *Fleet) { tell(f, fleetmsg.Message{Kind: fleetmsg.Meet, Host: host}) }

// hold tells of a hold until it is written. Under load the lock may not be free in time.
func hold(t testing.TB, f *Fleet, wait time.Duration) {
	t.Helper()
	for range 1000 {
		before := f.FleetState().Dropped
		tell(f, fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: wait})
		if f.FleetState().Dropped == before {
			return
		}
		time.Sleep(lockPause)
	}
	t.Fatal("the lock is never free")
}

func TestNewRefusesWhatOthersCanWrite(t *testing.T) {
	base := t.TempDir()
	_, err := New(Config{})
	require.EqualError(t, err, "dir: Path is empty")
	file := filepath.Join(base, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = New(Config{Path: file})
	require.ErrorContains(t, err, "dir: ")
	for _, mode := range []os.FileMode{0o777, 0o770, 0o702, 0o777 | os.ModeSticky} {
		path := filepath.Join(base, fmt.Sprint(mode))
		require.NoError(t, os.Mkdir(path, 0o700))
		require.NoError(t, os.Chmod(path, mode))
		_, err = New(Config{Path: path})
		require.ErrorContains(t, err, "others can write")
	}
	f, err := New(Config{Path: filepath.Join(base, "a", "b")})
	require.NoError(t, err)
	f.Close()
	f.Close()
	info, err := os.Stat(filepath.Join(base, "a", "b"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

// A hold and a quota outlive the process that was told. The files tell nothing to others.
func TestNewsSurvivesARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet")
	f, _ := member(t, path)
	meet(f)
	hold(t, f, time.Hour)
	secret := "Bearer SECRET"
	tell(f, fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Scope: f.Scope(secret), Status: 429, Wait: time.Hour})
	tell(f, fleetmsg.Message{Kind: fleetmsg.Quota, Host: host, Unit: "tokens", Amount: 5, Limit: 9, Wait: time.Hour})
	f.Close()
	again, w := member(t, path)
	require.Equal(t, f.Scope(secret), again.Scope(secret))
	meet(again)
	require.Equal(t, 2, w.count(fleetmsg.Hold), "heard within Tell")
	require.Equal(t, 1, w.count(fleetmsg.Quota), "heard within Tell")
	files, err := os.ReadDir(inside(path))
	require.NoError(t, err)
	require.Len(t, files, 3) // the host, the key and the lock
	for _, file := range files {
		info, err := file.Info()
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), file.Name())
		b, err := os.ReadFile(filepath.Join(inside(path), file.Name()))
		require.NoError(t, err)
		require.NotContains(t, string(b), "SECRET")
	}
}

// The first request of a process obeys a hold, and a hold is in the directory before the caller
// has the response.
func TestHoldIsWrittenBeforeTheResponse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet")
	a, err := New(Config{Path: path})
	require.NoError(t, err)
	defer a.Close()
	refusing, err := transport.New(transport.Config{Fleet: a, Rule: policy.Rule{Attempts: 1}, Base: rt(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"3600"}}, Body: http.NoBody}, nil
	})})
	require.NoError(t, err)
	require.Equal(t, 429, get(t, refusing))
	if a.FleetState().Dropped > 0 || a.stuck.Load() {
		t.Skip("the lock was not free in time")
	}
	b, err := New(Config{Path: path})
	require.NoError(t, err)
	defer b.Close()
	sent := 0
	obeying, err := transport.New(transport.Config{Fleet: b, Base: rt(func(req *http.Request) (*http.Response, error) {
		sent++
		return ok(req)
	})})
	require.NoError(t, err)
	const room = 100 * time.Millisecond
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), room)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/", nil)
	require.NoError(t, err)
	_, _ = obeying.RoundTrip(req) // what others were told refuses nothing, so it goes after half of its time
	if sent > 0 {
		assert.GreaterOrEqual(t, time.Since(begin), room/2)
	}
}

// A file is replaced as a whole. Who reads the old one reads all of it.
func TestFilesAreReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet")
	f, _ := member(t, path)
	hold(t, f, time.Minute)
	open, err := os.Open(filepath.Join(inside(path), nameOf(host)))
	require.NoError(t, err)
	defer open.Close()
	before, err := open.Stat()
	require.NoError(t, err)
	hold(t, f, time.Hour)
	require.False(t, os.SameFile(before, f.stat(nameOf(host))))
	var r ledger.Record
	require.NoError(t, json.NewDecoder(open).Decode(&r))
	require.Len(t, r.Holds, 1)
	require.Less(t, r.Holds[0].Until, now().Add(2*time.Minute))
	assert.NoFileExists(t, filepath.Join(inside(path), "new"))
}

// If the disk is full, what is known stays known, and the news is told when there is room again.
func TestFullDisk(t *testing.T) {
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "fleet")
	f, _ := member(t, path)
	hold(t, f, time.Minute)
	require.NoError(t, os.Symlink(full, filepath.Join(inside(path), "new")))
	tell(f, fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Hour})
	require.Positive(t, f.FleetState().Dropped)
	r, _ := f.read(host)
	require.Len(t, r.Holds, 1)
	require.Less(t, r.Holds[0].Until, now().Add(2*time.Minute))
	_ = os.Remove(filepath.Join(inside(path), "new")) // write has done so, unless it had no lock
	for start := time.Now(); len(f.late) > 0 && time.Since(start) < lateMost; time.Sleep(lockPause) {
		f.flush()
	}
	r, _ = f.read(host)
	require.Greater(t, r.Holds[0].Until, now().Add(2*time.Minute))
}

// What is in the files may be anything. It counts as not there, and is replaced.
func TestFilesThatMakeNoSense(t *testing.T) {
	at := now()
	text := func(r ledger.Record) string {
		b, err := json.Marshal(&r)
		require.NoError(t, err)
		return string(b)
	}
	held := func(told, until time.Duration) []ledger.Hold {
		return []ledger.Hold{{Mark: ledger.Mark{Told: at.Add(told), By: 1}, Status: 429, Since: at.Add(told), Until: at.Add(until)}}
	}
	good := text(ledger.Record{Host: host, At: at, Holds: held(0, time.Hour)})
	for name, row := range map[string]struct {
		text  string
		holds int
	}{
		"a hold":                       {good, 1},
		"nothing":                      {"", 0},
		"another format":               {"<html>", 0},
		"half of a record":             {good[:len(good)/2], 0},
		"another type":                 {`{"Host":7}`, 0},
		"more than there can be":       {strings.Repeat(" ", maxBytes+1) + good, 0},
		"another host":                 {text(ledger.Record{Host: "http://other.test", Holds: held(0, time.Hour)}), 0},
		"a hold that is over":          {text(ledger.Record{Host: host, Holds: held(-time.Hour, -time.Minute)}), 0},
		"a hold for ever":              {text(ledger.Record{Host: host, Holds: held(0, 365*24*time.Hour)}), 0},
		"before the clock went back":   {text(ledger.Record{Host: host, At: at.Add(time.Hour), Holds: held(0, time.Hour)}), 0},
		"a hold from a later time":     {text(ledger.Record{Host: host, At: at, Holds: held(time.Hour, 2*time.Hour)}), 0},
		"a moment before it went back": {text(ledger.Record{Host: host, At: at.Add(slack / 2), Holds: held(0, time.Hour)}), 1},
		"times that overflow":          {text(ledger.Record{Host: host, At: instant.Instant(-1 << 62), Holds: held(-1<<62, -1<<61)}), 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			require.NoError(t, os.Chmod(path, 0o700))
			require.NoError(t, os.Mkdir(inside(path), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(inside(path), nameOf(host)), []byte(row.text), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(inside(path), rollName), []byte(row.text), 0o600))
			f, w := member(t, path)
			meet(f)
			require.Equal(t, row.holds, w.count(fleetmsg.Hold))
			f.beat(memberFor)
			require.LessOrEqual(t, f.FleetState().Members, 1)
			hold(t, f, 2*time.Hour)
			other, w := member(t, path)
			meet(other)
			require.Equal(t, 1, w.count(fleetmsg.Hold))
		})
	}
}

// If nothing can be written or read, nothing is known, and nobody waits.
func TestDirectoryThatCannotBeUsed(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, path string){
		"no room for a file": func(t *testing.T, path string) {
			require.NoError(t, os.MkdirAll(filepath.Join(inside(path), "new", "x"), 0o700))
		},
		"no lock": func(t *testing.T, path string) {
			require.NoError(t, os.Remove(filepath.Join(inside(path), "lock")))
			require.NoError(t, os.Mkdir(filepath.Join(inside(path), "lock"), 0o700))
		},
		"a directory as file": func(t *testing.T, path string) {
			require.NoError(t, os.Mkdir(filepath.Join(inside(path), nameOf(host)), 0o700))
		},
		"the right to write is missing": func(t *testing.T, path string) {
			if os.Geteuid() <= 0 {
				t.Skip("root may write, and on Windows the mode says nothing")
			}
			require.NoError(t, os.Chmod(path, 0o500))
			t.Cleanup(func() { assert.NoError(t, os.Chmod(path, 0o700)) })
		},
		"the right to read is missing": func(t *testing.T, path string) {
			if os.Geteuid() <= 0 {
				t.Skip("root may read, and on Windows the mode says nothing")
			}
			require.NoError(t, os.Chmod(path, 0))
			t.Cleanup(func() { assert.NoError(t, os.Chmod(path, 0o700)) })
		},
		"the directory is gone": func(t *testing.T, path string) { require.NoError(t, os.RemoveAll(path)) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "fleet")
			f, w := member(t, path)
			spoil(t, path)
			for _, m := range []fleetmsg.Message{
				{Kind: fleetmsg.Meet}, {Kind: fleetmsg.Hold, Status: 429, Wait: time.Minute}, {Kind: fleetmsg.Quota, Wait: time.Minute},
				{Kind: fleetmsg.AskProbe}, {Kind: fleetmsg.AskTokens, PerSecond: 1, Burst: 1, Amount: 1}, {Kind: fleetmsg.Working},
			} {
				m.Host = host
				tell(f, m)
			}
			f.beat(memberFor)
			f.sweep()
			require.GreaterOrEqual(t, f.FleetState().Dropped, uint64(5))
			require.Zero(t, w.count(fleetmsg.Tokens)+w.count(fleetmsg.Probe))
		})
	}
}

// The lock is always the same file. Files that are over are removed, and others stay.
func TestSweep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet")
	f, _ := member(t, path)
	lock, err := os.Stat(filepath.Join(inside(path), "lock"))
	require.NoError(t, err)
	old := time.Now().Add(-time.Hour)
	put := func(name string, until time.Duration) string {
		r := ledger.Record{Host: name, At: instant.At(time.Duration(old.UnixNano())), Holds: []ledger.Hold{{Until: now().Add(until)}}}
		b, err := json.Marshal(&r)
		require.NoError(t, err)
		file := filepath.Join(inside(path), nameOf(name))
		require.NoError(t, os.WriteFile(file, b, 0o600))
		require.NoError(t, os.Chtimes(file, old, old))
		return file
	}
	over, lasts := put("http://over.test", -time.Minute), put("http://lasts.test", time.Hour)
	hold(t, f, time.Millisecond)
	for start := time.Now(); time.Since(start) < 10*time.Second; time.Sleep(lockPause) {
		f.swept = time.Time{}
		f.sweep() // under load the lock may not be free in time
		if _, err := os.Stat(over); err != nil {
			break
		}
	}
	assert.NoFileExists(t, over)
	assert.FileExists(t, lasts)
	assert.FileExists(t, filepath.Join(inside(path), nameOf(host)), "it is new")
	after, err := os.Stat(filepath.Join(inside(path), "lock"))
	require.NoError(t, err)
	assert.True(t, os.SameFile(lock, after))
}

type rt func(*http.Request) (*http.Response, error)

func (f rt) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func ok(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
}

// The first request to a healthy host without a rate touches files, and no other.
func TestRequestsTouchNoFile(t *testing.T) {
	for _, rate := range []float64{0, 1e6} {
		f, err := open(Config{Path: filepath.Join(t.TempDir(), "fleet")})
		require.NoError(t, err)
		go func() { // without a poll
			for j := range f.jobs {
				f.do(j)
			}
		}()
		defer close(f.jobs)
		rule := policy.Rule{Gate: policy.Gate{Mode: policy.GateWait}, Pacing: policy.On, Rate: policy.Rate{PerSecond: rate}}
		tr, err := transport.New(transport.Config{Fleet: f, Rule: rule, Base: rt(ok)})
		require.NoError(t, err)
		before := f.touched.Load()
		get(t, tr)
		first := f.touched.Load()
		for range 1000 {
			get(t, tr)
		}
		if rate == 0 {
			assert.Positive(t, first-before, "the first request asks")
			assert.Equal(t, first, f.touched.Load())
		} else {
			assert.Eventually(t, func() bool { return f.touched.Load() > first }, 20*time.Second, time.Millisecond, "a rate is counted in the file")
		}
	}
}

func get(t testing.TB, tr *transport.Transport) int {
	req, err := http.NewRequest(http.MethodGet, host+"/", nil)
	require.NoError(t, err)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// A host that nobody uses is not looked at.
func TestIdleHostsAreNotPolled(t *testing.T) {
	f, _ := member(t, filepath.Join(t.TempDir(), "fleet"))
	meet(f)
	f.poll()
	before := f.touched.Load()
	f.poll()
	assert.Greater(t, f.touched.Load(), before)
	f.mu.Lock()
	f.hosts[host].used = time.Now().Add(-pollTime)
	f.mu.Unlock()
	before = f.touched.Load()
	f.poll()
	assert.Equal(t, before, f.touched.Load())
	tell(f, fleetmsg.Message{Kind: fleetmsg.Use, Host: host, Amount: 7})
	f.poll()
	assert.Greater(t, f.touched.Load(), before)
}

// A member is told what it has not heard, and each piece of news once.
func TestRefresh(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet")
	f, w := member(t, path)
	other, _ := member(t, path)
	meet(f)
	hold(t, other, time.Minute)
	for range 3 {
		f.refresh(host)
	}
	require.Eventually(t, func() bool { return w.count(fleetmsg.Hold) > 0 }, 20*time.Second, time.Millisecond)
	assert.Equal(t, 1, w.count(fleetmsg.Hold))
	// The same again is not written.
	before := f.touched.Load()
	tell(f, fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: 30 * time.Second})
	assert.Equal(t, before+1, f.touched.Load(), "it only looked whether the file is the same")
}

// A directory of another user is refused, because that user can write it.
func TestOwner(t *testing.T) {
	info, err := os.Stat(t.TempDir())
	require.NoError(t, err)
	require.True(t, owned(info))
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	path := t.TempDir()
	require.NoError(t, os.Chmod(path, 0o700))
	require.NoError(t, os.Chown(path, 12345, -1))
	_, err = New(Config{Path: path})
	require.ErrorContains(t, err, "belongs to another user")
}

// The key of a directory is made once, also by processes that begin at the same time.
func TestKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet")
	var mu sync.Mutex
	var all sync.WaitGroup
	seen := map[uint64]int{}
	for range 8 {
		all.Go(func() {
			f, err := open(Config{Path: path})
			if !assert.NoError(t, err) {
				return
			}
			defer f.Close()
			mu.Lock()
			defer mu.Unlock()
			seen[f.Scope("Bearer abc")]++
			assert.Zero(t, f.Scope(""))
		})
	}
	all.Wait()
	assert.Len(t, seen, 1)
}

// News for which the lock was not free is told later, with the time that is left. A question
// is not.
func TestNewsIsToldLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet")
	f, w := member(t, path)
	other, _ := member(t, path)
	for !other.acquire() {
		time.Sleep(lockPause)
	}
	for _, m := range []fleetmsg.Message{
		{Kind: fleetmsg.Hold, Status: 429, Wait: time.Minute},
		{Kind: fleetmsg.Hold, Scope: 2, Status: 429, Wait: time.Millisecond},
		{Kind: fleetmsg.Failing, Failures: 10, Wait: 5 * time.Second},
		{Kind: fleetmsg.AskProbe}, {Kind: fleetmsg.AskTokens, PerSecond: 1, Burst: 1, Amount: 1},
	} {
		m.Host = host
		tell(f, m)
	}
	assert.Equal(t, uint64(5), f.FleetState().Dropped)
	other.release()
	time.Sleep(lockPause)
	for start := time.Now(); len(f.late) > 0 && time.Since(start) < lateMost; time.Sleep(lockPause) {
		f.flush()
	}
	late, heard := member(t, path)
	meet(late)
	require.Equal(t, 1, heard.count(fleetmsg.Hold))
	assert.Less(t, heard.heard[0].Wait, time.Minute-lockPause)
	assert.Zero(t, w.count(fleetmsg.Tokens)+w.count(fleetmsg.Probe))
}

// Whatever is in the file of a host, a member hears nothing out of bounds, and the file can
// be used again.
func FuzzFile(f *testing.F) {
	now := now()
	b, err := json.Marshal(&ledger.Record{
		Host: host, At: now, Outage: ledger.Mark{Told: now}, Holds: []ledger.Hold{{Status: 429, Until: now.Add(time.Hour)}},
		Quotas: []ledger.Quota{{Amount: 5, Until: now.Add(time.Hour), Users: []ledger.User{{Member: 7, Until: now}}}}, Rates: []ledger.Rate{{}},
	})
	require.NoError(f, err)
	f.Add(string(b))
	f.Add(`{"Host":"http://api.test","Gate":[true,-1,9223372036854775807],"Holds":[{"Until":-9223372036854775808}],"Rates":[{"Tokens":1}]}`)
	path := filepath.Join(f.TempDir(), "fleet")
	fleet, w := member(f, path)
	f.Fuzz(func(t *testing.T, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(inside(path), nameOf(host)), []byte(text), 0o600))
		w.mu.Lock()
		w.heard = nil
		w.mu.Unlock()
		meet(fleet)
		fleet.refresh(host)
		for _, m := range []fleetmsg.Message{
			{Kind: fleetmsg.Hold, Status: 429, Wait: time.Second}, {Kind: fleetmsg.Quota, Amount: 1, Wait: time.Second},
			{Kind: fleetmsg.Failing, Failures: 1}, {Kind: fleetmsg.AskProbe}, {Kind: fleetmsg.Working}, {Kind: fleetmsg.ProbeFailed},
			{Kind: fleetmsg.AskTokens, PerSecond: 1, Burst: 1, Amount: 1},
		} {
			m.Host = host
			tell(fleet, m)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, m := range w.heard {
			require.LessOrEqual(t, m.Wait, ledger.MaxWait+slack, "%v", m)
			require.True(t, m.Kind == fleetmsg.Down || m.Wait >= 0, "%v", m)
			require.True(t, m.Amount >= 0 && m.Limit >= 0 && m.Members >= 0, "%v", m)
		}
	})
}

// A directory whose lock is not free counts as lost after 40 heartbeats, until a heartbeat
// succeeds or nobody needs it.
func TestFleetState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet")
	f, err := open(Config{Path: path})
	require.NoError(t, err)
	require.NoError(t, f.Join(func(fleetmsg.Message) {}))
	assert.Equal(t, transport.FleetState{Connected: true, Commands: f.FleetState().Commands, HeartbeatAge: -1}, f.FleetState())
	beat := func() {
		for f.beaten.Store(nil); f.beaten.Load() == nil; f.poll() {
			f.blocked = time.Time{}
			meet(f) // the host is in use
		}
	}
	beat()
	s := f.FleetState()
	assert.True(t, s.Connected)
	assert.Equal(t, 1, s.Members)
	assert.GreaterOrEqual(t, s.HeartbeatAge, 0.0)
	assert.Positive(t, s.Commands)

	other, _ := member(t, path)
	for !other.acquire() {
		time.Sleep(lockPause)
	}
	for range 2 {
		old := time.Now().Add(-time.Minute)
		f.beaten.Store(&old)
		for range lostAfter {
			assert.True(t, f.FleetState().Connected)
			meet(f)
			f.poll()
		}
		assert.GreaterOrEqual(t, f.FleetState().HeartbeatAge, 60.0)
		assert.False(t, f.FleetState().Connected)
		f.mu.Lock()
		f.hosts[host].used = time.Time{} // nobody needs it
		f.mu.Unlock()
		f.poll()
		assert.True(t, f.FleetState().Connected)
	}
	other.release()
	beat()
	assert.True(t, f.FleetState().Connected)
	f.Close()
	assert.False(t, f.FleetState().Connected)
}
