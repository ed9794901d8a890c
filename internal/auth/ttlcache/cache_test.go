package ttlcache

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestMemory(t *testing.T) {
	t.Run("an answer lasts until its deadline and not a moment longer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := New[string, int](4)
			m.Add("a", 1, time.Now().Add(10*time.Second))
			time.Sleep(10*time.Second - time.Nanosecond)
			if v, ok := m.Get("a"); !ok || v != 1 {
				t.Fatalf("just before the deadline: got %d, %t", v, ok)
			}
			time.Sleep(time.Nanosecond)
			if _, ok := m.Get("a"); ok {
				t.Fatal("recalled at the deadline")
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
			t.Error("2 was used least recently and is still there")
		}
		if _, ok := m.Get(1); !ok {
			t.Error("1 was used recently and is gone")
		}
	})
}
