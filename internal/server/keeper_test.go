package server

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

type leaver struct {
	left *[]string
	name string
}

func (l leaver) Leave() { *l.left = append(*l.left, l.name) }

func TestAKeeperLetsGoInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left []string
		q := &keeper{after: 100 * time.Millisecond}
		all := make([]kept, 6)
		expect := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			if !slices.Equal(left, want) {
				t.Errorf("%s: %v left, want %v", when, left, want)
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
