package server

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// list is who left.
type list struct {
	mu  sync.Mutex // guards all: each look of the keeper has a goroutine of its own
	all []string
}

type leaver struct {
	left *list
	name string
}

func (l leaver) Leave() {
	l.left.mu.Lock()
	defer l.left.mu.Unlock()
	l.left.all = append(l.left.all, l.name)
}

func TestAKeeperLetsGoInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left list
		q := &keeper{after: 100 * time.Millisecond}
		all := make([]kept, 6)
		expect := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			left.mu.Lock()
			defer left.mu.Unlock()
			if !slices.Equal(left.all, want) {
				t.Errorf("%s: %v left, want %v", when, left.all, want)
			}
		}
		for i := range all { // one each 20 ms
			q.keep(&all[i], leaver{&left, fmt.Sprint(i)})
			time.Sleep(20 * time.Millisecond)
		}
		expect("20 ms after the last came", "0", "1")
		q.forget(&all[2])
		q.forget(&all[0]) // has left
		q.forget(&all[5])
		time.Sleep(10 * time.Millisecond)
		expect("30 ms, and the third was forgotten", "0", "1")
		time.Sleep(time.Second)
		expect("all that were not forgotten", "0", "1", "3", "4")
		if q.first != nil || q.last != nil || q.waiting {
			t.Error("somebody is still waited for")
		}
		q.keep(&all[0], leaver{&left, "again"})
		q.forget(&all[0])
		time.Sleep(time.Second)
		expect("forgotten before its time", "0", "1", "3", "4")
	})
}
