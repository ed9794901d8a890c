package simulation

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/go-logr/logr"
	_ "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

var (
	flagSeed  = flag.Int64("seed", -1, "run only this history")
	flagFrom  = flag.Int64("from", -1, "with -seed: run the histories of this seed to -seed in one world")
	flagSeeds = flag.Int("seeds", 40, "number of histories")
	flagSteps = flag.Int("steps", defaultSteps, "number of faults and operations of a history")
	flagLog   = flag.Bool("log", false, "print the log of the front doors")
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
	os.Exit(m.Run())
}

// perWorld is the number of histories in one world. A start takes as much CPU time as several histories.
const perWorld = 20

// shapeOf returns the shape of the world in which a seed's history runs.
func shapeOf(seed uint64) shape {
	return shape{fronts: 1 + int(seed/perWorld)%3, stores: []bool{false, true, true}}
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

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestHistories(t *testing.T) {
	first, last := uint64(0), uint64(*flagSeeds)-1
	if *flagSeed >= 0 {
		first, last = uint64(*flagSeed), uint64(*flagSeed)
		if *flagFrom >= 0 {
			first = uint64(*flagFrom)
		}
	}
	for from := first; from <= last; {
		to := min(from/perWorld*perWorld+perWorld-1, last)
		t.Run(fmt.Sprintf("seeds %d to %d", from, to), func(t *testing.T) {
			runWorld(t, from, to)
		})
		from = to + 1
	}
}

func runWorld(t *testing.T, from, to uint64) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		started := cpu()
		w, err := newWorld(t, filepath.Join(dir), shapeOf(from), from, logger(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("start: %s CPU", cpu()-started)
		for seed := from; seed <= to; seed++ {
			used, began := cpu(), time.Now()
			s := newSchedule(seed, *flagSteps)
			violations := w.runHistory(seed, s)
			t.Logf("seed %d: %s CPU, %s virtual", seed, cpu()-used, time.Since(began))
			if len(violations) == 0 {
				continue
			}
			var report strings.Builder
			for _, v := range violations {
				fmt.Fprintln(&report, v)
			}
			w.log.print(&report, 0)
			t.Errorf("seed %d:\n%s", seed, report.String())
			break
		}
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	})
}
