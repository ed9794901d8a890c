package durability

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	firstStartPoints = flag.Int("first-start-points", 40, "at how many system calls of a first start the front door is ended; 0: at each, by SIGKILL and by SIGTERM")
	firstStartPart   = flag.String("first-start-part", "1/1", "which part of those: 2/5 is the second, the seventh, the twelfth...")
)

// firstStartBound is the maximum duration of the start after an interrupted one. docs/running.md has the same limit.
const firstStartBound = 2 * time.Minute

// A first start is interrupted at system calls that change its data directory, and the next start must become ready. Otherwise
// the directory would be unusable although it has no data.
func TestAFirstStartMayBeEndedAtAnySystemCall(t *testing.T) {
	calls := 0
	t.Run("to its end", func(t *testing.T) { calls = endFirstStart(t, syscall.SIGKILL, 0).calls })
	if calls < 50 {
		t.Fatalf("%d system calls of a first start that change its data directory, want at least 50", calls)
	}
	points := choosePoints(t, calls)
	t.Logf("%d calls, ended at %d points", calls, len(points))
	var wg sync.WaitGroup
	var mu sync.Mutex // guards next
	next := 0
	for range min(2, runtime.NumCPU()) {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(points) || t.Failed() {
					return
				}
				p := points[i]
				t.Run(fmt.Sprintf("%s at %d", p.signal, p.call), func(t *testing.T) { endFirstStart(t, p.signal, p.call) })
			}
		})
	}
	wg.Wait()
}

func choosePoints(t *testing.T, calls int) []tracePoint {
	t.Helper()
	var all []tracePoint
	if *firstStartPoints == 0 {
		for call := 1; call <= calls; call++ {
			all = append(all, tracePoint{signal: syscall.SIGKILL, call: call}, tracePoint{signal: syscall.SIGTERM, call: call})
		}
	}
	for i := range *firstStartPoints {
		signal := syscall.SIGKILL
		if i%4 == 3 {
			signal = syscall.SIGTERM
		}
		all = append(all, tracePoint{signal: signal, call: 1 + i*calls / *firstStartPoints})
	}
	part, of, _ := strings.Cut(*firstStartPart, "/")
	from, err := strconv.Atoi(part)
	step, err2 := strconv.Atoi(of)
	if err != nil || err2 != nil || from < 1 || from > step {
		t.Fatalf("-first-start-part %q: want something like 2/5", *firstStartPart)
	}
	var chosen []tracePoint
	for i := from - 1; i < len(all); i += step {
		chosen = append(chosen, all[i])
	}
	return chosen
}

// endFirstStart starts a front door on no data, ends it at a call, and starts it again.
func endFirstStart(t *testing.T, signal syscall.Signal, call int) traceResult {
	t.Helper()
	d := newFrontDoor(t)
	dir, err := filepath.EvalSymlinks(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	log, err := os.Create(filepath.Join(dir, "first.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	args := append([]string(nil), d.args...)
	args[2] = data
	point := tracePoint{signal: signal, call: call, dir: data, ready: filepath.Join(data, "admin.kubeconfig")}
	result, err := trace(point, log, *aggregator, args...)
	if err != nil {
		said, _ := os.ReadFile(log.Name())
		t.Fatalf("trace of a first start failed: %v, want no error\n%s", err, said)
	}
	if call == 0 && !result.ready {
		said, _ := os.ReadFile(log.Name())
		t.Fatalf("the first start did not become ready, want ready:\n%s", said)
	}
	began := time.Now()
	d.start()
	if took := time.Since(began); took > firstStartBound {
		t.Errorf("start after an interruption at %s took %s, want at most %s", result.at, took, firstStartBound)
	}
	t.Logf("ended at %q, ready again after %s", result.at, time.Since(began).Round(time.Millisecond))
	d.stop()
	for _, leftover := range []string{"member.new", "member.unused"} {
		if _, err := os.Lstat(filepath.Join(data, "etcd", leftover)); !os.IsNotExist(err) {
			t.Errorf("%s after the start: Lstat error = %v, want it not to exist", leftover, err)
		}
	}
	return result
}
