//go:debug tlsmlkem=0

// The post-quantum key exchange takes a third of the CPU time of a handshake, and no rule depends on it.

package simulation

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/go-logr/logr"
	_ "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

var (
	flagSeed   = flag.Int64("seed", -1, "run only this history")
	flagFrom   = flag.Int64("from", -1, "with -seed: run the histories of this seed to -seed in one world")
	flagSeeds  = flag.Int("seeds", 20, "number of histories")
	flagFor    = flag.Duration("for", 0, "run histories of random seeds for this time")
	flagShrink = flag.Bool("shrink", true, "search the shortest part of a schedule that violates the same rule")
	flagSteps  = flag.Int("steps", defaultSteps, "number of faults and operations of a history")
	flagTable  = flag.Bool("table", false, "print which pairs of a fault and an operation the histories reached")
	flagLines  = flag.Bool("timeline", false, "print the timeline of each history")
	flagLog    = flag.Bool("log", false, "print the log of the front doors")
)

// clientDone is the channel that a context of etcd's client returns from Done. Nothing closes it. A goroutine that waits for a
// channel from outside a bubble is not durably blocked, so time would stand still in a bubble with a watch. A nil channel has
// the same meaning.
//
//go:linkname clientDone go.etcd.io/etcd/client/v3.valCtxCh
var clientDone chan struct{}

func TestMain(m *testing.M) {
	clientDone = nil
	// The default handlers sleep until a time that they computed outside of the bubble.
	utilruntime.ErrorHandlers = nil
	klog.SetLogger(logr.Discard())
	wal.SegmentSizeBytes = 1 << 20 // etcd writes two segments of this size at a start, and a crash copies them
	debug.SetGCPercent(800)        // memory is not scarce, and a quarter of the CPU time is saved
	os.Exit(m.Run())
}

// perWorld is the number of histories in one world. A start takes as much CPU time as several histories.
const perWorld = 125

// shapeOf returns the shape of the world in which a seed's history runs.
func shapeOf(seed uint64) shape {
	shapes := []shape{
		{fronts: 1}, {fronts: 2}, {fronts: 1}, {fronts: 1, gateways: 2}, {fronts: 1}, {fronts: 3}, {fronts: 1}, {fronts: 2}, {fronts: 1, gateways: 1}, {fronts: 3},
	}
	s := shapes[seed/perWorld%uint64(len(shapes))]
	s.stores = []bool{false, true, true}
	return s
}

func logger(t testing.TB) *zap.Logger {
	if !*flagLog {
		return zap.NewNop()
	}
	log, err := zap.NewDevelopment()
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// covered counts the pairs of all worlds of this process.
var covered = newCoverage()

func TestHistories(t *testing.T) {
	if *flagTable {
		t.Cleanup(func() { covered.print(os.Stdout) })
	}
	switch {
	case *flagFor > 0:
		runFor(t, *flagFor)
	case *flagSeed >= 0 && *flagFrom >= 0:
		runWorlds(t, uint64(*flagFrom), uint64(*flagSeed))
	case *flagSeed >= 0:
		runWorlds(t, uint64(*flagSeed), uint64(*flagSeed))
	default:
		runWorlds(t, 0, uint64(*flagSeeds)-1)
	}
}

// runWorlds runs the histories of some seeds, in one subtest for each world.
func runWorlds(t *testing.T, first, last uint64) {
	for next := first; next <= last; {
		from, to := next, min(next/perWorld*perWorld+perWorld-1, last)
		t.Run(fmt.Sprintf("seeds %d to %d", from, to), func(t *testing.T) {
			t.Parallel()
			runSeeds(t, from, to)
		})
		next = to + 1
	}
}

// runFor runs histories of random seeds for a time.
func runFor(t *testing.T, limit time.Duration) {
	const batch = 20 // worlds
	deadline, histories := time.Now().Add(limit), 0
	next := uint64(rand.Uint32()) * perWorld
	for time.Now().Before(deadline) {
		t.Run(fmt.Sprintf("from %d", next), func(t *testing.T) { runWorlds(t, next, next+batch*perWorld-1) })
		next, histories = next+batch*perWorld, histories+batch*perWorld
		t.Logf("%d histories", histories)
	}
}

// runSeeds runs the histories of some seeds in one world, and those after a violation of a rule in a new world.
func runSeeds(t *testing.T, from, to uint64) {
	for from <= to {
		var all []numbered
		for seed := from; seed <= to; seed++ {
			all = append(all, numbered{seed, newSchedule(seed, *flagSteps)})
		}
		f := runWorld(t, shapeOf(from), all)
		if f == nil {
			return
		}
		t.Errorf("seed %d violates a rule. Replay it with: go test ./internal/simulation -run TestHistories -seed %d%s\n%s",
			f.seed, f.seed, replayFrom(from, f.seed), f.report)
		if flag.Lookup("test.failfast").Value.String() == "true" {
			return
		}
		if *flagShrink {
			reportShort(t, f)
		}
		from = f.seed + 1
	}
}

// reportShort logs a part of a schedule that violates the same rule.
func reportShort(t *testing.T, f *failure) {
	if short := shrink(t, shapeOf(f.seed), numbered{f.seed, newSchedule(f.seed, *flagSteps)}, f.rule); short != nil {
		t.Logf("these %d of its %d steps suffice:\n%s", len(short), *flagSteps, short)
	} else {
		t.Logf("it does not violate the rule in a new world")
	}
}

func replayFrom(from, seed uint64) string {
	if from == seed {
		return ""
	}
	return fmt.Sprintf(" (and with -from %d, if it needs the histories before it)", from)
}

// numbered is a schedule with its seed.
type numbered struct {
	seed     uint64
	schedule schedule
}

// stalled is how long a world may add nothing to its timeline, in real time.
const stalled = 3 * time.Minute

// watchProgress panics with the goroutines that keep virtual time from passing, if a timeline does not grow. Otherwise the time limit
// of go test would end the test with a dump of thousands of goroutines. stop must be called outside of the bubble.
func watchProgress(l *timeline) (stop func()) {
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(stalled / 10)
		defer tick.Stop()
		for last, since := int64(-1), time.Now(); ; {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if n := l.added.Load(); n != last {
				last, since = n, time.Now()
			} else if time.Since(since) > stalled {
				panic("virtual time stands still. These goroutines wait for something outside of the bubble, or for a mutex:\n\n" + notDurable())
			}
		}
	}()
	return func() { close(done) }
}

