package testserver_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"

	"github.com/aplomb-go/aplomb/internal/testserver"
)

// A script over TCP, and the log of the requests.
func Example() {
	s, err := testserver.New(testserver.Config{},
		testserver.Status(503),
		testserver.Status(429).Header("Retry-After", "1"),
		testserver.OK("hello").CutAt(2, testserver.Close),
		testserver.OK("hello"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()

	for range 4 {
		resp, err := s.Client().Post(s.URL, "text/plain", strings.NewReader("ping"))
		if err != nil {
			fmt.Println(err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Printf("%d %q %v\n", resp.StatusCode, body, err)
	}
	for _, a := range s.Log() {
		fmt.Println(a.N, a.Method, a.Target, a.BodyLength, a.BodyWhole, "on connection", a.Conn)
	}
	// Output:
	// 503 "" <nil>
	// 429 "" <nil>
	// 200 "he" unexpected EOF
	// 200 "hello" <nil>
	// 1 POST / 4 true on connection 1
	// 2 POST / 4 true on connection 1
	// 3 POST / 4 true on connection 1
	// 4 POST / 4 true on connection 2
}

// Two servers with their own host names share a network in memory. The second
// server resets its connections.
func ExampleNet() {
	n := testserver.NewNet()
	for name, step := range map[string]testserver.Step{
		"good.test": testserver.OK("hello"),
		"bad.test":  testserver.ResetBeforeHeaders(),
	} {
		s, err := testserver.New(testserver.Config{Net: n, Host: name}, step)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer s.Close()
	}
	client := &http.Client{Transport: &http.Transport{DialContext: n.DialContext}}
	defer client.CloseIdleConnections()

	resp, err := client.Get("http://good.test/")
	if err == nil {
		resp.Body.Close()
		fmt.Println(resp.Status)
	}
	_, err = client.Get("http://bad.test/")
	fmt.Println(errors.Is(err, syscall.ECONNRESET))
	_, err = client.Get("http://good.test:81/")
	fmt.Println(errors.Is(err, syscall.ECONNREFUSED))
	// Output:
	// 200 OK
	// true
	// true
}

// Over HTTP/2 a step can exclude its stream by a GOAWAY. net/http itself sends such
// a request again.
func ExampleGoAway() {
	s, err := testserver.New(testserver.Config{HTTP2: true},
		testserver.GoAway(testserver.NoError),
		testserver.OK("hello"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	resp, err := s.Client().Post(s.URL, "text/plain", strings.NewReader("ping"))
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.Proto, resp.StatusCode, s.Arrivals())
	// Output: HTTP/2.0 200 2
}
