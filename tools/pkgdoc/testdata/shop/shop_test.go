package shop_test

import "example.com/shop"

func ExampleOpen() {
	shop.Sell(shop.Open())
	// Output:
}

func ExampleExtra() {
	_ = shop.Extra{}
	// Output:
}
