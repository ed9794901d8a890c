package ttlcache

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestCacheExpiresAndEvictsEntries(t *testing.T) {
	t.Run("an answer lasts until its deadline and not a moment longer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := New[string, int](4)
			m.Add("a", 1, time.Now().Add(10*time.Second))
			time.Sleep(10*time.Second - time.Nanosecond)
			if v, ok := m.Get("a"); !ok || v != 1 {
				t.Fatalf("Get just before the deadline = %d, %t, want 1", v, ok)
			}
			time.Sleep(time.Nanosecond)
			if _, ok := m.Get("a"); ok {
				t.Fatal("Get at the deadline = true, want false")
			}
		})
	})
	t.Run("the least recently used answer makes room", func(t *testing.T) {
		m := New[int, int](2)
		later := time.Now().Add(time.Hour)
		m.Add(1, 1, later)
		m.Add(2, 2, later)
		m.Get(1)
		m.Add(3, 3, later)
		if _, ok := m.Get(2); ok {
			t.Error("Get of the least recently used key = true, want false")
		}
		if _, ok := m.Get(1); !ok {
			t.Error("Get of the recently used key = false, want true")
		}
	})
}
