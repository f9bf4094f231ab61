// Package dashboard tests docs/grafana.json and docs/alerts.yml with Prometheus' own packages.
// A Transport meets faults in virtual time, the exporter of lab/metrics writes its metrics, and
// each query and each alert is evaluated over them.
//
// The files:
//
//	story_test.go      an hour of requests, with twenty minutes of faults
//	prometheus_test.go samples in memory, and queries over them
//	dashboard_test.go  each query returns data, the first panel names the hosts in trouble, each
//	                   alert fires when it should
package dashboard
