package frame

import "testing"

// A SETTINGS frame has room for thousands of windows. Streams that wait are woken only if the last of them is larger than what was
// before: each that is woken looks at the windows, and a frame that wakes a hundred of them thousands of times costs seconds.
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
			t.Fatalf("a window that went from %d to %d, of which all is sent, woke %d streams", before, last, n)
		}
	}
	if n := woken(); n != len(waiting) {
		t.Errorf("a window that has grown woke %d streams of %d", n, len(waiting))
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
