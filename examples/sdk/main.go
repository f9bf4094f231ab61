// Sdk shows that retries belong above the transport of an SDK, so that each
// attempt is signed anew.
//
//	go run ./examples/sdk
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

func main() {
	fmt.Println("Retries go above the transport of an SDK, so that each attempt is signed anew.")
	fmt.Println()
	sdk := &http.Client{Transport: signer{http.DefaultTransport}} // as the SDK creates it

	// The SDK's transport becomes the base, and the client gets the new
	// transport. In the opposite order all attempts would carry the signature
	// of the first attempt.
	retrying, err := transport.New(transport.Config{Base: sdk.Transport, Rule: profile.Service()})
	if err != nil {
		log.Fatal(err)
	}
	sdk.Transport = retrying

	last, requests := "", 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		fmt.Println("  server got:", r.Header.Get("Authorization"))
		switch {
		case r.Header.Get("Authorization") == last:
			w.WriteHeader(http.StatusUnauthorized) // a repeated signature
		case requests < 3:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		last = r.Header.Get("Authorization")
	}))
	resp, err := sdk.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	fmt.Println("  client got:", resp.Status)
	if resp.StatusCode != http.StatusOK {
		log.Fatal("an attempt was not signed anew")
	}
	fmt.Println("\nThe server would refuse a signature that comes twice.")
}

// A signer takes the place of the SDK's transport.
type signer struct{ base http.RoundTripper }

func (s signer) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context()) // a RoundTripper must not change its request
	req.Header.Set("Authorization", "signature at "+time.Now().Format("15:04:05.000000"))
	return s.base.RoundTrip(req)
}
