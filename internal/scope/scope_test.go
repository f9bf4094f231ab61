package scope

import (
	"hash/maphash"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestKey(t *testing.T) {
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
	auth := func(v string) http.Header { return header("Authorization", v) }
	tests := []struct {
		name string
		a, b http.Header
		same bool
	}{
		{"two requests without credentials", nil, header("Accept", "x"), true},
		{"a request without credentials, and another with some", nil, auth("Basic eDp5"), false},
		{"basic, the same", auth("Basic eDp5"), auth("basic eDp5"), true},
		{"basic, another", auth("Basic eDp5"), auth("Basic eDp6"), false},
		{"bearer, another", auth("Bearer a.b.c"), auth("Bearer a.b.d"), false},
		{"basic and bearer", auth("Basic x"), auth("Bearer x"), false},
		{"aws, same key, other date and signature", auth(aws1), auth(aws2), true},
		{"aws, another key", auth(aws1), auth(aws3), false},
		{"digest, same user", auth(digest1), auth(digest2), true},
		{"digest, another user", auth(digest1), auth(digest3), false},
		{"digest, malformed", auth("Digest"), auth(`Digest username="`), true},
		{"another scheme: its name only", auth("Signature keyId=1"), auth("signature keyId=2"), true},
		{"two other schemes", auth("Signature x"), auth("Hawk x"), false},
		{"GitHub's token, another", auth("token ghp_a"), auth("token ghp_b"), false},
		{"GitHub's token, the same", auth("token ghp_a"), auth("Token ghp_a"), true},
		{"Discord's bot, another", auth("Bot a"), auth("Bot b"), false},
		{"an ApiKey, another", auth("ApiKey a"), auth("ApiKey b"), false},
		{"a scheme that nobody knows", auth("Frob a, b=c"), auth("Frob a, b=d"), false},
		{"a bare key", auth("abc"), auth("abd"), false},
		{"the case of a bare key", auth("abc"), auth("ABC"), false},
		{"a bare key and a scheme's name", auth("token"), auth("token x"), false},
		{"Negotiate changes", auth("Negotiate YII1"), auth("negotiate YII2"), true},
		{"NTLM changes", auth("NTLM TlR1"), auth("NTLM TlR2"), true},
		{"Hawk changes", auth(`Hawk id="1", ts="1", mac="a"`), auth(`Hawk id="1", ts="2", mac="b"`), true},
		{"OAuth 1.0 changes", auth(`OAuth oauth_consumer_key="k", oauth_signature_method="HMAC-SHA1", oauth_nonce="1"`),
			auth(`OAuth oauth_consumer_key="k", oauth_signature_method="HMAC-SHA1", oauth_nonce="2"`), true},
		{"OAuth with a token", auth("OAuth 00Dx!a"), auth("OAuth 00Dx!b"), false},
		{"S3 of old", auth("AWS AKID1:aa="), auth("AWS AKID1:bb="), true},
		{"S3 of old, another key", auth("AWS AKID1:aa="), auth("AWS AKID2:aa="), false},
		{"Azure storage", auth("SharedKey acc:aa="), auth("SharedKey acc:bb="), true},
		{"Azure storage, another account", auth("SharedKey acc:aa="), auth("SharedKey other:aa="), false},
		{"Azure configuration", auth("HMAC-SHA256 Credential=a&SignedHeaders=host&Signature=x"), auth("HMAC-SHA256 Credential=a&SignedHeaders=host&Signature=y"), true},
		{"Google storage", auth("GOOG4-RSA-SHA256 Credential=a/1/x, Signature=x"), auth("GOOG4-RSA-SHA256 Credential=a/2/x, Signature=y"), true},
		{"Google storage, another account", auth("GOOG4-RSA-SHA256 Credential=a/1/x, Signature=x"), auth("GOOG4-RSA-SHA256 Credential=b/1/x, Signature=x"), false},
		{"blanks before the credentials", auth("Basic  x"), auth("Basic x"), true},
		{"where the scheme ends", auth("ab c"), auth("a bc"), false},
		{"the end of a name alone", auth("-SHA256 Credential=a/1"), auth("-SHA256 Credential=a/2"), true},
		{"no name before the date", auth("HMAC-SHA256 Credential=/1"), auth("HMAC-SHA256 Credential=/2"), true},
		{"a key of Google's", header("X-Goog-Api-Key", "1"), header("X-Goog-Api-Key", "2"), false},
		{"a key of Azure's", header("Ocp-Apim-Subscription-Key", "1"), header("Ocp-Apim-Subscription-Key", "2"), false},
		{"a token of OpenStack's", header("X-Auth-Token", "1"), header("X-Auth-Token", "2"), false},
		{"a token of Shopify's", header("X-Shopify-Access-Token", "1"), header("X-Shopify-Access-Token", "2"), false},
		{"a token of GitLab's", header("PRIVATE-TOKEN", "1"), header("PRIVATE-TOKEN", "2"), false},
		{"api key", header("x-api-key", "1"), header("x-api-key", "2"), false},
		{"api-key", header("api-key", "1"), header("api-key", "1"), true},
		{"the two headers are not the same", header("api-key", "1"), header("x-api-key", "1"), false},
		{"authorization comes first", header("Authorization", "Basic x", "x-api-key", "1"), auth("Basic x"), true},
		{"x-api-key comes before api-key", header("x-api-key", "1", "api-key", "2"), header("x-api-key", "1"), true},
		{"an empty header is none", auth(""), nil, true},
	}
	seed := maphash.MakeSeed()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.same, Key(seed, tt.a) == Key(seed, tt.b), "the same scope")
			assert.Equal(t, tt.same, Text(tt.a) == Text(tt.b), "the same text: %q and %q", Text(tt.a), Text(tt.b))
			assert.Equal(t, Key(seed, tt.a) == 0, Text(tt.a) == "", "no text, as there is no key")
		})
	}
	for _, name := range keyHeaders {
		assert.Equal(t, http.CanonicalHeaderKey(name), name, "a name that is never found")
	}
	for _, v := range []string{aws1, digest1, "Bearer a.b.c", "Hawk x", "abc"} {
		h := auth(v)
		assert.Zero(t, testing.AllocsPerRun(100, func() { Key(seed, h) }), "%s allocations", v)
	}
}

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

// Whatever a header holds, the same header is the same scope, and nothing
// panics.
func FuzzKey(f *testing.F) {
	f.Add(`Digest username="a\"b", x=y`)
	f.Add("AWS4-HMAC-SHA256 Credential=")
	f.Add("=,=\"\\")
	seed := maphash.MakeSeed()
	f.Fuzz(func(t *testing.T, v string) {
		h := http.Header{"Authorization": {v}}
		assert.Equal(t, Key(seed, h.Clone()), Key(seed, h), "two scopes")
		assert.True(t, Text(h) == Text(h.Clone()) && (Text(h) == "") == (Key(seed, h) == 0), "the text says something else")
		req := &http.Request{Header: http.Header{"Authorization": {v}, "Signature-Input": {v}}, URL: &url.URL{RawQuery: v}}
		SingleUse(req)
		SignsRange(req)
	})
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
