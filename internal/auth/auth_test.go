package auth

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSignsRange(t *testing.T) {
	const aws = "AWS4-HMAC-SHA256 Credential=AKIDONE/20250101/eu-west-1/s3/aws4_request, SignedHeaders="
	for name, row := range map[string]struct {
		field, value, url string
		want              bool
	}{
		"nothing":                          {},
		"a token":                          {field: "Authorization", value: "Bearer range"},
		"AWS":                              {field: "Authorization", value: aws + "host;range;x-amz-date, Signature=aa", want: true},
		"AWS in capitals":                  {field: "Authorization", value: aws + "Host;If-Range, Signature=aa", want: true},
		"AWS without the range":            {field: "Authorization", value: aws + "host;x-amz-date;x-range;range-unit, Signature=aa"},
		"AWS with Range in another place":  {field: "Authorization", value: "AWS4-HMAC-SHA256 Credential=range/1, SignedHeaders=host, Signature=aa"},
		"Google storage":                   {field: "Authorization", value: "GOOG4-RSA-SHA256 Credential=a/1/x, SignedHeaders=host;range, Signature=x", want: true},
		"Azure storage":                    {field: "Authorization", value: "SharedKey acc:aa=", want: true},
		"Azure storage, lite":              {field: "Authorization", value: "SharedKeyLite acc:aa="},
		"the query of AWS":                 {url: "http://h/?X-Amz-Signature=a&X-Amz-SignedHeaders=host%3Brange", want: true},
		"the query of AWS, host alone":     {url: "http://h/range?range=1&X-Amz-SignedHeaders=host&X-Amz-Signature=range"},
		"the query of Google":              {url: "http://h/?X-Goog-SignedHeaders=host%3bif-range&X-Goog-Signature=a", want: true},
		"the query of OSS":                 {url: "http://h/?x-oss-additional-headers=range", want: true},
		"a cavage signature":               {field: "Authorization", value: `Signature keyId="k",headers="(request-target) range",signature="s"`, want: true},
		"a message signature":              {field: "Signature-Input", value: `a=("@method"), b=("@path" "range";sf);created=1`, want: true},
		"a message signature, If-Range":    {field: "Signature-Input", value: `a=("if-range")`, want: true},
		"a message signature, other parts": {field: "Signature-Input", value: `a=("@method" "x-range");keyid="range"`},
	} {
		req, err := http.NewRequest(http.MethodGet, row.url, http.NoBody)
		assert.NoError(t, err, name)
		if row.field != "" {
			req.Header.Set(row.field, row.value)
		}
		assert.Equal(t, row.want, SignsRange(req), name)
	}
	req := &http.Request{Header: http.Header{"Authorization": {"Bearer a.b.c"}}}
	assert.False(t, SignsRange(req))
	assert.Zero(t, testing.AllocsPerRun(100, func() { SignsRange(req) }))
}

// Whatever a header holds, nothing panics.
func FuzzHeader(f *testing.F) {
	f.Add(`Digest username="a\"b", x=y`)
	f.Add("=,=\"\\")
	f.Fuzz(func(t *testing.T, v string) {
		req := &http.Request{Header: http.Header{"Authorization": {v}, "Signature-Input": {v}}, URL: &url.URL{RawQuery: v}}
		SingleUse(req)
		SignsRange(req)
	})
}

func TestNamesAreCanonical(t *testing.T) {
	for _, name := range keyHeaders {
		assert.Equal(t, http.CanonicalHeaderKey(name), name, "a name that is never found")
	}
}

func TestSingleUse(t *testing.T) {
	const digest = `Digest username="ann", realm="nc=1", nonce="1", uri="/", response="x"`
	for name, row := range map[string]struct {
		field, value, url string
		want              bool
	}{
		"nothing":                         {},
		"a DPoP":                          {field: "Dpop", value: "e.y.J", want: true},
		"a DPoP as the RFC writes it":     {field: "DPoP", value: "e.y.J", want: true},
		"a token bound to a DPoP":         {field: "Authorization", value: "DPoP token"},
		"a WSSE":                          {field: "X-Wsse", value: `UsernameToken Username="u", Nonce="n"`, want: true},
		"a WSSE in capitals":              {field: "X-WSSE", value: `UsernameToken Username="u", Nonce="n"`, want: true},
		"OAuth 1.0":                       {field: "Authorization", value: `OAuth realm="a, b", oauth_nonce="n", oauth_signature="s"`, want: true},
		"OAuth 1.0 in other letters":      {field: "Authorization", value: `oauth OAUTH_NONCE="n"`, want: true},
		"OAuth 1.0 in the query":          {url: "http://h/?a=1&oauth_nonce=n&oauth_signature=s", want: true},
		"OAuth with a plain token":        {field: "Authorization", value: "OAuth 00Dx!AQ0AQ=="},
		"OAuth without a nonce":           {field: "Authorization", value: `OAuth oauth_token="oauth_nonce"`},
		"a nonce of another scheme":       {field: "Authorization", value: `Bearer oauth_nonce="n"`},
		"Hawk":                            {field: "Authorization", value: `Hawk id="1", ts="1", nonce="n", mac="m"`, want: true},
		"MAC":                             {field: "Authorization", value: `MAC id="1", nonce="n", mac="m"`, want: true},
		"EdgeGrid":                        {field: "Authorization", value: "EG1-HMAC-SHA256 client_token=c;nonce=n;signature=s", want: true},
		"Digest with a count":             {field: "Authorization", value: digest + ", qop=auth, nc=00000001", want: true},
		"Digest without a count":          {field: "Authorization", value: digest},
		"AWS":                             {field: "Authorization", value: "AWS4-HMAC-SHA256 Credential=a/nonce, SignedHeaders=host, Signature=s"},
		"basic":                           {field: "Authorization", value: "Basic eDp5"},
		"a signature with a nonce":        {field: "Signature-Input", value: `a=("@method"), b=("@method" "date");created=1;nonce="n"`, want: true},
		"a signature without":             {field: "Signature-Input", value: `a=("@method" "nonce");created=1;keyid=";nonce=1"`},
		"a nonce of a component":          {field: "Signature-Input", value: `a=("@method";nonce="n");created=1`},
		"a Signature-Input that is none":  {field: "Signature-Input", value: `a=(";nonce="n"`},
		"a Signature-Input without lists": {field: "Signature-Input", value: `a=1;nonce="n"`},
	} {
		req, err := http.NewRequest(http.MethodGet, row.url, http.NoBody)
		if row.field != "" {
			req.Header[row.field] = []string{row.value}
		}
		assert.NoError(t, err, name)
		assert.Equal(t, row.want, SingleUse(req), name)
	}
	assert.False(t, SingleUse(new(http.Request)))
	req := &http.Request{Header: http.Header{"Authorization": {digest}}}
	assert.Zero(t, testing.AllocsPerRun(100, func() { SingleUse(req) }))
}
