package drill

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Row summarizes the requests of one verb to one component in one phase.
type Row struct {
	Who   string `json:"who"`
	Verb  string `json:"verb"`
	Phase string `json:"phase"`
	Count int    `json:"requests"`
	// Outcomes counts the requests by status code, "no answer" or "broken off".
	Outcomes map[string]int `json:"outcomes"`
	Reasons  map[string]int `json:"reasons,omitempty"`
	Median   Seconds        `json:"medianSeconds"`
	Max      Seconds        `json:"maxSeconds"`
}

var (
	componentOrder = []string{Subject, Documents, Informers, OtherBackend, Bystander, OtherCluster, Local, Discovery, OpenAPI}
	verbOrder      = []string{"get", "list", "create", "delete", "watch"}
	phaseOrder     = []string{"before", "during", "after"}
)

// Rows summarizes the requests of a history.
func Rows(h *History) []Row {
	type key struct{ who, verb, phase string }
	groups := map[key][]Request{}
	for _, r := range h.Requests {
		k := key{r.Who, r.Verb, h.phase(r.Start)}
		groups[k] = append(groups[k], r)
	}
	out := make([]Row, 0, len(groups))
	for k, requests := range groups {
		row := Row{Who: k.who, Verb: k.verb, Phase: k.phase, Count: len(requests), Outcomes: map[string]int{}}
		var times []time.Duration
		for _, r := range requests {
			row.Outcomes[r.Outcome()]++
			times = append(times, r.Took)
			if r.Reason != "" {
				if row.Reasons == nil {
					row.Reasons = map[string]int{}
				}
				row.Reasons[r.Reason]++
			}
		}
		slices.Sort(times)
		row.Median, row.Max = Seconds(times[len(times)/2]), Seconds(times[len(times)-1])
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b Row) int {
		return cmp.Or(
			cmp.Compare(slices.Index(componentOrder, a.Who), slices.Index(componentOrder, b.Who)),
			cmp.Compare(slices.Index(verbOrder, a.Verb), slices.Index(verbOrder, b.Verb)),
			cmp.Compare(slices.Index(phaseOrder, a.Phase), slices.Index(phaseOrder, b.Phase)),
		)
	})
	return out
}

// Measures that every drill has.
const (
	TimeToDetect  = "time to detect"
	TimeToRecover = "time to recover"
	FirstSuccess  = "first success after mending"
	// machineStood is present only if the machine stalled.
	machineStood = "the machine stood still; what touched that is excused"
)

// measures returns the measures that every drill has, followed by the measures of this drill.
func measures(h *History) []Measure {
	var out []Measure
	add := func(name string, from time.Time, at time.Time, came bool) {
		switch {
		case from.IsZero():
		case came:
			out = append(out, Measure{Name: name, Seconds: Seconds(at.Sub(from))})
		default:
			out = append(out, Measure{Name: name, Seconds: Seconds(h.Ended.Sub(from)), Never: true})
		}
	}
	at, came := h.Detected()
	add(TimeToDetect, h.Broke, at, came)
	at, came = h.Recovered()
	add(TimeToRecover, h.Mended, at, came)
	at, came = h.served()
	add(FirstSuccess, h.Mended, at, came)
	if worst := h.longestStall(); worst > 0 {
		out = append(out, Measure{Name: machineStood, Seconds: Seconds(worst)})
	}
	return append(out, h.Measures...)
}

func codeText(code int) string { return strconv.Itoa(code) }

// Observer receives the progress of drills. Calls are serialized.
type Observer interface {
	Phase(drill, phase string)
	Done(*Result)
}

// Series runs drills, one at a time on each target, and returns their results in the same order. Drills on the same
// target never run concurrently, because a dead server that stores objects blocks the deletion of every namespace,
// including the namespaces of another drill. When ctx ends, running drills are cleaned up and the remaining ones do
// not start.
func Series(ctx context.Context, drills []Drill, targets []Target, o Observer) []*Result {
	results := make([]*Result, len(drills))
	next := make(chan int)
	var mu sync.Mutex // guards o
	var wg sync.WaitGroup
	for _, t := range targets {
		wg.Go(func() {
			for i := range next {
				results[i] = observed(ctx, drills[i], t, o, &mu)
			}
		})
	}
	for i := range drills {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return held(results)
}

func observed(ctx context.Context, d Drill, t Target, o Observer, mu *sync.Mutex) *Result {
	r := Run(ctx, d, t, func(phase string) {
		mu.Lock()
		defer mu.Unlock()
		o.Phase(d.Name, phase)
	})
	mu.Lock()
	defer mu.Unlock()
	o.Done(r)
	return r
}

// held removes the entries of drills that did not start.
func held(results []*Result) []*Result {
	out := make([]*Result, 0, len(results))
	for _, r := range results {
		if r != nil {
			out = append(out, r)
		}
	}
	return out
}
