package classify

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
)

// wrapping is an error in the form of quic-go's: its own text, and another
// error within.
type wrapping struct {
	text   string
	within []error
}

func (e *wrapping) Error() string   { return e.text }
func (e *wrapping) Unwrap() []error { return e.within }

// timed is one with a Timeout method, too.
type timed struct{ wrapping }

func (*timed) Timeout() bool { return true }

// The errors of quic-go, in their present form, which wraps others, and in that
// of its older releases. The module in e2e provokes the real ones.
func TestHTTP3Errors(t *testing.T) {
	closed := []error{net.ErrClosed}
	for text, want := range map[string]struct {
		kind ErrorType
		is   Class
	}{
		"H3_REQUEST_REJECTED":             {ErrorReset, Refused},
		"H3_REQUEST_REJECTED: busy":       {ErrorReset, Refused},
		"H3_REQUEST_CANCELLED":            {ErrorReset, Ambiguous},
		"H3_INTERNAL_ERROR":               {ErrorReset, Ambiguous},
		"H3_INTERNAL_ERROR: oops (local)": {ErrorReset, Ambiguous},
		"H3_NO_ERROR":                     {ErrorReset, Ambiguous},
		"H3_EXCESSIVE_LOAD":               {ErrorReset, Ambiguous},
		"H3 error (0x42)":                 {ErrorReset, Ambiguous},
		"H3 error (0x42): why":            {ErrorReset, Ambiguous},
		"QPACK_DECOMPRESSION_FAILED":      {ErrorReset, Ambiguous},
		"H3_VERSION_FALLBACK":             {ErrorProtocol, Final},
		"H3_MESSAGE_ERROR (local)":        {ErrorProtocol, Ambiguous},
		"H3 error (0x42) (local)":         {ErrorProtocol, Ambiguous},
		"H3_REQUEST_CANCELLED (local)":    {ErrorCanceled, Final},

		"stream 9 canceled by remote with error code 267": {ErrorReset, Refused},
		"stream 4 canceled by remote with error code 268": {ErrorReset, Ambiguous},
		"Application error 0x10c (local)":                 {ErrorCanceled, Final},
		"stream 4 canceled by remote with error code 0":   {ErrorReset, Ambiguous},
		"stream 4 canceled by remote with error code 272": {ErrorProtocol, Final},
		"stream 4 canceled by local with error code 270":  {ErrorProtocol, Ambiguous},
		"stream 4 canceled by local with error code 268":  {ErrorCanceled, Final},

		"Application error 0x100 (remote)":           {ErrorReset, Ambiguous},
		"Application error 0x10b (remote)":           {ErrorReset, Refused},
		"Application error 0x102 (remote): shutdown": {ErrorReset, Ambiguous},

		"CONNECTION_REFUSED (remote)":                                {ErrorDial, Refused},
		"CRYPTO_ERROR 0x178 (remote): tls: no application protocol":  {ErrorTLS, Final},
		"CRYPTO_ERROR 0x12a (local): tls: bad certificate":           {ErrorTLS, Final},
		"INTERNAL_ERROR (remote)":                                    {ErrorReset, Ambiguous},
		"FLOW_CONTROL_ERROR (local) (frame type: 0x8): too much":     {ErrorReset, Ambiguous},
		"received a stateless reset":                                 {ErrorReset, Ambiguous},
		"no compatible QUIC version found (we support [v1], server)": {ErrorDial, Final},
		"timeout: handshake did not complete in time":                {ErrorDial, Refused},
		"timeout: no recent network activity":                        {ErrorTimeout, Ambiguous},

		"connection in graceful shutdown":                   {ErrorReset, Refused},
		"0-RTT rejected":                                    {ErrorReset, Refused},
		"http3: expected first frame to be a HEADERS frame": {ErrorProtocol, Ambiguous},
		"http3: invalid method \"A B\"":                     {ErrorProtocol, Final},
		"http3: conn unusable: connection closed":           {ErrorReset, Refused},
	} {
		for _, err := range []error{
			&wrapping{text, closed},
			&timed{wrapping{text, closed}},
			fmt.Errorf("http3: parsing frame failed: %w", &wrapping{text, closed}),
			&url.Error{Op: "Get", URL: "https://h.test/", Err: &wrapping{text, closed}},
			errors.Join(errors.New("first"), &wrapping{text, closed}),
		} {
			if _, ok := err.(*timed); ok && want.kind == ErrorReset {
				continue // it would be a timeout
			}
			assertJudged(t, err, want.kind, want.is)
		}
	}

	// An error of the response, with words of its own.
	assertJudged(t, fmt.Errorf("http3: invalid response: %w", io.ErrUnexpectedEOF), ErrorReset, Ambiguous)

	// The older form wraps nothing.
	for _, text := range []string{"H3_REQUEST_CANCELLED", "H3_INTERNAL_ERROR", "stream 0 canceled by remote with error code 256"} {
		assertJudged(t, errors.New(text), ErrorReset, Ambiguous)
	}

	// A certificate is more than the connection that it ended.
	assertJudged(t, &wrapping{"CRYPTO_ERROR 0x12a (local): x509: unknown", []error{net.ErrClosed, x509.UnknownAuthorityError{}}}, ErrorTLS, Final)
	assertJudged(t, &wrapping{"http3: conn unusable: CRYPTO_ERROR", []error{&wrapping{"CRYPTO_ERROR 0x12a (remote)", closed}}}, ErrorTLS, Final)
}

// What looks like one of these texts and is none stays unknown.
func TestWhatIsNotHTTP3(t *testing.T) {
	for _, text := range []string{
		"H3", "H3_INDEX missing", "h3_request_rejected", "H3 error", "H3 error (x)",
		"my H3_REQUEST_REJECTED", "stream 1 canceled by me with error code 267", "stream closed", "Application error (remote)", "CONNECTION_REFUSED",
		"CONNECTION_REFUSED by somebody", "",
	} {
		assertJudged(t, errors.New(text), ErrorOther, Final)
	}
	kind, _ := judge(fmt.Errorf("H3 is not it: %w", io.ErrUnexpectedEOF))
	assert.Equal(t, ErrorReset, kind)
}

// FuzzHTTP3Text: whatever an error says, there is no panic, and a kind comes
// with a verdict.
func FuzzHTTP3Text(f *testing.F) {
	f.Add("H3_REQUEST_REJECTED (local): x")
	f.Add("stream 4 canceled by remote with error code 267")
	f.Add("Application error 0x10b (remote)")
	f.Add("H3 error (0x1")
	f.Fuzz(func(t *testing.T, text string) {
		kind, is := byHTTP3Text(text)
		assert.Equal(t, kind == "", is == Unknown, "%v %v", kind, is)
	})
}
