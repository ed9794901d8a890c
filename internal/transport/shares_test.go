package transport

import (
	"errors"
	"fmt"
	"testing"
)

// One user gets most of the places when nobody else wants any, and whoever has none gets one, however many have taken theirs.
func TestD14NoUserHasAllPlaces(t *testing.T) {
	for _, test := range []struct{ limit, users, each int }{
		{1, 1, 1}, {2, 1, 1}, {2, 2, 1}, {10, 1, 8}, {300, 1, 240}, {300, 2, 133}, {300, 20, 14},
	} {
		t.Run(fmt.Sprint(test.users, " users of ", test.limit), func(t *testing.T) {
			w := newTestEnv(t)
			spec := w.spec()
			spec.MaxInFlight = test.limit
			b, err := w.set().Backend(spec)
			if err != nil {
				t.Fatal(err)
			}
			places := make([][]*Slot, test.users)
			for more := true; more; { // each takes one in turn
				more = false
				for u := range places {
					p := new(Slot)
					if b.Admit(p, fmt.Sprint("user ", u)) == nil {
						places[u] = append(places[u], p)
						more = true
					}
				}
			}
			total := 0
			for u, held := range places {
				total += len(held)
				if len(held) < test.each-1 || len(held) > test.each+1 {
					t.Errorf("user %d has %d places, want about %d", u, len(held), test.each)
				}
			}
			var late Slot
			err = b.Admit(&late, "somebody else")
			if full := total == test.limit; full != (err != nil) || !full && test.limit-total < 1 {
				t.Errorf("%d of %d places are taken, and somebody else gets %v", total, test.limit, err)
			}
			var limited *LimitError
			if err := b.Admit(new(Slot), "user 0"); test.limit > test.users && (!errors.As(err, &limited) || !limited.Share && total+1 < test.limit) {
				t.Errorf("user 0 is told %v", err)
			}
			late.Release()
			for _, held := range places {
				for _, p := range held {
					p.Release()
					p.Release()
				}
			}
			if n := b.slots.Total(); n != 0 || len(b.slots.held) != 0 {
				t.Errorf("%d places are still taken, by %v", n, b.slots.held)
			}
		})
	}
}

// A request whose client does not take the response gives its place to others, and there are only so many such requests.
func TestD14APlaceIsGivenBackWhileItsClientDoesNotRead(t *testing.T) {
	w := newTestEnv(t)
	spec := w.spec()
	spec.MaxInFlight = 10
	b, err := w.set().Backend(spec)
	if err != nil {
		t.Fatal(err)
	}
	var stalled []*Slot
	for {
		p := new(Slot)
		if err := b.Admit(p, "mallory"); err != nil {
			t.Fatal(err)
		}
		if !p.Stall() {
			break // it keeps its place
		}
		if stalled = append(stalled, p); !p.Stall() {
			t.Error("a place that was given back is asked for again")
		}
	}
	if r := b.Report(); len(stalled) != 8 || r.Stalled != 8 || r.InFlight != 1 {
		t.Errorf("%d stalled, %+v", len(stalled), r)
	}
	other := new(Slot)
	if b.Admit(other, "jane") != nil || !other.Stall() {
		t.Error("another user's request has no place among those that wait")
	}
	for _, p := range append(stalled, other) {
		p.Release()
		p.Release()
	}
	if r := b.Report(); r.Stalled != 0 || r.InFlight != 1 {
		t.Errorf("%+v", r)
	}
	if new(Slot).Stall() != true {
		t.Error("a request without a place")
	}
}
