package gateway

import (
	"strings"
	"testing"
	"time"

	"portico.dev/e2e/environment"
)

// A ratio relates to the bare proxy in the same round, and the report marks a target that is not met.
func TestReport(t *testing.T) {
	interval := func(kube, hop time.Duration) environment.Interval {
		i := environment.Interval{Server: kube, Backend: hop}
		i.P50, i.P99, i.PerSecond = time.Millisecond, 2*time.Millisecond, 1000
		return i
	}
	us := time.Microsecond
	rows := []Row{
		{Cell: cells()[0], Way: names[directly], intervals: []environment.Interval{interval(100*us, 10*us), interval(200*us, 10*us)}},
		{Cell: cells()[0], Way: names[throughBare], intervals: []environment.Interval{interval(100*us, 40*us), interval(200*us, 80*us)}},
		{Cell: cells()[0], Way: names[throughGateway], intervals: []environment.Interval{interval(110*us, 20*us), interval(220*us, 40*us)}},
		{Cell: cells()[0], Way: names[throughFloor], intervals: []environment.Interval{interval(110*us, 10*us), interval(220*us, 20*us)}},
	}
	summarize(rows)
	if got := rows[throughGateway]; got.HopToBare.Median != 0.5 || got.KubeToDirectly.Median != 1.1 || got.HopCPU.Median != 30 {
		t.Errorf("row of the gateway = %+v, want the ratios 0.5 and 1.1 and 30 us", got)
	}
	if got := rows[directly].HopCPU.Median; got != 0 {
		t.Errorf("CPU of the hop without a hop = %v, want 0", got)
	}
	watches := []WatchRow{{Way: names[directly]}, {Way: names[throughBare]}, {Way: names[throughGateway]}, {Way: names[throughFloor]}}
	for i, hop := range []time.Duration{1, 10 * us, 9 * us, 7 * us} {
		watches[i].deliveries = []environment.Delivery{{Server: 50 * us, Backend: hop, BackendPeak: 64 << 20}}
	}
	summarizeWatches(watches)
	r := &Report{Requests: rows, Watches: watches, Idle: []IdleRow{{Who: "without a gateway", KubeAPIServer: 20}, {Who: "with a gateway", KubeAPIServer: 21, Gateway: 3, RSS: 80}}}
	page, err := r.Markdown()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| 0.60x | 0.50x |", "| 0.60x | 0.90x: **not met** |", "| with a gateway | 21.0 | 3.0 | 80 |", "| without a gateway | 20.0 |  |  |",
		"The floor is 0.25x (GET 1 KB, 1 at once), 0.70x (a watch event)."} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page has no %q, want it:\n%s", want, page)
		}
	}
}
