package transport

import (
	"errors"
	"fmt"
	"testing"
)

// One user gets most of the places while no other user needs any. A user without a place gets one, regardless of how many places other users have.
func TestD14NoUserOccupiesAllSlots(t *testing.T) {
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
				t.Errorf("Admit for a late user with %d of %d places taken = %v, want a place unless all are taken", total, test.limit, err)
			}
			var limited *LimitError
			if err := b.Admit(new(Slot), "user 0"); test.limit > test.users && (!errors.As(err, &limited) || !limited.Share && total+1 < test.limit) {
				t.Errorf("Admit for user 0 beyond the share error = %v, want a LimitError of the share", err)
			}
			late.Release()
			for _, held := range places {
				for _, p := range held {
					p.Release()
					p.Release()
				}
			}
			if n := b.slots.Total(); n != 0 || len(b.slots.held) != 0 {
				t.Errorf("%d places are taken by %v after all releases, want 0", n, b.slots.held)
			}
		})
	}
}

// A request whose client does not read the response releases its place. The number of such requests is limited.
func TestD14SlotIsReleasedWhileClientDoesNotRead(t *testing.T) {
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
			break // the request keeps its place
		}
		if stalled = append(stalled, p); !p.Stall() {
			t.Error("second Stall of a stalled request = false, want true")
		}
	}
	if r := b.Report(); len(stalled) != 8 || r.Stalled != 8 || r.InFlight != 1 {
		t.Errorf("%d stalled requests and the report %+v, want 8 stalled and 1 in flight", len(stalled), r)
	}
	other := new(Slot)
	if b.Admit(other, "jane") != nil || !other.Stall() {
		t.Error("another user's request was not admitted and stalled, want a place for it")
	}
	for _, p := range append(stalled, other) {
		p.Release()
		p.Release()
	}
	if r := b.Report(); r.Stalled != 0 || r.InFlight != 1 {
		t.Errorf("report after the releases = %+v, want 0 stalled and 1 in flight", r)
	}
	if new(Slot).Stall() != true {
		t.Error("Stall of a request without a place = false, want true")
	}
}
