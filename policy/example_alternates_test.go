package policy_test

import (
	"fmt"

	"github.com/aplomb-go/aplomb/policy"
)

// If the host is down, its requests go to another region. The path and the query travel,
// and credentials only if Credentials is on. A base is checked like every other setting.
func ExampleAlternates() {
	eu := policy.Rule{Alternates: policy.Alternates{Bases: []string{"https://eu.api.example.com"}}}
	fmt.Println(eu.Validate())

	wrong := policy.Rule{Alternates: policy.Alternates{Bases: []string{"eu.api.example.com"}}}
	fmt.Println(wrong.Validate())
	// Output:
	// <nil>
	// Alternates.Bases: "eu.api.example.com" does not begin with http:// or https://
}
