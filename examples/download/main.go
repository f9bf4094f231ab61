// Download shows what the reader of a body sees if its connection is cut again and again.
//
//	go run ./examples/download
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"

	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/transport"
)

const (
	length = 4 << 20
	cut    = 3 << 19 // bytes of each response before its connection is closed
)

func main() {
	fmt.Printf("A server closes each connection after %s of a file of %s.\n", size(cut), size(length))
	file := testserver.Pattern(length)
	bad := testserver.Content(file, `"v1"`).CutAt(cut, testserver.Close)
	retrying, err := transport.New(transport.Config{Traces: []*transport.Trace{trace}})
	must(err)

	fmt.Println("\nA plain client:")
	got, err := download(http.DefaultTransport, bad)
	expect(err != nil && bytes.Equal(got, file[:cut]))

	fmt.Println("\nThe same with aplomb:")
	got, err = download(retrying, bad)
	expect(err == nil && bytes.Equal(got, file))

	fmt.Println("\nThe same, and the file changes on the server after the first cut:")
	changed := testserver.Content(bytes.ToUpper(file), `"v2"`)
	got, err = download(retrying, bad, changed)
	expect(err != nil && bytes.Equal(got, file[:cut]))

	fmt.Println("\nA reader notices a cut only if there is no rest. Two versions are never mixed.")
}

// trace prints what becomes of a body that was cut.
var trace = &transport.Trace{
	AttemptStart: func(ctx context.Context, a transport.AttemptStart) context.Context {
		if a.Kind == transport.AttemptResume {
			fmt.Printf("  cut after %s, so aplomb asks for the rest\n", size(a.Offset))
		}
		return ctx
	},
	BodyEnd: func(_ context.Context, b transport.BodyEnd) {
		if transport.ReasonOf(nil, b.Err) == transport.ReasonNotResumable {
			fmt.Println("  the response has no rest of this version")
		}
	},
}

// download gets a file from a server that plays these steps, and prints what the reader sees.
func download(base http.RoundTripper, steps ...testserver.Step) ([]byte, error) {
	server, err := testserver.New(testserver.Config{}, steps...)
	must(err)
	defer server.Close()
	resp, err := (&http.Client{Transport: base}).Get(server.URL)
	must(err)
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	fmt.Printf("  the reader got %s, and the error %v\n", size(int64(len(got))), err)
	return got, err
}

func size(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

func expect(ok bool) {
	if !ok {
		log.Fatal("this was not expected")
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
