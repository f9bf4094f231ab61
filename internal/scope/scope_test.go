package scope

import (
	"hash/maphash"
	"net/http"
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
	for _, v := range []string{aws1, digest1, "Bearer a.b.c", "Hawk x", "abc"} {
		h := auth(v)
		assert.Zero(t, testing.AllocsPerRun(100, func() { Key(seed, h) }), "%s allocations", v)
	}
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
	})
}
