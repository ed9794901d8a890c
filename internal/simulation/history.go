package simulation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// history is one execution of a schedule in a world.
type history struct {
	*world
	seed      uint64
	schedule  schedule
	ctx       context.Context // ends at the first violation
	cancel    context.CancelFunc
	began     time.Time
	paused    time.Duration // by how much steps are later than scheduled
	active    []step        // faults that have not ended
	work      sync.WaitGroup
	watching  watching
	deletions deletions
	registers registers
	// scrapes are the metrics of the front doors, which several conditions at rest use: a scrape takes as much CPU time as ten other
	// requests. They are read again after a condition has failed. The map belongs to the goroutine of the history.
	scrapes map[*front]map[string]float64

	mu         sync.Mutex // guards the fields below
	violations []violation
	fullSince  time.Time            // when the alarm of a full etcd was raised; zero if it is not
	disturbed  map[string]time.Time // last change of a fault, by the name of a server, as if without pauses since
	inProgress map[string]int       // operations, by their name
}

// violation is a broken rule.
type violation struct {
	rule string
	at   time.Duration
	text string
}

func (v violation) String() string {
	return fmt.Sprintf("%.3fs: rule %q: %s", v.at.Seconds(), v.rule, v.text)
}

// runHistory executes a schedule, and returns the violations of rules.
func (w *world) runHistory(seed uint64, s schedule) []violation {
	h := &history{world: w, seed: seed, schedule: s, disturbed: make(map[string]time.Time), inProgress: make(map[string]int), scrapes: make(map[*front]map[string]float64)}
	h.ctx, h.cancel = context.WithCancel(w.ctx)
	defer h.cancel()
	w.log.start()
	w.ledger.clear()
	h.began = time.Now()
	h.registers.since = w.etcd.server.KV().Rev()
	h.log.addf("history of seed %d", seed)
	h.play()
	h.log.addf("the faults end")
	h.mend()
	h.work.Wait()
	h.converge()
	h.endWatches()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.violations
}

// play executes the steps, and ends faults when they have lasted long enough.
func (h *history) play() {
	next := h.schedule
	for (len(next) > 0 || len(h.active) > 0) && h.ctx.Err() == nil {
		ending := h.nextEnd()
		if ending >= 0 && (len(next) == 0 || h.endOf(ending) <= next[0].at) {
			s := h.active[ending]
			h.sleepUntil(h.endOf(ending))
			h.active = append(h.active[:ending:ending], h.active[ending+1:]...)
			h.log.addf("end   %s", s)
			actionNamed(s.action).end(h, s)
			continue
		}
		s := next[0]
		next = next[1:]
		h.sleepUntil(s.at)
		h.checkLeaders()
		a := actionNamed(s.action)
		if a.end == nil {
			h.progress(a.name, 1)
			h.work.Go(func() {
				defer h.progress(a.name, -1)
				a.begin(h, s)
			})
			continue
		}
		h.log.addf("begin %s", s)
		h.coverage.add(a.name, h.operations())
		a.begin(h, s)
		h.active = append(h.active, s)
	}
}

func (h *history) endOf(i int) time.Duration { return h.active[i].at + h.active[i].lasts }

// nextEnd returns the index of the active fault that ends first, or -1.
func (h *history) nextEnd() int {
	first := -1
	for i := range h.active {
		if first < 0 || h.endOf(i) < h.endOf(first) {
			first = i
		}
	}
	return first
}

func (h *history) sleepUntil(at time.Duration) {
	if wait := at + h.paused - time.Since(h.began); wait > 0 {
		time.Sleep(wait)
	}
}

// progress counts the operations in progress.
func (h *history) progress(name string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inProgress[name] += n
}

// operations returns the names of the operations in progress.
func (h *history) operations() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var names []string
	for name, n := range h.inProgress {
		if n > 0 {
			names = append(names, name)
		}
	}
	return names
}

// postpone makes later steps, and the ends of faults, later. It is called in the goroutine of the history.
func (h *history) postpone(by time.Duration) {
	h.paused += by
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, at := range h.disturbed {
		h.disturbed[name] = at.Add(by)
	}
}

// violate records the violation of a rule.
func (h *history) violate(rule, format string, args ...any) {
	v := violation{rule, time.Since(h.began), fmt.Sprintf(format, args...)}
	h.log.addf("VIOLATION of %q: %s", v.rule, v.text)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violations = append(h.violations, v)
	h.cancel()
}

// check records an error of the simulation itself.
func (h *history) check(err error) {
	if err != nil && h.ctx.Err() == nil {
		h.violate("the simulation works", "%v", err)
	}
}

// disturb records that a fault of a server has begun or ended.
func (h *history) disturb(name string) {
	if !slices.ContainsFunc(h.backends, func(b *backend) bool { return b.name == name }) {
		h.world.unsteady = time.Now()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.disturbed[name] = time.Now()
}

// settle is how long the effects of a fault may last after its end.
const settle = 20 * time.Second

// calm reports whether the named servers have had no fault from some time before a moment until now.
func (h *history) calm(since time.Time, names ...string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range names {
		// A fault that is active has begun at most longest ago.
		if at, known := h.disturbed[name]; known && at.After(since.Add(-longest-settle)) {
			return false
		}
	}
	return true
}

func (h *history) front(n int) *front            { return h.fronts[n%len(h.fronts)] }
func (h *history) gateway(n int) *gatewayReplica { return h.gateways[n%len(h.gateways)] }
func (h *history) backend(n int) *backend        { return h.backends[n%len(h.backends)] }
