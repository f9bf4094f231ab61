// Command metrics shows requests through a Transport as OpenTelemetry metrics, in the text
// form of Prometheus, as a page /metrics would have them.
//
//	go -C examples/metrics run .
package main

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

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
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	if err != nil {
		return err
	}
	telemetry, err := aplombotel.New(aplombotel.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		return err
	}
	tr, err := transport.New(transport.Config{
		Trace: telemetry.Trace(),
		Rule:  policy.Rule{Backoff: backoff.Constant(10 * time.Millisecond), Gate: policy.Gate{Mode: policy.GateWait}},
	})
	if err != nil {
		return err
	}
	defer tr.CloseIdleConnections()
	stop, err := telemetry.Watch(tr)
	if err != nil {
		return err
	}
	defer func() { _ = stop() }()

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
		if err := resp.Body.Close(); err != nil {
			return err
		}
		if err != nil {
			return err
		}
	}

	page := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer page.Close()
	return show(page.URL, int(arrived.Load()))
}

// show prints the interesting lines of the page, and checks that the page counts as many
// attempts as the server got.
func show(url string, arrived int) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	attempts := 0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "#") || !strings.HasPrefix(line, "aplomb_") || strings.Contains(line, "_bucket{") {
			continue
		}
		fmt.Println(line)
		if strings.HasPrefix(line, "aplomb_client_attempts_total") {
			n := 0
			if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &n); err != nil {
				return err
			}
			attempts += n
		}
	}
	if attempts != arrived {
		return fmt.Errorf("the page counts %d attempts, and the server got %d", attempts, arrived)
	}
	fmt.Printf("\nThe server got %d requests, and the metrics count the same number of attempts.\n", arrived)
	return nil
}
