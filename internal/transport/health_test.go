package transport

import (
	"testing"
	"time"
)

func TestHealth(t *testing.T) {
	var h health
	now := time.Now()
	usable := func(wantOK, wantDue bool) {
		t.Helper()
		if ok, due := h.usable(now); ok != wantOK || due != wantDue {
			t.Fatalf("%s: usable %t, due %t", h.state, ok, due)
		}
	}
	usable(true, false)
	// Two soft failures are not enough, and an answer forgets them.
	h.failed(now, false, "reset")
	h.failed(now, false, "reset")
	h.answered(now)
	h.failed(now, false, "reset")
	h.failed(now, false, "reset")
	usable(true, false)
	if !h.failed(now, false, "reset") {
		t.Fatal("three in a row do not eject")
	}
	usable(false, false)
	// More failures while it is out change nothing: they are echoes of requests sent before.
	if h.failed(now, true, "lost") {
		t.Fatal("ejected twice")
	}
	now = now.Add(firstEjection)
	usable(false, true)
	// A connection in the background lets one request through.
	h.connected()
	usable(true, false)
	h.chosen()
	usable(false, false)
	h.abandoned() // its caller left: another may try
	usable(true, false)
	h.chosen()
	// The trial fails: out for twice as long, up to the limit.
	h.failed(now, false, "reset")
	now = now.Add(firstEjection)
	usable(false, false)
	now = now.Add(firstEjection)
	usable(false, true)
	for range 10 {
		h.failed(now, true, "refused")
		now = now.Add(lastEjection)
		usable(false, true)
	}
	h.connected()
	h.chosen()
	h.answered(now)
	usable(true, false)
	// All is forgiven: the next ejection is short again.
	h.failed(now, true, "refused")
	now = now.Add(firstEjection)
	usable(false, true)
}

func TestBudget(t *testing.T) {
	b := newBudget(3)
	for range 3 {
		if !b.spend() {
			t.Fatal("no burst")
		}
	}
	if b.spend() {
		t.Fatal("spent what was not there")
	}
	for range 5 {
		b.earn()
	}
	if !b.spend() || b.spend() {
		t.Fatal("five requests earn one repetition")
	}
	for range 1000 {
		b.earn()
	}
	for range 3 {
		if !b.spend() {
			t.Fatal("not refilled")
		}
	}
	if b.spend() {
		t.Fatal("more than the burst was saved up")
	}
}