// notDurable returns the stacks of the goroutines in bubbles that are not durably blocked.
func notDurable() string {
	stacks := make([]byte, 64<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var found []string
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if first, _, _ := strings.Cut(stack, "\n"); strings.Contains(first, "synctest bubble") && !strings.Contains(first, "(durable)") {
			found = append(found, stack)
		}
	}
	return strings.Join(found, "\n\n")
}

// failure is the violation of a rule in a world.
type failure struct {
	seed         uint64
	rule, report string
}

// runWorld runs histories in a new world, until one violates a rule. It returns nil if none does.
func runWorld(t *testing.T, s shape, all []numbered) (f *failure) {
	dir, err := os.MkdirTemp("", "simulation")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	log := new(timeline)
	defer watchProgress(log)()
	synctest.Test(t, func(t *testing.T) {
		w, err := newWorld(t, dir, s, all[0].seed, log, covered, logger(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range all {
			f = describe(w, n.seed, w.runHistory(n.seed, n.schedule))
			if *flagLines {
				w.log.print(os.Stdout, 0)
			}
			if f != nil {
				break
			}
		}
		if err := w.stop(); err != nil && f == nil {
			t.Error(err)
		}
	})
	return f
}

func describe(w *world, seed uint64, violations []violation) *failure {
	if len(violations) == 0 {
		return nil
	}
	var report strings.Builder
	for _, v := range violations {
		fmt.Fprintln(&report, v)
	}
	w.log.print(&report, 0)
	return &failure{seed, violations[0].rule, report.String()}
}

// shrinkRuns bounds the histories that shrink runs.
const shrinkRuns = 40

// shrink returns a part of a schedule that violates the same rule in a new world, without steps that are not needed. It returns
// nil if the whole schedule does not violate the rule in a new world.
func shrink(t *testing.T, s shape, n numbered, rule string) schedule {
	runs := 0
	violates := func(part schedule) bool {
		runs++
		f := runWorld(t, s, []numbered{{n.seed, part}})
		return f != nil && f.rule == rule
	}
	if !violates(n.schedule) {
		return nil
	}
	short := n.schedule
	for size := (len(short) + 1) / 2; size > 0 && runs < shrinkRuns; {
		removed := false
		for at := 0; at+size <= len(short) && runs < shrinkRuns; {
			part := slices.Concat(short[:at], short[at+size:])
			if violates(part) {
				short, removed = part, true
			} else {
				at += size
			}
		}
		if !removed || size > len(short) {
			size /= 2
		}
	}
	return short
}
