package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestBufferedBytesAreSumOfBudgetsAtScrape(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	b := NewBuffered(reg)
	charged := int64(0)
	b.Add(BufferedSlowClients, func() int64 { return charged })
	b.Add(BufferedSlowClients, func() int64 { return 1 })
	b.Add(BufferedBodies, func() int64 { return 0 })
	charged = 4096
	want := `
# HELP portico_buffered_bytes Memory that is charged for data of requests in progress, by purpose: bodies (request bodies for local groups, and lists that are held as a whole), retries and peer_retries (request bodies that can be sent to an extension server or to another replica again), headers (large ones), slow_clients (responses that clients read slowly) or merges (lists that are merged).
# TYPE portico_buffered_bytes gauge
portico_buffered_bytes{purpose="bodies"} 0
portico_buffered_bytes{purpose="slow_clients"} 4097
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	(*Buffered)(nil).Add(BufferedBodies, nil) // has no effect
}
