module github.com/aplomb-go/aplomb/examples/fetch

go 1.26.0

require (
	github.com/aplomb-go/aplomb v0.0.0
	github.com/hashicorp/go-cleanhttp v0.5.2
	github.com/mattn/go-runewidth v0.0.16
	golang.org/x/sys v0.49.0
	golang.org/x/term v0.47.0
	golang.org/x/time v0.16.0
)

require (
	github.com/dunglas/httpsfv v1.1.2 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/aplomb-go/aplomb => ../..
