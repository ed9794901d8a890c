package transport

import "testing"

func TestEvents(t *testing.T) {
	var events Events
	b := &Backend{}
	events.Answered(b) // without subscribers
	var got []string
	note := func(what string) func(*Backend) { return func(*Backend) { got = append(got, what) } }
	first := events.Subscribe(&Subscriber{Failed: note("first failed"), Answered: note("first answered")})
	second := events.Subscribe(&Subscriber{Failed: note("second failed"), DocumentsMayDiffer: note("second documents"), ResourcesChanged: note("second resources")})
	events.Failed(b, nil)
	events.Answered(b)
	events.DocumentsMayDiffer(b)
	events.DocumentsMayDiffer(nil)
	events.ResourcesChanged(b)
	first()
	events.Failed(b, nil)
	second()
	events.Failed(b, nil)
	want := []string{"first failed", "second failed", "first answered", "second documents", "second resources", "second failed"}
	if len(got) != len(want) {
		t.Fatalf("events = %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("event %d = %q, want %q", i, got[i], want[i])
		}
	}
}
