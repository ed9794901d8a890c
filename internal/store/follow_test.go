package store

import (
	"context"
	"maps"
	"testing"
	"time"
)

func TestFollowTellsWhatIsThereAndWhatComes(t *testing.T) {
	s, _ := run(t, Config{DataDir: t.TempDir()})
	ctx := within(t)
	put := func(key, value string) {
		t.Helper()
		if err := s.Put(ctx, key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	put("docs/a", "1")
	put("docs/b", "1")
	put("other/x", "1")

	type change struct{ key, value string }
	changes := make(chan change, 100)
	following, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Follow(following, "docs/", func(key string, value []byte) { changes <- change{key, string(value)} })
	}()
	seen := map[string]string{}
	until := func(want map[string]string) {
		t.Helper()
		for !maps.Equal(seen, want) {
			select {
			case c := <-changes:
				seen[c.key] = c.value
			case <-time.After(20 * time.Second):
				t.Fatalf("heard %v, want %v", seen, want)
			}
		}
	}
	until(map[string]string{"docs/a": "1", "docs/b": "1"})
	put("docs/b", "2")
	put("other/x", "2")
	put("docs/c", "1")
	until(map[string]string{"docs/a": "1", "docs/b": "2", "docs/c": "1"})
	if err := s.Delete(ctx, "docs/a"); err != nil {
		t.Fatal(err)
	}
	put("docs/b", "3") // told after the deletion, which is not
	until(map[string]string{"docs/a": "1", "docs/b": "3", "docs/c": "1"})
	stop()
	<-done
}

func TestFollowOutlivesAStoreThatIsNotThere(t *testing.T) {
	s, err := New(Config{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	s.Follow(ctx, "docs/", func(string, []byte) { t.Error("a store that never ran told something") })
}
