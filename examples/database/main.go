// Database shows that retry.Do retries any function, here the first connection
// to a database that is not up yet.
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
	"github.com/aplomb-go/aplomb/retry"
)

func main() {
	fmt.Println("retry.Do retries any function, here the ping of a database that is not up yet.")
	fmt.Println()
	// The server refuses connections for the first 0.3 s.
	server, err := testserver.New(testserver.Config{ListenAfter: 300 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	db := sql.OpenDB(connector(server.Addr))

	// Retry only if no connection could be made. A wrong password would be
	// wrong again.
	notUp := func(err error) bool { return classify.ErrorTypeOf(err) == classify.ErrorDial }
	rule := policy.Rule{MaxAttempts: 10, Backoff: backoff.Exponential{Base: 50 * time.Millisecond, Max: time.Second}}
	start := time.Now()
	err = retry.Do(context.Background(), rule, notUp, func(ctx context.Context) error {
		err := db.PingContext(ctx)
		fmt.Printf("  after %.1f s: %s\n", time.Since(start).Seconds(), result(err))
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("\nThe program starts before its database, and nobody has to restart it.")
}

func result(err error) string {
	if err != nil {
		return err.Error()
	}
	return "the database is up"
}

// A connector takes the place of a database driver. It only opens connections.
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
