package attacks

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	portico = "portico"
	library = "library"
)

// attackRow is one attack on one side.
type attackRow struct {
	class string // of classes
	name  string // unique
	side  string // server: by a client on the server; client: by an extension server on the proxy's client
	cves  []string
	sends string // the sent data, for the page
	proof string // the tests of the response; the attack measures cost and effect on the bystander

	do func(*attackRun)
	// h2 and h1 are for attacks by an extension server: its response to a request.
	h2 func(*hostile2, uint32)
	h1 func(*hostile1)
	// beside is the extension server that checks the received requests, for attacks by clients through the proxy: 1 uses
	// HTTP/1.1, 2 HTTP/2.
	beside int
	deaf   bool // once attacked, the extension server reads nothing more
	nul    bool // the extension server's certificate has a NUL after its name; it is never available

	bound bound
	quick bool // it is in the reduced set
	hand  bool // and in the reduced set of the library
	most  time.Duration
}

// bound contains the promised limits. All of them are checked. The reduced set has a margin for the load of the machine.
type bound struct {
	Frames   int64         `json:"frames,omitempty"`   // maximum per connection; 0: unlimited
	CPU      float64       `json:"cpu,omitempty"`      // the front door's CPU time per second of the attacker's, above a twentieth of a core
	Memory   int64         `json:"memory,omitempty"`   // MiB of resident memory above rest, at most
	Heap     int64         `json:"heap,omitempty"`     // MiB of heap and stacks above rest that are kept while the attacker stays
	P99      time.Duration `json:"p99"`                // of the bystander; or slower times its value without an attack, if that is larger
	Outcomes string        `json:"outcomes,omitempty"` // all permitted results, a regular expression
}

const (
	ordinaryMemory = 256 // MiB
	ordinaryHeap   = 32  // MiB
	ordinaryCPU    = 4
	ordinaryP99    = 500 * time.Millisecond
	slower         = 25
)

func (b bound) withDefaults() bound {
	if b.Memory == 0 {
		b.Memory = ordinaryMemory
	}
	if b.Heap == 0 {
		b.Heap = ordinaryHeap
	}
	if b.P99 == 0 {
		b.P99 = ordinaryP99
	}
	if b.CPU == 0 {
		b.CPU = ordinaryCPU
	}
	return b
}

// String returns the non-default limits and the permitted results, for the page.
func (b bound) String() string {
	var parts []string
	if b.CPU != ordinaryCPU {
		parts = append(parts, fmt.Sprintf("CPU %g x", b.CPU))
	}
	if b.Memory != ordinaryMemory {
		parts = append(parts, fmt.Sprintf("peak +%d MiB", b.Memory))
	}
	if b.Heap != ordinaryHeap {
		parts = append(parts, fmt.Sprintf("kept +%d MiB", b.Heap))
	}
	if b.P99 != ordinaryP99 {
		parts = append(parts, fmt.Sprintf("p99 %s", b.P99))
	}
	if b.Frames > 0 {
		parts = append(parts, fmt.Sprintf("%d frames on a connection", b.Frames))
	}
	return strings.Join(append(parts, "only `"+b.Outcomes+"`"), "; ")
}

func (a *attackRow) backend() bool { return a.h1 != nil || a.h2 != nil || a.beside > 0 }

// result is one attack on one engine.
type result struct {
	Class    string   `json:"class"`
	Name     string   `json:"name"`
	Side     string   `json:"side"`
	Engine   string   `json:"engine"`
	CVEs     []string `json:"cves,omitempty"`
	Sends    string   `json:"sends"`
	Proof    string   `json:"proof,omitempty"`
	Bound    bound    `json:"bound"`
	Seconds  float64  `json:"seconds"`
	Attacker report   `json:"attacker"`
	Ours     used     `json:"ours"`
	Bystander
	// Broken lists the exceeded bounds. The test fails if portico has any.
	Broken []string `json:"broken,omitempty"`
}

// used is the resource use of the front door's process for the attack, without its use for the bystander alone.
type used struct {
	CPUSeconds float64 `json:"cpuSeconds"`
	PeakMiB    float64 `json:"peakMiB"` // resident, above rest
	KeptMiB    float64 `json:"keptMiB"` // of heap and stacks, after a collection, while the attacker stays; above rest
	RSSMiB     float64 `json:"rssMiB"`  // resident, the peak itself
}

// judge records the exceeded bounds. lenient is for machines with other load.
func (r *result) judge(rest Latencies, lenient bool) {
	say := func(format string, args ...any) { r.Broken = append(r.Broken, fmt.Sprintf(format, args...)) }
	b := r.Bound
	room, memory := 1.0, 1.0
	if lenient {
		room, memory = 4, 2 // a collection may start at any moment of a short attack
	}
	if limit := room * (b.CPU*r.Attacker.CPU.Seconds() + 0.05*r.Seconds); r.Ours.CPUSeconds > limit {
		say("%.2f s of CPU, bound %.2f s", r.Ours.CPUSeconds, limit)
	}
	if r.Ours.PeakMiB > memory*float64(b.Memory) {
		say("%.0f MiB more at the peak, bound %d", r.Ours.PeakMiB, b.Memory)
	}
	if r.Ours.KeptMiB > memory*float64(b.Heap) {
		say("%.0f MiB more are kept, bound %d", r.Ours.KeptMiB, b.Heap)
	}
	// Data in the kernel's buffers counts too: on a busy machine they may be full.
	frames := b.Frames
	if lenient {
		frames += 1_000_000
	}
	if b.Frames > 0 && r.Attacker.MostFrames > frames {
		say("%d frames on a connection, bound %d", r.Attacker.MostFrames, b.Frames)
	}
	if b.Outcomes != "" {
		allowed := regexp.MustCompile("^(" + b.Outcomes + ")$")
		for _, what := range sortedKeys(r.Attacker.Outcomes) {
			if !allowed.MatchString(what) {
				say("%d times %q", r.Attacker.Outcomes[what], what)
			}
		}
		if len(r.Attacker.Outcomes) == 0 {
			say("no outcome was recorded")
		}
	}
	for _, f := range r.Attacker.Faults {
		say("%s", f)
	}
	if r.During.Failures > 0 {
		say("%d of %d requests of the bystander failed: %s", r.During.Failures, r.During.Requests, strings.Join(r.During.Reasons, "; "))
	}
	if r.During.Requests == 0 {
		say("the bystander sent no requests")
	}
	limit := max(b.P99, slower*rest.P99)
	if lenient {
		limit = max(3*time.Second, limit)
	}
	for name, p99 := range map[string]time.Duration{"requests": r.During.P99, "watch": r.During.WatchP99} {
		if p99 > limit {
			say("p99 of the bystander's %s is %s, bound %s", name, p99.Round(time.Millisecond), limit.Round(time.Millisecond))
		}
	}
	slices.Sort(r.Broken)
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
