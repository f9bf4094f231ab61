package aplomb_test

import (
	"fmt"
	"net/http"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// A server that restarts is not noticed. Here faults stand for the network, and the rule has no
// waits. A program uses transport.Default().
func Example() {
	network := faults.New(nil, faults.Script(faults.ConnRefused(), faults.Status(503), faults.Status(200)))
	client := &http.Client{Transport: transport.MustNew(transport.Config{
		Base: network,
		Rule: policy.Rule{Backoff: backoff.Constant(0)},
	})}
	resp, err := client.Get("http://api.test/")
	if err != nil || resp.StatusCode != http.StatusOK {
		fmt.Println(transport.Explain(resp, err))
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status, "after", len(network.Records()), "attempts")
	// Output: 200 OK after 3 attempts
}
