package attacks

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	bench "portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
	"portico.dev/e2e/programs"
)

// TestAttacks runs the attacks, and fails if a bound does not hold. net/http's server is not required to hold them: the page
// lists its results.
func TestAttacks(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the resource use of another process is available only on Linux")
	}
	if *write && !*whole {
		t.Fatal("flag -write without -whole, want both: the page needs results of -whole")
	}
	p := page{Engines: map[string]run{}}
	for _, engine := range chosenEngines() {
		t.Run(engine, func(t *testing.T) {
			machine := measure.ThisMachine()
			if *program != "" {
				machine.Commit = "unknown (program of the flag -aggregator); attacked by commit " + machine.Commit
			}
			rest, results := attackEngine(t, engine, chosenRows(t, engine))
			p.Engines[engine] = run{machine, rest}
			p.Results = append(p.Results, results...)
		})
	}
	if *write {
		p.write(t)
	}
}

func chosenEngines() []string {
	if *engines != "" {
		return strings.Split(*engines, ",")
	}
	return []string{portico, library}
}

func chosenRows(t *testing.T, engine string) []*attackRow {
	name, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(rowsOfAll(), func(a *attackRow) bool {
		chosen := *whole || *only != "" || a.quick && engine == portico || a.hand && engine == library
		return !chosen || !name.MatchString(a.name) || *side != "" && *side != a.side
	})
}

func attackEngine(t *testing.T, engine string, rows []*attackRow) (rest Latencies, results []result) {
	if len(rows) == 0 {
		return rest, nil
	}
	e := newEnvironment(t, engine, rows)
	b, err := newBystander(t.Context(), e.front.Server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.end)
	if err := programs.Poll(t.Context().Done(), func() error { // its connections are made
		wait(t, time.Second)
		if seen := b.take(); seen.Requests < 20 || seen.Failures > 0 || seen.Events == 0 {
			return fmt.Errorf("without an attack: %+v", seen)
		}
		return nil
	}); err != nil {
		t.Fatalf("the bystander without an attack: %v, want at least 20 requests, events and no failures\n%s", err, e.logged())
	}
	before, err := measure.CPU(e.front.PID)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	wait(t, max(duration(), 2*time.Second))
	rest = b.take()
	after, err := measure.CPU(e.front.PID)
	if err != nil {
		t.Fatal(err)
	}
	if rest.Requests < 20 || rest.Failures > 0 || rest.Events == 0 {
		t.Fatalf("the bystander without an attack = %+v, want at least 20 requests, events and no failures\n%s", rest, e.logged())
	}
	resting := (after - before).Seconds() / time.Since(began).Seconds()
	t.Logf("at rest: %d requests, p50 %s, p99 %s, watch p99 %s, %.3f of a core", rest.Requests, rest.P50, rest.P99, rest.WatchP99, resting)
	for _, a := range rows {
		if !t.Run(strings.ReplaceAll(a.name, " ", "_"), func(t *testing.T) { results = append(results, e.try(t, engine, a, b, rest, resting)) }) && t.Context().Err() != nil {
			break
		}
	}
	return rest, results
}

// wait lets time pass for a measurement.
func wait(t *testing.T, d time.Duration) {
	if err := bench.Pause(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// try is one attack.
func (e *environment) try(t *testing.T, engine string, a *attackRow, b *bystander, rest Latencies, resting float64) result {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := e.front.Collect(ctx); err != nil {
		t.Fatal(err)
	}
	if err := resetPeak(e.front.PID); err != nil {
		t.Fatal(err)
	}
	before, err := e.sample(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b.take()
	began := time.Now()
	attacker, err := e.order(order{Attack: a.name, Lasts: a.duration(), Hold: true})
	lasted := time.Since(began)
	during := b.take()
	if err != nil {
		t.Fatalf("the attack failed: %v, want a report\n%s", err, e.logged())
	}
	cpu, err := measure.CPU(e.front.PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.front.Collect(ctx); err != nil {
		t.Fatalf("garbage collection after the attack failed: %v, want no error\n%s", err, e.logged())
	}
	after, err := e.sample(ctx)
	if err != nil {
		t.Fatalf("sample after the attack failed: %v, want no error\n%s", err, e.logged())
	}
	if _, err := e.order(order{}); err != nil { // it closes its connections
		t.Fatal(err)
	}
	const mib = 1 << 20
	r := result{
		Class: a.class, Name: a.name, Side: a.side, Engine: engine, CVEs: a.cves, Sends: a.sends, Proof: a.proof, Bound: a.bound.withDefaults(),
		Seconds: lasted.Seconds(), Attacker: attacker, Bystander: Bystander{during},
		Ours: used{
			CPUSeconds: max(0, (cpu-before.cpu).Seconds()-resting*lasted.Seconds()), PeakMiB: max(0, float64(after.peak-before.rss)/mib),
			KeptMiB: max(0, float64(after.heap-before.heap)/mib), RSSMiB: float64(after.peak) / mib,
		},
	}
	r.judge(rest, !*whole)
	t.Logf("%.2f s: attacker %.2f s CPU, %d frames, %d bytes, %d connections, at most %d frames on one; ours %.2f s CPU, peak +%.0f MiB (%.0f), kept +%.1f MiB; bystander %d requests, %d failed, p50 %s, p99 %s, watch p99 %s; %v",
		r.Seconds, attacker.CPU.Seconds(), attacker.Frames, attacker.Bytes, attacker.Connections, attacker.MostFrames,
		r.Ours.CPUSeconds, r.Ours.PeakMiB, r.Ours.RSSMiB, r.Ours.KeptMiB, during.Requests, during.Failures, during.P50.Round(100*time.Microsecond), during.P99.Round(100*time.Microsecond), during.WatchP99.Round(100*time.Microsecond), attacker.Outcomes)
	for _, broken := range r.Broken {
		if engine == library {
			t.Logf("not guaranteed for this engine: %s", broken)
		} else {
			t.Errorf("broken bound: %s, want none", broken)
		}
	}
	return r
}

func (a *attackRow) duration() time.Duration {
	if a.most > 0 && *whole {
		return a.most
	}
	return duration()
}
