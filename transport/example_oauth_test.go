package transport_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// A client asks for tokens with POST, so a 502 of the proxy before the token endpoint ends the
// call. Some grants may be repeated, and the author of the rule knows which grant the program
// uses:
//
//   - client_credentials (RFC 6749 §4.4): a second token does no harm, and the first expires.
//   - refresh_token without rotation (§6): the same.
//   - refresh_token with rotation: never. The server takes the second use of a token for theft,
//     and ends the whole session (RFC 9700 §4.14.2).
//   - authorization_code: never. A code is for one use, and a second use revokes the tokens of the
//     first (§4.1.2).
func ExampleConfig_tokenEndpoint() {
	client := &http.Client{Transport: transport.MustNew(transport.Config{
		Base: faults.New(nil, faults.Script(
			faults.Status(http.StatusBadGateway),
			faults.Status(http.StatusOK).Body(`{"access_token": "a", "token_type": "Bearer"}`),
		)),
		Rule: policy.Rule{Backoff: backoff.Constant(0)},
		Hosts: map[string]policy.Rule{
			"POST auth.example.com/oauth/token": {
				Idempotent: func(*http.Request) bool { return true }, // this program uses client_credentials only
			},
		},
	})}
	resp, err := client.Post("https://auth.example.com/oauth/token", "application/x-www-form-urlencoded", strings.NewReader("grant_type=client_credentials"))
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(resp.Status, string(body))
	// Output:
	// 200 OK {"access_token": "a", "token_type": "Bearer"}
}
