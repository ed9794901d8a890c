package metricsapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"portico.dev/pkg/extension"
)

func podNames(t *testing.T, b *Cache, namespace, name string) string {
	t.Helper()
	pods, err := b.Pods(t.Context(), extension.Query{Namespace: namespace, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, u := range pods {
		names = append(names, u.Namespace+"/"+u.Name)
	}
	return strings.Join(names, " ")
}

func TestCacheListsPodsByNamespaceAndName(t *testing.T) {
	at := time.Now()
	b := &Cache{}
	b.Publish(Measurement{
		Nodes: []NodeUsage{{Name: "n2"}, {Name: "n1"}},
		Pods: []PodUsage{
			{Namespace: "b", Name: "y"}, {Namespace: "c", Name: "a"}, {Namespace: "a", Name: "z"}, {Namespace: "b", Name: "x"},
			{Namespace: "b", Name: "moved", Span: Span{at, time.Second}, Containers: []ContainerUsage{{Name: "new"}}},
			{Namespace: "b", Name: "moved", Span: Span{at.Add(-time.Minute), time.Second}, Containers: []ContainerUsage{{Name: "old"}}},
		},
		Warnings: slices.Repeat([]string{"w"}, 1000),
	})
	for _, c := range []struct{ situation, namespace, name, want string }{
		{"all, in order", "", "", "a/z b/moved b/x b/y c/a"},
		{"the first namespace", "a", "", "a/z"},
		{"a namespace in the middle", "b", "", "b/moved b/x b/y"},
		{"the last namespace", "c", "", "c/a"},
		{"a namespace between others", "bb", "", ""},
		{"one pod", "b", "x", "b/x"},
		{"a pod that is elsewhere", "b", "z", ""},
	} {
		if got := podNames(t, b, c.namespace, c.name); got != c.want {
			t.Errorf("%s: pods = %q, want %q", c.situation, got, c.want)
		}
	}
	moved, _ := b.Pods(t.Context(), extension.Query{Namespace: "b", Name: "moved"})
	if moved[0].Containers[0].Name != "new" {
		t.Errorf("container of a Pod that moved = %s, want the latest measurement, new", moved[0].Containers[0].Name)
	}
	for name, want := range map[string]int{"": 2, "n1": 1, "n3": 0} {
		if nodes, _ := b.Nodes(t.Context(), extension.Query{Name: name}); len(nodes) != want {
			t.Errorf("Nodes(%q) = %+v, want %d nodes", name, nodes, want)
		}
	}
	if n := len(b.latest.Load().Warnings); n != maxWarnings {
		t.Errorf("%d warnings, want %d", n, maxWarnings)
	}
}

func TestExpiredMeasurementIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Cache{}
		b.Publish(Measurement{Nodes: []NodeUsage{{Name: "n"}}, Expires: time.Now().Add(time.Minute)})
		if b.Empty() {
			t.Error("Empty after Publish = true, want false")
		}
		time.Sleep(time.Minute + time.Second)
		if nodes, _ := b.Nodes(t.Context(), extension.Query{}); len(nodes) != 0 || !b.Empty() {
			t.Errorf("Nodes after the expiry = %+v, want none", nodes)
		}
	})
}

