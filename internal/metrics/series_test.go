package metrics

import (
	"sync"
	"testing"
)

func TestSeriesCacheFindsEveryEntry(t *testing.T) {
	var c seriesCache[int, string]
	if _, ok := c.find(1); ok {
		t.Error("an empty cache has an entry")
	}
	c.set(1, "one")
	c.set(2, "two")
	for range 5 {
		for labels, want := range map[int]string{1: "one", 2: "two"} {
			if got, ok := c.find(labels); !ok || got != want {
				t.Fatalf("find(%d) = %q, %v, want %q", labels, got, ok, want)
			}
		}
	}
	if c.read.Load() == nil {
		t.Error("entries are not copied after several lookups")
	}
	c.set(1, "another")
	c.set(3, "three")
	for range 5 {
		for labels, want := range map[int]string{1: "another", 2: "two", 3: "three"} {
			if got, ok := c.find(labels); !ok || got != want {
				t.Fatalf("find(%d) after a change = %q, %v, want %q", labels, got, ok, want)
			}
		}
	}
}

// Lookups and changes may be concurrent: a lookup that begins after a change finds it.
func TestSeriesCacheIsSafeForConcurrentUse(t *testing.T) {
	var c seriesCache[int, int]
	var all sync.WaitGroup
	for labels := range 4 {
		all.Go(func() {
			for n := range 1000 {
				c.set(labels, n)
				if got, ok := c.find(labels); !ok || got != n {
					t.Errorf("find(%d) = %d, %v, want %d", labels, got, ok, n)
					return
				}
			}
		})
	}
	all.Wait()
}
