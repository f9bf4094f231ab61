package policy

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAlternatesAreChecked(t *testing.T) {
	for base, why := range map[string]string{
		"eu.example.com":                "does not begin with http:// or https://",
		"ftp://eu.example.com":          "does not begin with http:// or https://",
		"https://":                      "has no host",
		"https:///x":                    "has no host",
		"https://:443":                  "has no host",
		"https://eu.example.com/#x":     "has a fragment",
		"https://eu.example.com/ x":     "is not a URL",
		"https://eu.example.com:port/":  "is not a URL",
		"":                              "does not begin with http:// or https://",
		"https://name:word@example.com": "has a user; a credential does not belong in a rule",
		"https://example.com/?sig=word": "has a query; the query of the request travels",
		"https://eu.example.com/a/b":    "",
		"http://[::1]:8080":             "",
	} {
		err := Rule{Alternates: Alternates{Bases: []string{base}}}.Validate()
		if why == "" {
			assert.NoError(t, err, base)
			continue
		}
		assert.ErrorContains(t, err, "Alternates.Bases: ", base)
		assert.ErrorContains(t, err, why, base)
		assert.NotContains(t, fmt.Sprint(err), "word", "a secret")
	}
	for want, a := range map[string]Alternates{
		`Alternates.Bases: "https://b.test" is there twice`:        {Bases: []string{"https://b.test", "https://b.test"}},
		`Alternates.Bases: are more than 8`:                        {Bases: []string{"http://1", "http://2", "http://3", "http://4", "http://5", "http://6", "http://7", "http://8", "http://9"}},
		`Alternates.Validators: Switch(3) is none of off and on`:   {Validators: 3},
		`Alternates.Credentials: Switch(-3) is none of off and on`: {Credentials: -3},
		`Alternates.Bases: "xxxxx" is not a URL`:                   {Bases: []string{"%zz"}},
	} {
		assert.EqualError(t, Rule{Alternates: a}.Validate(), want)
	}
}

func TestAlternatesInherit(t *testing.T) {
	base := Rule{Alternates: Alternates{Bases: []string{"https://b.test"}, Credentials: On}}
	assert.Equal(t, base.Alternates, Rule{}.Or(base).Alternates)
	off := Rule{Alternates: Alternates{Bases: []string{}}}.Or(base).Alternates
	assert.False(t, off.Enabled())
	assert.Equal(t, On, off.Credentials)
	assert.True(t, base.Alternates.Enabled())
}
