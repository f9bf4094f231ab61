module github.com/aplomb-go/aplomb/e2e

go 1.26.0

require (
	github.com/aplomb-go/aplomb v0.0.0
	github.com/quic-go/quic-go v0.65.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/dunglas/httpsfv v1.1.2 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/quic-go/qpack v0.6.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/time v0.16.0 // indirect
)

replace github.com/aplomb-go/aplomb => ..
