// Package auth looks at the credentials of requests. They say whose request it is, whether it counts once only, and whether it may
// ask for another range.
package auth

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/dunglas/httpsfv"
)

// Credentials returns the kind of the credentials in a header, and the part of them that each request repeats. The case of the
// kind does not matter (RFC 9110 §11.1).
func Credentials(h http.Header) (kind, value string) {
	if v := first(h, "Authorization"); v != "" {
		return authorization(v)
	}
	for _, name := range keyHeaders {
		if v := first(h, name); v != "" {
			return name, v
		}
	}
	return "", ""
}

// keyHeaders are the headers in which services take a key or a token, in
// canonical form.
var keyHeaders = [...]string{
	"X-Api-Key", "Api-Key", "Apikey", "X-Apikey", "Xi-Api-Key", "Dd-Api-Key",
	"X-Goog-Api-Key",            // Google
	"Ocp-Apim-Subscription-Key", // Azure API Management
	"X-Functions-Key",           // Azure Functions
	"X-Auth-Token",              // OpenStack and others
	"X-Access-Token",
	"X-Auth-Key", // Cloudflare
	"X-Shopify-Access-Token",
	"Private-Token", "Job-Token", "Deploy-Token", // GitLab
	"X-Vault-Token", "X-Consul-Token", "X-Nomad-Token",
	"X-Rapidapi-Key", "X-Mbx-Apikey", "X-Algolia-Api-Key", "X-Redmine-Api-Key",
	"X-Cisco-Meraki-Api-Key", "X-Postmark-Server-Token", "X-Subscription-Token",
	"X-Figma-Token", "Circle-Token",
}

// first returns the first value of a header. name is in canonical form.
func first(h http.Header, name string) string {
	if vs := h[name]; len(vs) > 0 {
		return vs[0]
	}
	return ""
}

// authorization is credentials for an Authorization. The kind is its scheme.
func authorization(v string) (scheme, value string) {
	scheme, rest, named := strings.Cut(v, " ")
	rest = strings.TrimLeft(rest, " ")
	kind, known := changing(scheme)
	switch {
	case !named && !known || scheme == "":
		return "authorization", v // a bare token
	case !known:
		return scheme, rest
	case kind == byCredential:
		id := param(rest, "Credential")
		if end := strings.IndexAny(id, "/&"); end >= 0 {
			id = id[:end] // the date follows in AWS, and the other parameters in Azure
		}
		return scheme, id
	case kind == byKeyID:
		id, _, _ := strings.Cut(rest, ":")
		return scheme, id
	case kind == byUser:
		return scheme, param(rest, "username")
	case kind == byTokenUnlessSigned && param(rest, "oauth_signature_method") == "":
		return scheme, rest
	}
	return scheme, ""
}

// A steady says which part of an Authorization each request repeats, for schemes that
// change other parts.
type steady uint8

const (
	byName  steady = iota
	byNonce        // its name as well; servers take each nonce once
	byCredential
	byKeyID
	byUser
	byTokenUnlessSigned // OAuth 1.0 is a signature; other uses of the name have a plain token
)

// SingleUse reports whether a request has a proof that a server takes once: a DPoP (RFC 9449 §4.2),
// an X-WSSE, a nonce of OAuth 1.0 (RFC 5849 §3.3), of Hawk and the like, or in a Signature-Input (RFC
// 9421 §2.3), or the nonce count of Digest (RFC 7616 §3.4). If it is sent again as it is, the response
// says that the proof was used.
func SingleUse(r *http.Request) bool {
	h := r.Header
	if r.URL != nil && strings.Contains(r.URL.RawQuery, "oauth_nonce=") ||
		slices.ContainsFunc([]string{"Dpop", "DPoP", "X-Wsse", "X-WSSE"}, func(name string) bool { return len(h[name]) > 0 }) {
		return true
	}
	if auth := h["Authorization"]; len(auth) > 0 {
		scheme, rest, _ := strings.Cut(auth[0], " ")
		switch part, _ := changing(scheme); { // an unknown scheme has none of these parts
		case part == byNonce,
			part == byUser && param(rest, "nc") != "",
			part == byTokenUnlessSigned && param(rest, "oauth_nonce") != "":
			return true
		}
	}
	return len(h["Signature-Input"]) > 0 && anySignature(h, func(s httpsfv.InnerList) bool {
		_, has := s.Params.Get("nonce")
		return has
	})
}

