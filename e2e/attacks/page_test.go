package attacks

import (
	"testing"

	"portico.dev/e2e/bench/measure"
)

// page is docs/attacks.json.
type page struct {
	Machine measure.Machine      `json:"machine"`
	Rest    map[string]Latencies `json:"rest"`
	Results []result             `json:"results"`
}

func (p *page) write(t *testing.T) {}
