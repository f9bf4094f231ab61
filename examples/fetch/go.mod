module github.com/aplomb-go/aplomb/examples/fetch

go 1.26.0

require (
	github.com/aplomb-go/aplomb v0.0.0
	github.com/mattn/go-runewidth v0.0.16
	github.com/vbauerster/mpb/v8 v8.9.3
	golang.org/x/term v0.47.0
)

require (
	github.com/VividCortex/ewma v1.2.0 // indirect
	github.com/acarl005/stripansi v0.0.0-20180116102854-5a71ef0e047d // indirect
	github.com/dunglas/httpsfv v1.1.2 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/time v0.16.0 // indirect
)

replace github.com/aplomb-go/aplomb => ../..