// SignsRange reports whether a signature of the request is wrong with another Range or If-Range. It
// covers either of them, or has to cover a Range that is there, as that of Azure (SharedKey).
func SignsRange(r *http.Request) bool {
	scheme, rest, _ := strings.Cut(first(r.Header, "Authorization"), " ")
	query := ""
	if r.URL != nil {
		query, _ = url.QueryUnescape(r.URL.RawQuery)
	}
	return strings.EqualFold(scheme, "SharedKey") || namesRange(rest) || namesRange(query) || len(r.Header["Signature-Input"]) > 0 && anySignature(r.Header, func(s httpsfv.InnerList) bool {
		return slices.ContainsFunc(s.Items, func(component httpsfv.Item) bool {
			return component.Value == "range" || component.Value == "if-range"
		})
	})
}

// namesRange reports whether a signature lists Range or If-Range among the fields that it covers.
// The list is named SignedHeaders, AdditionalHeaders or headers.
func namesRange(signature string) bool {
	_, list, _ := strings.Cut(strings.ToLower(signature), "headers=")
	list, _, _ = strings.Cut(list, "&")
	return slices.ContainsFunc(strings.FieldsFunc(list, func(c rune) bool { return c != '-' && (c < 'a' || c > 'z') }), func(name string) bool {
		return name == "range" || name == "if-range"
	})
}

// anySignature reports whether f is true of a signature in the Signature-Input (RFC 9421 §4.1). Its
// items are the components that it covers.
func anySignature(h http.Header, f func(httpsfv.InnerList) bool) bool {
	all, err := httpsfv.UnmarshalDictionary(h["Signature-Input"])
	return err == nil && slices.ContainsFunc(all.Names(), func(name string) bool {
		member, _ := all.Get(name)
		signature, ok := member.(httpsfv.InnerList)
		return ok && f(signature)
	})
}

// changing returns the steady part of a scheme whose value changes with every
// request. known is false for other schemes.
func changing(scheme string) (part steady, known bool) {
	for _, s := range changingSchemes {
		if strings.EqualFold(scheme, s.name) {
			return s.part, true
		}
	}
	// These are AWS4-HMAC-SHA256, GOOG4-RSA-SHA256, TC3-HMAC-SHA256 and the like.
	const suffix = "-SHA256"
	return byCredential, len(scheme) >= len(suffix) && strings.EqualFold(scheme[len(scheme)-len(suffix):], suffix)
}

var changingSchemes = [...]struct {
	name string
	part steady
}{
	{"Negotiate", byName}, {"NTLM", byName}, {"Kerberos", byName},
	{"Hawk", byNonce}, {"MAC", byNonce}, {"Signature", byName}, {"Hmac", byName},
	{"SCRAM-SHA-1", byName}, {"SCRAM-SHA-256", byName}, {"HOBA", byName}, {"Mutual", byName},
	{"EG1-HMAC-SHA256", byNonce}, {"VERACODE-HMAC-SHA-256", byNonce},
	{"AWS", byKeyID}, {"GOOG1", byKeyID}, {"OSS", byKeyID}, {"OBS", byKeyID},
	{"SharedKey", byKeyID}, {"SharedKeyLite", byKeyID},
	{"Digest", byUser},
	{"OAuth", byTokenUnlessSigned},
}

// param returns the value of a parameter in a list such as name=value, name="value"
// (RFC 9110 §11.2), without quotes. It returns "" if there is none. For a malformed
// list any result will do, as long as it is always the same.
func param(list, name string) string {
	for list != "" {
		var key string
		key, list, _ = strings.Cut(list, "=")
		key = strings.Trim(key, " \t,")
		list = strings.TrimLeft(list, " \t")
		var value string
		if strings.HasPrefix(list, `"`) {
			value, list = quoted(list[1:])
		} else {
			value, list, _ = strings.Cut(list, ",")
		}
		if strings.EqualFold(key, name) {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// quoted splits a quoted string, whose opening quote was removed, from the rest.
// Escapes stay as they are.
func quoted(s string) (value, rest string) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}
