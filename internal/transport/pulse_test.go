package transport

import (
	"crypto/tls"
	"net"
	"testing"
	"time"
)

func TestAConnectionIsGivenUpAfterLooksAndNotAfterTime(t *testing.T) {
	near, far := net.Pipe()
	defer func() { _ = far.Close() }()
	s := newSession(tls.Client(near, &tls.Config{ServerName: "nobody"}), near)
	defer func() { _ = s.Close() }()
	for range 3 * beats { // a long life with something read between any two looks
		s.reads.Add(1)
		if !s.beat() {
			t.Fatal("given up although it was read from")
		}
	}
	// The process stood still for as long as it likes: a look that came late is one look.
	for range beats - 1 {
		if !s.beat() {
			t.Fatal("given up too soon")
		}
	}
	s.reads.Add(1)
	for range beats {
		s.beat()
	}
	if !s.beat() && s.silent.Load() {
		return
	}
	t.Error("silent for all looks, and not given up")
}

func TestASilentConnectionFailsItsRequests(t *testing.T) {
	w := newWorld(t)
	s := w.serve(text("ok"))
	l := w.link(s.address)
	b := w.backend(w.set(), l.address)
	if _, err := get(t, b); err != nil {
		t.Fatal(err)
	}
	l.cut.Store(true)
	start := time.Now()
	if _, err := do(t, b, "DELETE", nil); !unheard(err) {
		t.Errorf("%v", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	if said := b.Silence(); said.Since.IsZero() || !said.Broken {
		t.Errorf("%+v", said)
	}
	l.cut.Store(false)
	eventually(t, 10*time.Second, "it answers again", func() bool { _, err := get(t, b); return err == nil })
	if said := b.Silence(); !said.Since.IsZero() {
		t.Errorf("still silent: %+v", said)
	}
}
