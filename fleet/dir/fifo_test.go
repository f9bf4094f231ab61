//go:build unix

package dir_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/fleet/dir"
	"github.com/aplomb-go/aplomb/fleetmsg"
)

// Something that is no file holds up nobody, and stays.
func TestPipeInThePlaceOfAFile(t *testing.T) {
	path := filepath.Join(temporary(t), "fleet")
	require.NoError(t, os.MkdirAll(filepath.Join(path, folder), 0o700))
	names := []string{nameOf(api), "members.json", "new", "lock", "key.json"}
	for _, name := range names {
		for _, in := range []string{path, filepath.Join(path, folder)} {
			pipe := filepath.Join(in, name)
			_ = os.Remove(pipe) // a file of an earlier round
			require.NoError(t, syscall.Mkfifo(pipe, 0o600))
			done := make(chan struct{})
			go func() {
				defer close(done)
				f, err := dir.New(dir.Config{Path: path})
				if !assert.NoError(t, err) {
					return
				}
				f.Tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: api})
				holdHost(f, api)
				f.Close()
			}()
			select {
			case <-done:
			case <-time.After(10 * time.Second):
				t.Fatalf("a pipe with the name %s holds up the process", name)
			}
			info, err := os.Lstat(pipe)
			require.NoError(t, err)
			assert.Equal(t, os.ModeNamedPipe, info.Mode().Type(), name)
			require.NoError(t, os.Remove(pipe))
		}
	}
}
