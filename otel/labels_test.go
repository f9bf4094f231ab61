package aplombotel

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/otel/metric"
)

// TestPeersAreBounded: a program that calls any number of servers does not fill the memory.
func TestPeersAreBounded(t *testing.T) {
	p := &peers{known: map[peerKey]*peer{}}
	for i := range most + 10 {
		req := httptest.NewRequest(http.MethodGet, fmt.Sprintf("http://h%d.test/", i), nil)
		p.of(req).set(labels{of: requests}).count.Add(1)
		p.of(req).set(labels{of: requests, status: 200}).count.Add(1)
	}
	assert.Len(t, p.known, most)
	assert.Len(t, p.kept[requests], most)
	total := int64(0)
	p.observe(func(_ measure, count int64, _ metric.MeasurementOption) { total += count })
	assert.EqualValues(t, 2*(most+10), total)
	assert.EqualValues(t, most+2*10, p.overflow[requests].Load())
}
