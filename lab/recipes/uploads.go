package recipes

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

func uploads(log *slog.Logger) transport.Config {
	return transport.Config{
		Logger: log,
		Rule: policy.Rule{
			AttemptTimeout: 30 * time.Second, // from the last byte of the file to the headers
			StallTimeout:   30 * time.Second, // of the file as well
		},
	}
}

// uploadAll puts files below a URL, eight at a time, and returns the errors of those that failed.
func uploadAll(ctx context.Context, client *http.Client, below string, names []string, progress func(name string, sent int64)) map[string]error {
	own := *client // a redirect may turn the PUT into a GET, so it counts as a failure
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	failed, free := map[string]error{}, make(chan struct{}, 8)
	var mu sync.Mutex // guards failed
	var all sync.WaitGroup
	for _, name := range names {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			if err := upload(ctx, &own, below, name, progress); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[name] = err
			}
		})
	}
	all.Wait()
	return failed
}

func upload(ctx context.Context, client *http.Client, below, name string, progress func(name string, sent int64)) error {
	to, err := url.JoinPath(below, url.PathEscape(filepath.Base(name)))
	if err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	open := func() (io.ReadCloser, error) { // for each attempt
		file, err := os.Open(name)
		return &counted{ReadCloser: file, tell: func(sent int64) { progress(name, sent) }}, err
	}
	body, err := open()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, to, body)
	if err != nil {
		return err
	}
	req.GetBody, req.ContentLength = open, info.Size()
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // the connection of a body that is read is used again
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s\n%.300s", transport.Explain(resp, nil), said) // each attempt, and why there was no other
	}
	return err
}

// A counted body tells how much of it was read.
type counted struct {
	io.ReadCloser
	sent int64
	tell func(sent int64)
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.sent += int64(n)
	c.tell(c.sent)
	return n, err
}
