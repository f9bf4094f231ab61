// Command metrics shows requests through a Transport as OpenTelemetry metrics, in the text
// form of Prometheus, as a page /metrics would have them.
//
//	go -C lab/metrics run .
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/aplomb-go/aplomb/internal/fleettest"
	aplombotel "github.com/aplomb-go/aplomb/otel"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	fmt.Print("Requests through a Transport become OpenTelemetry metrics, here as Prometheus\nreads them.\n\n")
	registry := prometheus.NewRegistry()
	tr, err := withMetrics(transport.Config{
		Fleet: fleettest.NewMemory().Member(), // processes have one of package fleet
		Rule:  policy.Rule{Backoff: backoff.Constant(10 * time.Millisecond), Concurrency: policy.Concurrency{Enabled: policy.On, Max: 100}},
	}, registry)
	if err != nil {
		return err
	}
	defer tr.CloseIdleConnections()

	// Every fourth attempt gets a 503.
	var arrived atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if arrived.Add(1)%4 == 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "hello")
	}))
	defer api.Close()
	client := &http.Client{Transport: tr}
	for range 9 {
		resp, err := client.Get(api.URL)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return err
		}
	}

	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return show(page.Body, int(arrived.Load()))
}

// withMetrics returns a Transport whose metrics a registry of Prometheus has. docs/observability.md
// shows this function.
func withMetrics(config transport.Config, registry prometheus.Registerer) (*transport.Transport, error) {
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	telemetry, err := aplombotel.New(aplombotel.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		return nil, err
	}
	config.Traces = append(config.Traces, telemetry.Trace())
	tr, err := transport.New(config)
	if err == nil {
		_, err = telemetry.Observe(tr) // for the gauges of the hosts
	}
	return tr, err
}

// show prints the interesting lines of the page, and checks that the page counts as many
// attempts as the server got. It leaves out the sums, the buckets, and the labels that are
// the same everywhere.
func show(page io.Reader, arrived int) error {
	same := regexp.MustCompile(`,?(http_request_method|network_protocol_version|server_address|server_port)="[^"]*"`)
	attempts, last := 0, ""
	for lines := bufio.NewScanner(page); lines.Scan(); {
		name, rest, labeled := strings.Cut(lines.Text(), "{")
		if !labeled { // it is about no host
			name, rest, _ = strings.Cut(name, " ")
			rest = "} " + rest
		}
		if !strings.HasPrefix(name, "aplomb_") && !strings.HasPrefix(name, "http_client_") || strings.HasSuffix(name, "_bucket") || strings.HasSuffix(name, "_sum") {
			continue
		}
		labels, value, _ := strings.Cut(rest, "} ")
		if name != last {
			fmt.Println(name)
		}
		last = name
		labels = strings.Trim(same.ReplaceAllString(labels, ""), ",")
		fmt.Println(strings.TrimRight(fmt.Sprintf("  %4.4s  %s", value, strings.NewReplacer(",", " ", `"`, "").Replace(labels)), " "))
		if name == "aplomb_attempts_total" {
			n, err := strconv.Atoi(value)
			if err != nil {
				return err
			}
			attempts += n
		}
	}
	if attempts != arrived {
		return fmt.Errorf("the page counts %d attempts, and the server got %d", attempts, arrived)
	}
	fmt.Print("\nThe sums, the buckets, and the labels http_request_method,\nnetwork_protocol_version, server_address and server_port are left out here.\n")
	fmt.Printf("The server got %d requests, and the metrics count as many attempts.\n", arrived)
	return nil
}
