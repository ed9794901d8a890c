package store

import (
	"context"
	"maps"
	"testing"
	"time"
)

func TestFollowReportsExistingAndNewValues(t *testing.T) {
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
				t.Fatalf("followed values = %v, want %v", seen, want)
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
	put("docs/b", "3") // reported after the deletion, which Follow does not report
	until(map[string]string{"docs/a": "1", "docs/b": "3", "docs/c": "1"})
	stop()
	<-done
}

func TestFollowOfStoppedStoreEndsWithContext(t *testing.T) {
	s, err := New(Config{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	s.Follow(ctx, "docs/", func(string, []byte) { t.Error("Follow reported a value of a store that never ran, want none") })
}

func TestMirrorReportsDeletions(t *testing.T) {
	s, _ := run(t, Config{DataDir: t.TempDir()})
	ctx := within(t)
	if err := s.Put(ctx, "debts/a", []byte("1")); err != nil {
		t.Fatal(err)
	}
	states := make(chan map[string]string, 100)
	following, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Mirror(following, "debts/", func(now map[string][]byte) {
			copied := map[string]string{}
			for key, value := range now {
				copied[key] = string(value)
			}
			states <- copied
		})
	}()
	until := func(want map[string]string) {
		t.Helper()
		for {
			select {
			case got := <-states:
				if maps.Equal(got, want) {
					return
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("no mirrored state within 20s, want %v", want)
			}
		}
	}
	until(map[string]string{"debts/a": "1"})
	if err := s.Put(ctx, "debts/b", []byte("2")); err != nil {
		t.Fatal(err)
	}
	until(map[string]string{"debts/a": "1", "debts/b": "2"})
	if err := s.Delete(ctx, "debts/a"); err != nil {
		t.Fatal(err)
	}
	until(map[string]string{"debts/b": "2"})
	stop()
	<-done
}
