package frame

import "testing"

// A SETTINGS frame has room for thousands of window sizes. Waiting streams are woken only if the last size is larger than the previous
// one. Each woken stream checks the windows. A frame that wakes a hundred streams thousands of times would take seconds.
func TestSettingsWakeStreamsOnce(t *testing.T) {
	const most = MaxFrame / 6
	list := func(last uint32) []Setting {
		all := make([]Setting, most)
		for i := range all {
			all[i] = Setting{ID: InitialWindowSize, Value: uint32(1+i%2) << 20}
		}
		all[most-1].Value = last
		return all
	}
	o := NewWriter(discard{}, 0, func(error) {})
	defer o.Wait()
	var waiting []*SendStream
	for i := range 100 {
		s := &SendStream{ID: uint32(2*i + 1), sent: InitialWindow, waiting: true, wake: make(chan struct{}, 1)}
		waiting = append(waiting, s)
	}
	woken := func() (n int) {
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, s := range waiting {
			n += len(s.wake)
		}
		return n
	}
	o.streamBlocked = append(o.streamBlocked, waiting...)
	for _, last := range []uint32{InitialWindow, 0, InitialWindow, InitialWindow + 1} {
		before := o.initialWindow
		if err := o.AckSettings(list(last)); err != nil {
			t.Fatal(err)
		}
		if n := woken(); n > 0 && last <= InitialWindow {
			t.Fatalf("AckSettings from %d to %d with a full window woke %d streams, want 0", before, last, n)
		}
	}
	if n := woken(); n != len(waiting) {
		t.Errorf("AckSettings with a larger window woke %d streams, want %d", n, len(waiting))
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
