// A remote is the server process as its starter sees it.

package main

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
)

// A remote is a server process.
type remote struct {
	process
	lines *bufio.Scanner
	addrs []string
	files int // how many files the server may open
}

// startServer starts this program as a server, and reads its addresses.
func startServer(ctx context.Context) (*remote, error) {
	p, err := startSelf(ctx, "server")
	if err != nil {
		return nil, fmt.Errorf("starting the server: %w", err)
	}
	r := &remote{process: p, lines: bufio.NewScanner(p.stdout)}
	if !r.lines.Scan() {
		r.kill()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("the server ended at once: %v", r.lines.Err())
	}
	files, addrs, _ := strings.Cut(r.lines.Text(), " ")
	r.addrs = strings.Fields(addrs)
	if r.files, err = strconv.Atoi(files); err != nil {
		r.kill()
		return nil, fmt.Errorf("the server said %q", r.lines.Text())
	}
	return r, nil
}

// listen passes each report of the server to hear, until the server ends.
func (r *remote) listen(hear func(most int)) {
	for r.lines.Scan() {
		if most, err := strconv.Atoi(r.lines.Text()); err == nil {
			hear(most)
		}
	}
}
