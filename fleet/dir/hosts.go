package dir

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/internal/ledger"
)

// The lock has the number of the files of hosts as its content. So no directory has to be listed
// before a further one is made.

func (f *Fleet) setCount(n int) {
	// If it cannot be written, the number is counted again soon.
	_, _ = f.lock.WriteAt(fmt.Appendf(nil, "%07d\n", max(0, n)), 0)
}

// count returns the number of files, which is above the bound if it is not known.
func (f *Fleet) count() int {
	b := make([]byte, 8)
	if _, err := f.lock.ReadAt(b, 0); err != nil {
		return maxFiles + 1
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || n < 0 {
		return maxFiles + 1
	}
	return n
}

// room counts the file of one more host. If there are too many, the files go that were changed
// longest ago, some at a time; the lock of the directory is held.
func (f *Fleet) room() bool {
	n := f.count()
	if n >= maxFiles {
		if time.Now().Before(f.full) {
			return false
		}
		names := f.names()
		if n = len(names); n >= maxFiles {
			n -= f.evict(names, n-maxFiles+evictSome)
		}
		if n >= maxFiles {
			f.full = time.Now().Add(beatEach)
			f.setCount(n)
			return false
		}
	}
	f.setCount(n + 1)
	return true
}

// evict removes the files of so many hosts, those first that were changed longest ago. It
// returns how many it has removed; the lock of the directory is held.
func (f *Fleet) evict(names []string, most int) (gone int) {
	at := map[string]time.Time{}
	for _, name := range names {
		if info := f.stat(name); info != nil {
			at[name] = info.ModTime()
		}
	}
	slices.SortFunc(names, func(a, b string) int { return at[a].Compare(at[b]) })
	for _, name := range names {
		if gone >= most {
			break
		}
		if r, ours := f.ours(name); ours && f.files.Remove(name) == nil {
			gone++
			if r.Expires() >= now() {
				f.dropped.Add(1)
			}
		}
	}
	return gone
}

// ours returns the record in a file, if the name and the content say that it is the file of a host.
func (f *Fleet) ours(name string) (ledger.Record, bool) {
	r, _ := load[ledger.Record](f, name)
	return r, r.Host != "" && nameOf(r.Host) == name
}

// names returns the names of all files of hosts.
func (f *Fleet) names() []string {
	f.touched.Add(1)
	dir, err := f.files.Open(".")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // those that could be read
	return slices.DeleteFunc(names, func(name string) bool {
		return len(name) != len(nameOf("")) || !strings.HasSuffix(name, ".json")
	})
}

// sweep removes the files of hosts that are over, and those that make no sense, some at a time.
func (f *Fleet) sweep() {
	if len(f.sweeping) == 0 && time.Since(f.swept) >= sweepEach && f.acquire() {
		f.swept, f.sweeping = time.Now(), f.names()
		f.setCount(len(f.sweeping))
		f.release()
	}
	for range min(sweepSome, len(f.sweeping)) {
		name := f.sweeping[0]
		f.sweeping = f.sweeping[1:]
		if info := f.stat(name); info == nil || time.Since(info.ModTime()).Abs() < sweepAge || !f.acquire() {
			continue
		}
		if r, ours := f.ours(name); ours && (r.Expires() < now() || !r.Sane(now(), slack)) && f.files.Remove(name) == nil {
			f.setCount(f.count() - 1)
		}
		f.release()
	}
}
