package auth

import (
	"net/http"
	"net/url"
	"strings"
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
		"AWS with other separators":        {field: "Authorization", value: aws + "host~range, Signature=aa", want: true},
		"AWS with a longer name":           {field: "Authorization", value: aws + "host;zrange, Signature=aa"},
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

// Whose credentials are the same from one request to the next.
func TestCredentials(t *testing.T) {
	const (
		aws1    = "AWS4-HMAC-SHA256 Credential=AKIDONE/20250101/eu-west-1/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature=aa"
		aws2    = "AWS4-HMAC-SHA256 Credential=AKIDONE/20250102/us-east-1/sqs/aws4_request,SignedHeaders=host,Signature=bb"
		aws3    = "AWS4-HMAC-SHA256 Credential=AKIDTWO/20250101/eu-west-1/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature=aa"
		digest1 = `Digest username="ann", realm="r, username=\"bob\"", nonce="1", response="x"`
		digest2 = `digest realm="o\", username=\"eve", nonce="2", username="ann", response="y"`
		digest3 = `Digest username="bob", realm="r", nonce="1", response="x"`
	)
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Add(pairs[i], pairs[i+1])
		}
		return h
	}
	of := func(v string) http.Header { return header("Authorization", v) }
	type test struct {
		name string
		a, b http.Header
		same bool
	}
	tests := []test{
		{"two requests without credentials", nil, header("Accept", "x"), true},
		{"a request without credentials, and another with some", nil, of("Basic eDp5"), false},
		{"basic, the same", of("Basic eDp5"), of("basic eDp5"), true},
		{"basic, another", of("Basic eDp5"), of("Basic eDp6"), false},
		{"bearer, another", of("Bearer a.b.c"), of("Bearer a.b.d"), false},
		{"basic and bearer", of("Basic x"), of("Bearer x"), false},
		{"aws, same key, other date and signature", of(aws1), of(aws2), true},
		{"aws, another key", of(aws1), of(aws3), false},
		{"digest, same user", of(digest1), of(digest2), true},
		{"digest, another user", of(digest1), of(digest3), false},
		{"digest, malformed", of("Digest"), of(`Digest username="`), true},
		{"another scheme: its name only", of("Signature keyId=1"), of("signature keyId=2"), true},
		{"two other schemes", of("Signature x"), of("Hawk x"), false},
		{"GitHub's token, another", of("token ghp_a"), of("token ghp_b"), false},
		{"GitHub's token, the same", of("token ghp_a"), of("Token ghp_a"), true},
		{"Discord's bot, another", of("Bot a"), of("Bot b"), false},
		{"an ApiKey, another", of("ApiKey a"), of("ApiKey b"), false},
		{"a scheme that nobody knows", of("Frob a, b=c"), of("Frob a, b=d"), false},
		{"a bare key", of("abc"), of("abd"), false},
		{"the case of a bare key", of("abc"), of("ABC"), false},
		{"a bare key and a scheme's name", of("token"), of("token x"), false},
		{"Negotiate changes", of("Negotiate YII1"), of("negotiate YII2"), true},
		{"NTLM changes", of("NTLM TlR1"), of("NTLM TlR2"), true},
		{"Hawk changes", of(`Hawk id="1", ts="1", mac="a"`), of(`Hawk id="1", ts="2", mac="b"`), true},
		{"OAuth 1.0 changes", of(`OAuth oauth_consumer_key="k", oauth_signature_method="HMAC-SHA1", oauth_nonce="1"`),
			of(`OAuth oauth_consumer_key="k", oauth_signature_method="HMAC-SHA1", oauth_nonce="2"`), true},
		{"OAuth with a token", of("OAuth 00Dx!a"), of("OAuth 00Dx!b"), false},
		{"S3 of old", of("AWS AKID1:aa="), of("AWS AKID1:bb="), true},
		{"S3 of old, another key", of("AWS AKID1:aa="), of("AWS AKID2:aa="), false},
		{"Azure storage", of("SharedKey acc:aa="), of("SharedKey acc:bb="), true},
		{"Azure storage, another account", of("SharedKey acc:aa="), of("SharedKey other:aa="), false},
		{"Azure configuration", of("HMAC-SHA256 Credential=a&SignedHeaders=host&Signature=x"), of("HMAC-SHA256 Credential=a&SignedHeaders=host&Signature=y"), true},
		{"Google storage", of("GOOG4-RSA-SHA256 Credential=a/1/x, Signature=x"), of("GOOG4-RSA-SHA256 Credential=a/2/x, Signature=y"), true},
		{"Google storage, another account", of("GOOG4-RSA-SHA256 Credential=a/1/x, Signature=x"), of("GOOG4-RSA-SHA256 Credential=b/1/x, Signature=x"), false},
		{"blanks before the credentials", of("Basic  x"), of("Basic x"), true},
		{"where the scheme ends", of("ab c"), of("a bc"), false},
		{"the end of a name alone", of("-SHA256 Credential=a/1"), of("-SHA256 Credential=a/2"), true},
		{"no name before the date", of("HMAC-SHA256 Credential=/1"), of("HMAC-SHA256 Credential=/2"), true},
		{"api-key", header("api-key", "1"), header("api-key", "1"), true},
		{"the two headers are not the same", header("api-key", "1"), header("x-api-key", "1"), false},
		{"authorization comes first", header("Authorization", "Basic x", "x-api-key", "1"), of("Basic x"), true},
		{"x-api-key comes before api-key", header("x-api-key", "1", "api-key", "2"), header("x-api-key", "1"), true},
		{"an empty header is none", of(""), nil, true},
		{"a blank is a bare key", of(" "), nil, false},
		{"a long scheme that nobody knows", of("Frobnicate a"), of("Frobnicate b"), false},
		{"blanks before a value in quotes", of(`Digest username= "ann, x"`), of(`Digest username= "ann, y"`), false},
	}
	names := "x-api-key X-Goog-Api-Key Ocp-Apim-Subscription-Key X-Auth-Token X-Shopify-Access-Token PRIVATE-TOKEN"
	for name := range strings.FieldsSeq(names) {
		tests = append(tests, test{name, header(name, "1"), header(name, "2"), false})
	}
	for _, tt := range tests {
		kind, value := Credentials(tt.a)
		other, second := Credentials(tt.b)
		assert.Equal(t, tt.same, strings.EqualFold(kind, other) && value == second, "%s: %q %q, %q %q", tt.name, kind, value, other, second)
	}
	for _, v := range []string{aws1, digest1, "Bearer a.b.c", "Hawk x", "abc"} {
		h := of(v)
		assert.Zero(t, testing.AllocsPerRun(100, func() { Credentials(h) }), "%s allocations", v)
	}
}

// Whatever a header holds, nothing panics.
func FuzzHeader(f *testing.F) {
	f.Add(`Digest username="a\"b", x=y`)
	f.Add("AWS4-HMAC-SHA256 Credential=")
	f.Add("=,=\"\\")
	f.Fuzz(func(t *testing.T, v string) {
		req := &http.Request{Header: http.Header{"Authorization": {v}, "Signature-Input": {v}}, URL: &url.URL{RawQuery: v}}
		Credentials(req.Header)
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
		"the parameters of other schemes": {field: "Authorization", value: `Hmac nc=00000001, oauth_nonce="n"`},
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
