package transport_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"syscall"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A service has a second region. The first is down, so its requests go to the second.
func Example_alternates() {
	network := rt(func(req *http.Request) (*http.Response, error) {
		if req.URL.Host == "us.example.com" {
			return nil, syscall.ECONNREFUSED
		}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("hello")), Request: req}, nil
	})
	t, err := transport.New(transport.Config{
		Base: network,
		Hosts: map[string]policy.Rule{
			"us.example.com": {Alternates: policy.Alternates{Bases: []string{"https://eu.example.com/api"}}},
		},
	})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: t}
	resp, err := client.Get("https://us.example.com/v1/items?page=2")
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Printf("%s from %s\n", body, resp.Request.URL)
	for _, a := range transport.HistoryOf(resp).Attempts {
		fmt.Printf("attempt %d: alternate %q, status %d, %v\n", a.Number, a.Alternate, a.Status, a.Err)
	}
	// Output:
	// hello from https://eu.example.com/api/v1/items?page=2
	// attempt 1: alternate "", status 0, connection refused
	// attempt 2: alternate "https://eu.example.com", status 200, <nil>
}

// The alternates belong to the same owner and serve the same files. So they may see the token,
// and a validator of the host is good there, too.
func Example_alternatesOfOneOwner() {
	network := rt(func(req *http.Request) (*http.Response, error) {
		fmt.Println("->", req.URL.Host, req.Header.Get("Authorization"), req.Header.Get("If-None-Match"))
		if req.URL.Host == "us.example.com" {
			return nil, syscall.ECONNREFUSED
		}
		return faults.New(nil, faults.Always(faults.Status(304))).RoundTrip(req)
	})
	for _, same := range []policy.Switch{policy.Off, policy.On} {
		tr, err := transport.New(transport.Config{Base: network, Hosts: map[string]policy.Rule{"us.example.com": {
			Attempts: 2, Backoff: atOnce,
			Alternates: policy.Alternates{Bases: []string{"https://eu.example.com"}, Validators: same, Credentials: same},
		}}})
		if err != nil {
			log.Fatal(err)
		}
		req := getOf("https://us.example.com/file")
		req.Header.Set("Authorization", "Bearer t0ken")
		req.Header.Set("If-None-Match", `"v1"`)
		resp, err := tr.RoundTrip(req)
		if errors.Is(err, syscall.ECONNREFUSED) {
			fmt.Println("refused")
			continue
		}
		resp.Body.Close()
		fmt.Println(resp.StatusCode)
	}
	// Output:
	// -> us.example.com Bearer t0ken "v1"
	// -> us.example.com Bearer t0ken "v1"
	// refused
	// -> us.example.com Bearer t0ken "v1"
	// -> eu.example.com Bearer t0ken "v1"
	// 304
}
