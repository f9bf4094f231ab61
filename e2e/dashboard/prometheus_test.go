package dashboard

import (
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/require"
)

// samples are time series in memory. They are a storage.Queryable.
type samples struct {
	began  time.Time
	series map[string]*promql.Series
	engine *promql.Engine
}

func newSamples(began time.Time) *samples {
	return &samples{began: began, series: map[string]*promql.Series{}, engine: promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50e6, Timeout: 5 * time.Minute, LookbackDelta: 5 * time.Minute, Parser: parser.NewParser(parser.Options{}),
	})}
}

// add adds what a scrape found. Prometheus adds the job and the instance.
func (s *samples) add(at time.Time, families []*dto.MetricFamily) {
	for _, family := range families {
		for _, m := range family.GetMetric() {
			put := func(suffix string, v float64, more ...string) {
				pairs := append([]string{model.MetricNameLabel, family.GetName() + suffix, "job", "orders", "instance", "10.0.0.1:8080"}, more...)
				for _, l := range m.GetLabel() {
					pairs = append(pairs, l.GetName(), l.GetValue())
				}
				set := labels.FromStrings(pairs...)
				one := s.series[set.String()]
				if one == nil {
					one = &promql.Series{Metric: set}
					s.series[set.String()] = one
				}
				one.Floats = append(one.Floats, promql.FPoint{T: at.UnixMilli(), F: v})
			}
			switch family.GetType() {
			case dto.MetricType_COUNTER:
				put("", m.GetCounter().GetValue())
			case dto.MetricType_GAUGE:
				put("", m.GetGauge().GetValue())
			case dto.MetricType_HISTOGRAM:
				h := m.GetHistogram()
				for _, b := range h.GetBucket() {
					put("_bucket", float64(b.GetCumulativeCount()), "le", strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64))
				}
				put("_bucket", float64(h.GetSampleCount()), "le", "+Inf")
				put("_count", float64(h.GetSampleCount()))
				put("_sum", h.GetSampleSum())
			}
		}
	}
}

// query returns the values of an expression at each scrape, or a parse error.
func (s *samples) query(t *testing.T, expr string) promql.Matrix {
	t.Helper()
	q, err := s.engine.NewRangeQuery(t.Context(), s, nil, expr, s.began.Add(scrape), s.began.Add(end), scrape)
	require.NoError(t, err, expr)
	defer q.Close()
	result := q.Exec(t.Context())
	require.NoError(t, result.Err, expr)
	require.Empty(t, result.Warnings, expr)
	matrix, err := result.Matrix()
	require.NoError(t, err, expr)
	copied := make(promql.Matrix, 0, len(matrix)) // the engine takes its memory back
	for _, m := range matrix {
		copied = append(copied, promql.Series{Metric: m.Metric, Floats: slices.Clone(m.Floats)})
	}
	return copied
}

// most returns the largest value of a result, and NaN if there is none.
func most(m promql.Matrix) float64 {
	top := math.NaN()
	for _, s := range m {
		for _, p := range s.Floats {
			if !math.IsNaN(p.F) && !math.IsInf(p.F, 0) && !(p.F <= top) {
				top = p.F
			}
		}
	}
	return top
}

// Querier makes samples a storage.Queryable.
func (s *samples) Querier(from, to int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := &seriesSet{}
		for _, one := range s.series {
			if slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(one.Metric.Get(m.Name)) }) {
				continue
			}
			in := promql.Series{Metric: one.Metric}
			for _, p := range one.Floats {
				if p.T >= from && p.T <= to {
					in.Floats = append(in.Floats, p)
				}
			}
			found.series = append(found.series, promql.NewStorageSeries(in))
		}
		slices.SortFunc(found.series, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
		return found
	}}, nil
}

type seriesSet struct {
	series []storage.Series
	next   int
}

func (s *seriesSet) Next() bool {
	s.next++
	return s.next <= len(s.series)
}
func (s *seriesSet) At() storage.Series                { return s.series[s.next-1] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }
