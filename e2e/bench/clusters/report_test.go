package clusters

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"portico.dev/e2e/bench/proxied"
	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// row returns the row of the front door in a cell, with ratios to the bare proxies.
func row(c proxied.Cell, toH2, toH1 float64) proxied.Row {
	spread := func(f float64) measure.Spread { return measure.Spread{Median: f, Min: f, Max: f} }
	return proxied.Row{Cell: c, Who: front, CPUToH2: spread(toH2), CPUToH1: spread(toH1)}
}

func TestTargets(t *testing.T) {
	r := &Report{Settings: Full()}
	for _, c := range proxied.Reads() {
		if c.Clients == 1 {
			r.Rows = append(r.Rows, row(c, 0.8, 0.6))
		} else {
			r.Rows = append(r.Rows, row(c, 0.5, 0.61))
		}
	}
	bare := proxied.Row{Cell: r.Rows[0].Cell, Who: "bare", CPUToH2: measure.Spread{Median: 1}}
	r.Rows = append(r.Rows, bare)
	want := []bool{true, false, false, true}
	targets := r.Targets()
	if len(targets) != len(want) {
		t.Fatalf("Targets = %+v, want %d", targets, len(want))
	}
	for i, target := range targets {
		if target.Kept != want[i] || target.Limit != 0.6 {
			t.Errorf("target %s = %+v, want kept: %v", target.What, target, want[i])
		}
	}
}

func TestDistanceToTheFloor(t *testing.T) {
	cpu := func(who string, c proxied.Cell, us, toBare float64) proxied.Row {
		return proxied.Row{Cell: c, Who: who, CPU: measure.Spread{Median: us, Min: us, Max: us}, CPUToH2: measure.Spread{Median: toBare, Min: toBare, Max: toBare}}
	}
	cells := proxied.Reads()
	r := &Report{Settings: Full(), Rows: []proxied.Row{
		cpu(floor, cells[0], 40, 0.4), cpu(front, cells[0], 75, 0.75), cpu(front, cells[1], 60, 0.6), cpu(floor, cells[1], 50, 0.5), cpu(front, cells[2], 1, 1),
	}}
	got := r.Distances()
	if len(got) != 2 || got[0].Added != 35 || got[1].Added != 10 || got[1].Floor.Median != 0.5 {
		t.Errorf("distances = %+v, want 35 and 10 us in the two cells with a floor", got)
	}
	page, err := r.Markdown()
	if text := "0.40x (0.40..0.40) | 0.75x (0.75..0.75) | 35 |"; err != nil || !strings.Contains(string(page), text) {
		t.Errorf("page = %v\n%s\nwant %q", err, page, text)
	}
}

func TestPacedLoadBelowTheRateIsMarked(t *testing.T) {
	interval := func(perSecond float64, cpu, p99 time.Duration) environment.Interval {
		return environment.Interval{Server: cpu, Answer: environment.Answer{PerSecond: perSecond, P99: p99}}
	}
	rows := []PacedRow{
		{Who: "direct", intervals: []environment.Interval{interval(5000, time.Microsecond, time.Millisecond), interval(4999, time.Microsecond, time.Millisecond)}},
		{Who: "bare", intervals: []environment.Interval{interval(5000, 100*time.Microsecond, 2*time.Millisecond), interval(3000, 200*time.Microsecond, 10*time.Millisecond)}},
		{Who: front, intervals: []environment.Interval{interval(5000, 50*time.Microsecond, time.Millisecond), interval(5000, 100*time.Microsecond, 5*time.Millisecond)}},
	}
	summarize(rows, 5000)
	if !rows[0].Kept || rows[1].Kept || !rows[2].Kept {
		t.Errorf("kept rates = %v, %v, %v; want only the second one missed", rows[0].Kept, rows[1].Kept, rows[2].Kept)
	}
	if got := rows[2]; got.CPURatio.Median != 0.5 || got.CPURatio.Max != 0.5 || got.P99Ratio.Median != 0.5 {
		t.Errorf("ratios = %+v, %+v; want 0.5 in both rounds", got.CPURatio, got.P99Ratio)
	}
	page, err := (&Report{Settings: Full(), Paced: rows}).Markdown()
	if err != nil || !strings.Contains(string(page), "| bare | 4000 | **no** |") {
		t.Errorf("page = %v\n%s\nwant the missed rate", err, page)
	}
}

func TestSharesOfBackends(t *testing.T) {
	got := sharesOf([]usage{{100, time.Second}, {10, 0}, {0, 0}}, []usage{{100, time.Second}, {40, 3 * time.Second}, {10, time.Second}})
	want := []Share{{}, {Requests: 0.75, CPU: 0.75}, {Requests: 0.25, CPU: 0.25}}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("share of backend %d = %+v, want %+v", i, got[i], want[i])
		}
	}
	page, err := (&Report{Settings: Full(), Balance: []BalanceRow{{Who: front, Before: want, After: want, Failed: 3, Requests: 40}}}).Markdown()
	if text := "| | after | 0 %, 75 %, 25 % | 0 %, 75 %, 25 % | 0, 0, 0 | 3 of 40 |"; err != nil || !strings.Contains(string(page), text) {
		t.Errorf("page = %v\n%s\nwant %q", err, page, text)
	}
	if idle := sharesOf([]usage{{}}, []usage{{}}); idle[0] != (Share{}) {
		t.Errorf("share without requests = %+v, want zero", idle[0])
	}
}

// Connections stay where they are, and new ones go to the next backend that accepts them.
func TestBalancer(t *testing.T) {
	backend := func(name string) net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() }) // the test may have closed it
		go func() {                         // until the listener is closed
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, name)
				_ = conn.Close()
			}
		}()
		return l
	}
	first, second := backend("first"), backend("second")
	b, err := newBalancer([]string{first.Addr().String(), second.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	connect := func() string {
		conn, err := net.Dial("tcp", b.address())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		text, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := []string{connect(), connect(), connect()}; got[0] != "first" || got[1] != "second" || got[2] != "first" {
		t.Errorf("connections go to %q, want first, second, first", got)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if got := connect(); got != "first" {
		t.Errorf("a connection goes to %q, want first: the second one is closed", got)
	}
}
