package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestShop: of a package with faults, exactly these are found.
func TestShop(t *testing.T) {
	want := []string{
		"shop: the first sentence of the package comment has 26 letters, not 50 to 140",
		"shop.Bare: has no comment",
		"shop.Buy: no example uses it",
		"shop.Counter: a user starts from it, and it has no example",
		"shop.Order: a user starts from it, and it has no example",
		"shop.Order.Extra: has no comment",
		"shop.Order.Name: has no comment",
		"shop.Stock.Count: has no comment",
	}
	faults, err := check([]string{"testdata/shop"}, nil)
	require.NoError(t, err)
	assert.ElementsMatch(t, want, faults)
}

// TestExceptions: an exception needs a reason, and something to except.
func TestExceptions(t *testing.T) {
	faults, err := check([]string{"testdata/shop"}, exceptions("# shop.Buy is\nshop.Order because\nshop.Bare\nshop.Gone because\n"))
	require.NoError(t, err)
	for text, want := range map[string]bool{
		"shop.Order: a user starts from it, and it has no example": false,
		"shop.Bare: has no comment":                                true,
		"shop.Buy: no example uses it":                             true,
		"shop.Gone: allowed.txt names it for nothing":              true,
	} {
		assert.Equal(t, want, slices.Contains(faults, text), text)
	}
}
