package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Purposes of buffered data.
const (
	// BufferedBodies is the memory of request bodies for local groups, and of lists that the proxy holds as a whole.
	BufferedBodies = "bodies"
	// BufferedRetries is the memory of request bodies that can be sent to an extension server again.
	BufferedRetries = "retries"
	// BufferedPeerRetries is the memory of request bodies that can be sent to another replica again.
	BufferedPeerRetries = "peer_retries"
	// BufferedHeaders is the memory of large request headers.
	BufferedHeaders = "headers"
	// BufferedSlowClients is the memory of responses that clients read slowly.
	BufferedSlowClients = "slow_clients"
	// BufferedMerges is the memory of lists that are merged.
	BufferedMerges = "merges"
)

// Buffered reports portico_buffered_bytes: the bytes that are charged to budgets. A charge that is never released reduces
// its budget for the life of the process, so the gauge reads the budgets at a scrape. A nil *Buffered reports nothing.
type Buffered struct {
	desc *prometheus.Desc

	mu      sync.Mutex // guards budgets
	budgets map[string][]func() int64
}

// NewBuffered registers the metric on reg.
func NewBuffered(reg prometheus.Registerer) *Buffered {
	return register(reg, &Buffered{
		desc: prometheus.NewDesc("portico_buffered_bytes",
			"Memory that is charged for data of requests in progress, by purpose: bodies (request bodies for local groups, and lists that are held as a whole), "+
				"retries and peer_retries (request bodies that can be sent to an extension server or to another replica again), headers (large ones), "+
				"slow_clients (responses that clients read slowly) or merges (lists that are merged).", []string{"purpose"}, nil),
		budgets: make(map[string][]func() int64),
	})
}

// Add adds a budget. charged returns the bytes charged to it, and is called at every scrape. Budgets of one purpose are added up.
func (b *Buffered) Add(purpose string, charged func() int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.budgets[purpose] = append(b.budgets[purpose], charged)
}

// Describe implements prometheus.Collector.
func (b *Buffered) Describe(to chan<- *prometheus.Desc) { to <- b.desc }

// Collect implements prometheus.Collector.
func (b *Buffered) Collect(to chan<- prometheus.Metric) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for purpose, budgets := range b.budgets {
		var sum int64
		for _, charged := range budgets {
			sum += charged()
		}
		to <- prometheus.MustNewConstMetric(b.desc, prometheus.GaugeValue, float64(sum), purpose)
	}
}
