package main

import (
	"slices"
	"strings"
	"testing"
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
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(faults)
	slices.Sort(want)
	if !slices.Equal(faults, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(faults, "\n"), strings.Join(want, "\n"))
	}
}

// TestExceptions: an exception needs a reason, and something to except.
func TestExceptions(t *testing.T) {
	faults, err := check([]string{"testdata/shop"}, exceptions("# shop.Buy is\nshop.Order because\nshop.Bare\nshop.Gone because\n"))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"shop.Order: a user starts from it, and it has no example": false,
		"shop.Bare: has no comment":                                true,
		"shop.Buy: no example uses it":                             true,
		"shop.Gone: allowed.txt names it for nothing":              true,
	} {
		if slices.Contains(faults, text) != want {
			t.Errorf("%s: found is %v, want %v", text, !want, want)
		}
	}
}
