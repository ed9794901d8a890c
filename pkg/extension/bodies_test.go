package extension

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

func TestCachedBodiesAreBounded(t *testing.T) {
	b := newBodies(1000)
	for i := range 500 {
		k := bodyKey{view: uint64(i % 7), namespace: fmt.Sprint(i % 50)}
		raw, err := b.get(k, uint64(i), func() ([]byte, error) { return make([]byte, 1+i%120), nil })
		if err != nil || len(raw) != 1+i%120 {
			t.Fatalf("get %d returned %d bytes, error %v, want %d bytes and no error", i, len(raw), err, 1+i%120)
		}
		size := 0
		for _, kept := range b.kept.Values() {
			size += len(kept.bytes)
		}
		if size != b.size || size > b.limit {
			t.Fatalf("after get %d: %d bytes kept, %d counted, want equal numbers up to the limit %d", i, size, b.size, b.limit)
		}
	}
	if _, err := b.get(bodyKey{view: 99}, 1, func() ([]byte, error) { return make([]byte, 1001), nil }); err != nil {
		t.Fatal(err)
	}
	if _, ok := b.find(bodyKey{view: 99}, 1); ok || b.kept.Len() == 0 {
		t.Error("a body larger than the limit is kept or evicted all others, want it not kept and the others unchanged")
	}
}

func TestBodyIsBuiltOncePerVersion(t *testing.T) {
	b := newBodies(1000)
	var made atomic.Int32
	ask := func(k bodyKey, version uint64) string {
		raw, err := b.get(k, version, func() ([]byte, error) {
			return fmt.Appendf(nil, "%d of %d, %d", made.Add(1), k.view, version), nil
		})
		if err != nil {
			t.Error(err)
		}
		return string(raw)
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { ask(bodyKey{view: 1}, 5) })
	}
	all.Wait()
	if n := made.Load(); n != 1 {
		t.Errorf("body built %d times for 50 simultaneous requests, want 1", n)
	}
	for _, c := range []struct {
		situation string
		key       bodyKey
		version   uint64
		want      string
	}{
		{"the same", bodyKey{view: 1}, 5, "1 of 1, 5"},
		{"another version", bodyKey{view: 1}, 6, "2 of 1, 6"},
		{"somebody else's view", bodyKey{view: 2}, 6, "3 of 2, 6"},
		{"another namespace", bodyKey{view: 1, namespace: "a"}, 6, "4 of 1, 6"},
		{"compressed", bodyKey{view: 1, gzip: true}, 6, "5 of 1, 6"},
	} {
		if got := ask(c.key, c.version); got != c.want {
			t.Errorf("%s: body = %q, want %q", c.situation, got, c.want)
		}
	}
	failure := errors.New("no")
	if _, err := b.get(bodyKey{view: 3}, 1, func() ([]byte, error) { return nil, failure }); !errors.Is(err, failure) {
		t.Errorf("error of a failing build = %v, want %v", err, failure)
	}
	if got := ask(bodyKey{view: 3}, 1); got != "6 of 3, 1" {
		t.Errorf("body after a failed build = %q, want \"6 of 3, 1\"", got)
	}
}