func TestUsageIsComputedFromTwoReadings(t *testing.T) {
	start := time.Unix(1700000000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	for _, c := range []struct {
		situation string
		readings  []Reading
		cores     float64
		window    time.Duration // 0: no usage
	}{
		{"one reading", []Reading{{At: at(0), Seconds: 5}}, 0, 0},
		{"half a core", []Reading{{At: at(0), Seconds: 5}, {At: at(10), Seconds: 10}}, 0.5, 10 * time.Second},
		{"the latest two count", []Reading{{At: at(0)}, {At: at(10), Seconds: 10}, {At: at(20), Seconds: 12}}, 0.2, 10 * time.Second},
		{"a kubelet repeats itself", []Reading{{At: at(0)}, {At: at(10), Seconds: 5}, {At: at(10), Seconds: 5}}, 0.5, 10 * time.Second},
		{"an older reading comes late", []Reading{{At: at(0)}, {At: at(10), Seconds: 5}, {At: at(5), Seconds: 5}}, 0.5, 10 * time.Second},
		{"the counter began anew", []Reading{{At: at(0), Seconds: 9}, {At: at(10), Seconds: 1}}, 0, 0},
		{"a restart, and the new one has worked more already", []Reading{{At: at(0), Seconds: 1}, {At: at(10), Started: at(5), Seconds: 3}}, 0, 0},
		{"a restart that is twelve seconds old", []Reading{{At: at(0), Seconds: 9}, {At: at(20), Started: at(8), Seconds: 6}}, 0.5, 12 * time.Second},
		{"a container seen first when young", []Reading{{At: at(30), Started: at(10), Seconds: 5}}, 0.25, 20 * time.Second},
		{"a container seen first when very young", []Reading{{At: at(30), Started: at(25), Seconds: 5}}, 0, 0},
		{"a container seen first when old", []Reading{{At: at(3000), Started: at(0), Seconds: 5}}, 0, 0},
		{"a start that is said to be later", []Reading{{At: at(0), Started: at(0)}, {At: at(10), Started: at(0), Seconds: 1}}, 0.1, 10 * time.Second},
	} {
		t.Run(c.situation, func(t *testing.T) {
			var p Pair
			for _, r := range c.readings {
				p = p.Next(r)
			}
			u, s, ok := p.Usage()
			if ok != (c.window != 0) || u.Cores != c.cores || s.Window != c.window {
				t.Errorf("Usage = %+v, %+v, %t, want %v cores over %s", u, s, ok, c.cores, c.window)
			}
		})
	}
}

func TestPodsWithMissingContainersAreOmitted(t *testing.T) {
	start := time.Now()
	key := PodKey{"ns", "p"}
	at := func(s int, containers ...string) map[PodKey]map[string]Reading {
		now := map[string]Reading{}
		for i, name := range containers {
			now[name] = Reading{At: start.Add(time.Duration(s)*time.Second + time.Duration(i)*time.Millisecond), Seconds: float64(s)}
		}
		return map[PodKey]map[string]Reading{key: now}
	}
	var h History
	for _, step := range []struct {
		now  map[PodKey]map[string]Reading
		want string
	}{
		{at(0, "a"), "[]"},
		{at(10, "a"), "[a]"},
		{at(20, "a", "b"), "[]"}, // b has one reading. Without it, the sum of the Pod would be too small.
		{at(30, "a", "b"), "[a b]"},
		{at(40, "b"), "[b]"},
		{nil, "[]"},
		{at(50, "b"), "[]"},
	} {
		h = h.Next(step.now)
		names := []string{}
		for _, p := range h.Pods() {
			for _, c := range p.Containers {
				names = append(names, c.Name)
			}
			if len(p.Containers) > 1 && !p.Timestamp.Equal(start.Add(30*time.Second)) {
				t.Errorf("timestamp of the Pod = %s, want the time of the earliest container reading", p.Timestamp)
			}
		}
		slices.Sort(names)
		if got := fmt.Sprint(names); got != step.want {
			t.Errorf("containers = %v, want %v", got, step.want)
		}
	}
}

func TestObjectsAreBuiltOncePerMeasurement(t *testing.T) {
	b := &Cache{}
	p := podsV1(b)
	list := func(q extension.Query) (first *string, n int) {
		t.Helper()
		items, err := p.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if len(items) == 0 {
			return nil, 0
		}
		return &items[0].Name, len(items)
	}
	publish := func(names ...string) {
		var pods []PodUsage
		for _, name := range names {
			pods = append(pods, PodUsage{Namespace: "ns", Name: name})
		}
		b.Publish(Measurement{Pods: pods})
	}
	publish("a", "b")
	first, _ := list(extension.Query{})
	if again, n := list(extension.Query{}); again != first || n != 2 {
		t.Errorf("second List built the objects again (%d objects), want the 2 cached objects", n)
	}
	if _, n := list(extension.Query{Namespace: "ns", Name: "a"}); n != 1 {
		t.Errorf("List of one Pod = %d objects, want 1", n)
	}
	publish("a", "c")
	if anew, _ := list(extension.Query{}); anew == first {
		t.Error("List after a new measurement returned the old objects, want new ones")
	}
}

func BenchmarkListOfFiveThousandPods(b *testing.B) {
	cache := &Cache{}
	pods := make([]PodUsage, 5000)
	for i := range pods {
		pods[i] = PodUsage{Namespace: "ns", Name: fmt.Sprintf("p%04d", i), Containers: []ContainerUsage{{Name: "a"}, {Name: "b"}}}
	}
	cache.Publish(Measurement{Pods: pods})
	p := podsV1(cache)
	b.ReportAllocs()
	for b.Loop() {
		if items, err := p.List(b.Context(), extension.Query{}); err != nil || len(items) != 5000 {
			b.Fatal(err)
		}
	}
}
