package transport

import (
	"testing"
	"time"

	"go.uber.org/zap/zapcore"

	"portico.dev/internal/logging"
)

func TestHealth(t *testing.T) {
	var h health
	now := time.Now()
	usable := func(wantOK, wantDue bool) {
		t.Helper()
		if ok, due := h.usable(now); ok != wantOK || due != wantDue {
			t.Fatalf("usable() in the state %v = %t, due %t, want %t, due %t", h.state, ok, due, wantOK, wantDue)
		}
	}
	usable(true, false)
	// Two soft failures are not enough, and a response resets the count.
	h.failed(now, false, "reset")
	h.failed(now, false, "reset")
	h.answered(now)
	h.failed(now, false, "reset")
	h.failed(now, false, "reset")
	usable(true, false)
	if !h.failed(now, false, "reset") {
		t.Fatal("third failure in a row did not eject the endpoint, want an ejection")
	}
	usable(false, false)
	// Further failures of an ejected endpoint have no effect: they belong to earlier requests.
	if h.failed(now, true, "lost") {
		t.Fatal("failure of an ejected endpoint ejected it again, want no effect")
	}
	now = now.Add(firstEjection)
	usable(false, true)
	// A connection in the background allows one request.
	h.connected()
	usable(true, false)
	h.chosen()
	usable(false, false)
	h.abandoned() // its caller canceled the request: another request may try
	usable(true, false)
	h.chosen()
	// The trial fails: the ejection lasts twice as long, up to the limit.
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
	// The response resets the duration: the next ejection is short again.
	h.failed(now, true, "refused")
	now = now.Add(firstEjection)
	usable(false, true)
}

func TestBudget(t *testing.T) {
	b := newBudget(3)
	for range 3 {
		if !b.spend() {
			t.Fatal("spend() within the burst = false, want true")
		}
	}
	if b.spend() {
		t.Fatal("spend() beyond the burst = true, want false")
	}
	for range 5 {
		b.earn()
	}
	if !b.spend() || b.spend() {
		t.Fatal("five earned requests do not allow exactly one retry, want one")
	}
	for range 1000 {
		b.earn()
	}
	for range 3 {
		if !b.spend() {
			t.Fatal("spend() after 1000 requests = false, want the burst refilled")
		}
	}
	if b.spend() {
		t.Fatal("spend() beyond the refilled burst = true, want false")
	}
}

func TestEjectionOfNewEndpointIsWarningAfterGracePeriod(t *testing.T) {
	var h health
	now := time.Now()
	eject := func(after time.Duration, want zapcore.Level) {
		t.Helper()
		now = now.Add(after)
		if !h.failed(now, true, "refused") {
			t.Fatal("hard failure did not eject the endpoint, want an ejection")
		}
		if got := h.ejectionLevel(now); got != want {
			t.Errorf("level of the ejection = %s, want %s", got, want)
		}
	}
	eject(0, zapcore.InfoLevel)
	eject(lastEjection, zapcore.DebugLevel)
	eject(logging.StartupGrace, zapcore.WarnLevel) // it is still dead
	eject(lastEjection, zapcore.DebugLevel)
	h.connected()
	h.answered(now)
	eject(time.Second, zapcore.WarnLevel) // it was available and goes away
	eject(lastEjection, zapcore.DebugLevel)
}
