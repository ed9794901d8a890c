package transport

import (
	"slices"
	"testing"
	"time"
)

func TestPick(t *testing.T) {
	w := newTestEnv(t)
	b := w.backend(w.set(func(o *Options) { o.Zone = "here" }))
	at := func(name string, change ...func(*candidate)) candidate {
		m := candidate{endpoint: newEndpoint(b, name)}
		for _, c := range change {
			c(&m)
		}
		t.Cleanup(m.close)
		return m
	}
	zone := func(z string) func(*candidate) { return func(m *candidate) { m.zone = z } }
	leaving := func(m *candidate) { m.terminating = true }
	out := func(m *candidate) {
		m.health.failed(time.Now(), true, "refused")
		m.health.until = time.Now().Add(time.Hour)
	}
	trial := func(m *candidate) { m.health.state, m.health.trial = halfOpen, true }
	busy := func(m *candidate) { m.inFlight.Store(5) }
	tests := []struct {
		name    string
		members []candidate
		tried   []int
		want    []string
	}{
		{"none", nil, nil, []string{""}},
		{"all alike", []candidate{at("a"), at("b")}, nil, []string{"a", "b"}},
		{"fewer in flight of two", []candidate{at("a", busy), at("b")}, nil, []string{"b"}},
		{"our zone", []candidate{at("a", zone("there")), at("b", zone("here"), busy), at("c")}, nil, []string{"b"}},
		{"our zone is out", []candidate{at("a", zone("there")), at("b", zone("here"), out)}, nil, []string{"a"}},
		{"one is terminating", []candidate{at("a", leaving), at("b", busy)}, nil, []string{"b"}},
		{"all are terminating", []candidate{at("a", leaving), at("b", leaving)}, nil, []string{"a", "b"}},
		{"terminating beats ejected", []candidate{at("a", leaving), at("b", out)}, nil, []string{"a"}},
		{"all are ejected", []candidate{at("a", out), at("b", out)}, nil, []string{"a", "b"}},
		{"half open with a trial under way", []candidate{at("a", trial), at("b", busy)}, nil, []string{"b"}},
		{"not the one that failed this request", []candidate{at("a"), at("b", busy)}, []int{0}, []string{"b"}},
		{"an ejected one before the one that failed this request", []candidate{at("a"), at("b", out)}, []int{0}, []string{"b"}},
		{"all failed this request", []candidate{at("a"), at("b")}, []int{0, 1}, []string{"a", "b"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var tried []*endpoint
			for _, i := range test.tried {
				tried = append(tried, test.members[i].endpoint)
			}
			seen := map[string]bool{}
			for range 50 {
				name := ""
				if e := b.pick(test.members, tried); e != nil {
					name = e.address
				}
				if !slices.Contains(test.want, name) {
					t.Fatalf("pick() = %q, want one of %q", name, test.want)
				}
				seen[name] = true
			}
			if len(seen) != len(test.want) {
				t.Errorf("picked endpoints = %v in 50 calls, want each of %q", seen, test.want)
			}
		})
	}
}
