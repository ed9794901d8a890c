package incumbent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"portico.dev/e2e/bench/local"
	"portico.dev/e2e/bench/proxied"
	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

func rounds(cpu ...time.Duration) (all []environment.Interval) {
	for _, c := range cpu {
		all = append(all, environment.Interval{Server: c * time.Microsecond, Answer: environment.Answer{P50: time.Millisecond, P99: c * time.Millisecond}})
	}
	return all
}

func TestARatioIsToTheSameUserOnTheOtherSide(t *testing.T) {
	all := []who{{"backend", nil, "", 0}, {"our admin", nil, "", 3}, {"our user", nil, "", 4}, {"their admin", nil, "", 3}, {"their user", nil, "", 4}}
	c := proxied.Cells()[0]
	rows := []ProxiedRow{
		{Cell: c, Who: "backend", stretches: rounds(1, 1)}, {Cell: c, Who: "our admin", stretches: rounds(10, 40)},
		{Cell: c, Who: "our user", stretches: rounds(30, 30)}, {Cell: c, Who: "their admin", stretches: rounds(100, 200)},
		{Cell: c, Who: "their user", stretches: rounds(20, 60)},
	}
	summarizeProxied(rows, all)
	for i, want := range []measure.Spread{{}, {Median: 0.15, Min: 0.1, Max: 0.2}, {Median: 1, Min: 0.5, Max: 1.5}, {}, {}} {
		if got := rows[i].CPUToTheirs; got.String() != want.String() {
			t.Errorf("CPU ratio of %s = %s, want %s", rows[i].Who, got, want)
		}
	}
}

// One process with its etcd in it can only be compared with two, and one of two with one of two.
func TestLikeIsComparedWithLike(t *testing.T) {
	costs := func(cpu, etcd float64) []local.Cost {
		return []local.Cost{{CPU: cpu, Beside: etcd, P50: 1, P99: 1, PerSecond: 1}}
	}
	rows := []LocalRow{
		{Who: "one process", embedded: true, costs: costs(90, 90)}, // with itself: the same CPU
		{Who: "beside an etcd", costs: costs(60, 60)},
		{Who: "theirs", costs: costs(120, 60)},
	}
	summarizeLocal(rows)
	if got := rows[0]; got.CPUToTheirs != (measure.Spread{}) || got.All.Median != 90 || got.AllToTheirs.Median != 0.5 {
		t.Errorf("one process: alone %s, %s with etcd, %s of the other server; want none, 90 and 0.5", got.CPUToTheirs, got.All, got.AllToTheirs)
	}
	if got := rows[1]; got.CPUToTheirs.Median != 0.5 || got.All.Median != 120 || got.AllToTheirs.Median != 120.0/180 {
		t.Errorf("with an etcd: alone %s, %s with etcd, %s of the other server; want 0.5, 120 and 0.67", got.CPUToTheirs, got.All, got.AllToTheirs)
	}
	if got := rows[2]; got.All.Median != 180 || got.AllToTheirs != (measure.Spread{}) {
		t.Errorf("other server: %s, %s; want 180 and no ratio", got.All, got.AllToTheirs)
	}
}

func TestThePageSaysWhereTheirsIsLess(t *testing.T) {
	c := proxied.Cells()[0]
	ratio := func(min, median, max float64) measure.Spread {
		return measure.Spread{Min: min, Median: median, Max: max}
	}
	r := &Report{
		Proxied: []ProxiedRow{
			{Cell: c, Who: "Portico, administrator", CPUToTheirs: ratio(0.1, 0.2, 0.3)},
			{Cell: c, Who: "Portico, user by RBAC", CPUToTheirs: ratio(0.9, 1.1, 1.2)},
		},
		Registrations: []RegistrationRow{
			{Who: oursName, APIServices: 100, RSS: 300, Peak: 450 << 20, Parts: []Part{{Name: "aggregator", RSS: 300 << 20}}},
			{Who: kubernetesName, APIServices: 100, RSS: 200, Parts: []Part{{Name: "kube-apiserver"}, {Name: "etcd"}}},
		},
		Faults: []FaultRow{{Fault: "killed", Who: oursName, Code: 503, Reason: "ServiceUnavailable", Answered: 4 * time.Millisecond, Waited: true, Returned: time.Second}},
	}
	want := []Range{
		{What: "CPU of a proxied request", Lines: 2, Least: 0.2, Most: 1.1, Worst: "GET 1 KB, HTTP/2, 1 at once, Portico, user by RBAC", Cheaper: 1, Noisy: 1},
		{What: "memory at rest, all processes", Lines: 1, Least: 1.5, Most: 1.5, Worst: "100 APIServices", Cheaper: 1},
	}
	if got := r.Ranges(); !slices.Equal(got, want) {
		t.Errorf("ranges:\n%+v, want\n%+v", got, want)
	}
	page, err := r.Markdown()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| CPU of a proxied request | GET 1 KB, HTTP/2, 1 at once, Portico, user by RBAC | 1.10x (0.90..1.20) |",
		"| killed | Portico | 503 ServiceUnavailable after 4 ms |", "waits; gone 1.0 s after the recovery",
		"| 100 | Portico | 0 | 450 | aggregator 300 |", "kube-apiserver 0, etcd 0",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page has no %q, want it in\n%s", want, page)
		}
	}
}
