package measure

import (
	"bytes"
	"fmt"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Memory is what a Go program tells of its memory in its metrics.
type Memory struct {
	// Allocations and AllocatedBytes are since its start.
	Allocations, AllocatedBytes float64
	// Kept is what the last collection left, as the goal of the next one tells.
	Kept       float64
	Goroutines float64
}

// ReadMemory finds it in a page of metrics.
func ReadMemory(page []byte) (Memory, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return Memory{}, fmt.Errorf("read metrics: %w", err)
	}
	value := func(name string) float64 {
		f := families[name]
		if f == nil || len(f.Metric) == 0 {
			err = fmt.Errorf("no metric %s", name)
			return 0
		}
		if counter := f.Metric[0].Counter; counter != nil {
			return counter.GetValue()
		}
		return f.Metric[0].Gauge.GetValue()
	}
	m := Memory{
		Allocations: value("go_memstats_mallocs_total"), AllocatedBytes: value("go_memstats_alloc_bytes_total"),
		Goroutines: value("go_goroutines"),
	}
	m.Kept = value("go_memstats_next_gc_bytes") * 100 / (100 + value("go_gc_gogc_percent"))
	return m, err
}
