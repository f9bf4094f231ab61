// Database waits for a database that is not up yet, with policy.Do:
//
//	go run ./examples/database
package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log"
	"net"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

func main() {
	// It refuses connections, and listens after 0.3 s.
	server, err := testserver.New(testserver.Config{ListenAfter: 300 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	db := sql.OpenDB(connector(server.Addr))

	// A mistyped password is not worth a second try; a refused connection is.
	notUp := func(err error) bool { return classify.KindOf(err) == classify.Dial }
	rule := policy.Rule{Attempts: 10, Backoff: backoff.Exponential{
		Base: 50 * time.Millisecond, Jitter: 50 * time.Millisecond, Max: time.Second,
	}}
	err = policy.Do(context.Background(), rule, notUp, func(ctx context.Context) error {
		err := db.PingContext(ctx)
		fmt.Println(time.Now().Format("15:04:05.000"), "ping, error:", err)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("connected")
}

// A connector stands for a driver: it opens a connection and can do no more.
type connector string

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", string(c))
	if err != nil {
		return nil, err
	}
	return conn{nc}, nil
}

func (connector) Driver() driver.Driver { return nil }

type conn struct{ net.Conn }

func (conn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (conn) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }
