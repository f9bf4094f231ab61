// A remote is the server process as its starter sees it.

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// A remote is a server process.
type remote struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	addrs []string
	files int // how many files the server may open
}

// startServer starts this program as a server, and reads its addresses.
func startServer(ctx context.Context) (*remote, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "server")
	detach(cmd)
	cmd.Stderr = os.Stderr
	r := &remote{cmd: cmd}
	if _, err := cmd.StdinPipe(); err != nil { // the server ends when it is closed
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the server: %w", err)
	}
	r.lines = bufio.NewScanner(stdout)
	if !r.lines.Scan() {
		r.stop()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("the server ended at once: %v", r.lines.Err())
	}
	words := strings.Fields(r.lines.Text())
	if len(words) < 2 {
		r.stop()
		return nil, fmt.Errorf("the server said %q", r.lines.Text())
	}
	r.addrs = words[1:]
	if r.files, err = strconv.Atoi(words[0]); err != nil {
		r.stop()
		return nil, fmt.Errorf("the server said %q", r.lines.Text())
	}
	return r, nil
}

// listen passes each report of the server to hear, until the server ends.
func (r *remote) listen(hear func(most, arrivals int)) {
	for r.lines.Scan() {
		var most, arrivals int
		if _, err := fmt.Sscan(r.lines.Text(), &most, &arrivals); err == nil {
			hear(most, arrivals)
		}
	}
}

func (r *remote) freeze() error { return freeze(r.cmd.Process) }

func (r *remote) resume() error { return resume(r.cmd.Process) }

// stop ends the server, whether or not it is frozen, and waits for it.
func (r *remote) stop() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait() // the error only says that the process was killed
}
