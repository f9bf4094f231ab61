// The tool aplomb. To install it by its version, this file must not replace a module.
module github.com/aplomb-go/aplomb/cmd

go 1.26.0

require (
	github.com/aplomb-go/aplomb v0.1.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/dunglas/httpsfv v1.1.2 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/time v0.16.0 // indirect
)
