// Package tools holds nothing: its go.mod pins the tools that make runs.
package tools
