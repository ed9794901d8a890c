package frame_test

import (
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"portico.dev/internal/httpengine/portico/http2/frame"
)

// A37: an update of the connection's window wakes one of the waiting streams, in order.
func TestA37WindowUpdateWakesOneStreamInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams, piece = 100, 300
		here, there := net.Pipe()
		out := frame.NewWriter(here, 0, func(error) {})
		came := make(chan uint32, 1000)
		go func() {
			defer close(came)
			for r := frame.NewReader(there); ; {
				f, err := r.Next()
				if err != nil {
					return
				}
				if f.Type == frame.Data {
					came <- f.Stream
				}
			}
		}()
		first := &frame.SendStream{ID: 1}
		if err := out.WriteData(first, make([]byte, frame.InitialWindow), false); err != nil { // No window is left.
			t.Fatal(err)
		}
		var all sync.WaitGroup
		senders := make([]*frame.SendStream, streams)
		for i := range senders {
			senders[i] = &frame.SendStream{ID: uint32(2*i + 3)}
			all.Go(func() { _ = out.WriteData(senders[i], make([]byte, 10*piece), true) })
			synctest.Wait() // in this order
		}
		for len(came) > 0 {
			<-came
		}
		for turn := range 3 * streams {
			if err := out.AddConnWindow(piece); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if len(came) != 1 {
				t.Fatalf("turn %d: %d frames, want 1", turn, len(came))
			}
			if id := <-came; id != senders[turn%streams].ID {
				t.Fatalf("turn %d: frame of stream %d, want stream %d", turn, id, senders[turn%streams].ID)
			}
		}
		// An aborted stream does not block the turns of other streams. A large update is enough for all.
		out.Abort(senders[0], io.ErrUnexpectedEOF)
		if err := out.AddConnWindow(1 << 20); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		for _, s := range senders[1:] {
			if !out.Ended(s) {
				t.Errorf("stream %d is open, want it ended", s.ID)
			}
		}
		out.Close(frame.ErrClosed)
		_ = here.Close()
		out.Wait()
		for range came { //nolint:revive // until the channel is closed
		}
	})
}

// A36: a long download does not accumulate allowance for a flood of window updates.
func TestA36WindowUpdateAllowanceDoesNotAccumulate(t *testing.T) {
	out := frame.NewWriter(io.Discard, 0, func(error) {})
	var updates frame.UpdateCounter
	s := &frame.SendStream{ID: 1}
	mebibyte := make([]byte, 1<<20)
	if err := out.AddConnWindow(frame.MaxWindow - frame.InitialWindow); err != nil {
		t.Fatal(err)
	}
	if err := out.AddStreamWindow(s, frame.MaxWindow-frame.InitialWindow); err != nil {
		t.Fatal(err)
	}
	for range 1024 {
		if err := out.WriteData(s, mebibyte, false); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for updates.Explained(out) {
		n++
	}
	if n < 200_000 || n > 300_000 {
		t.Errorf("%d updates were explained, want 200000 to 300000", n)
	}
}

// BenchmarkWindowWhileStreamsStarve measures a one-byte update while a hundred streams wait for the connection's window.
func BenchmarkWindowWhileStreamsStarve(b *testing.B) {
	out := frame.NewWriter(io.Discard, 0, func(error) {})
	var all sync.WaitGroup
	for i := range 101 {
		s := &frame.SendStream{ID: uint32(2*i + 1)}
		_ = out.AddStreamWindow(s, 1<<30)
		body := make([]byte, 1<<20)
		all.Go(func() { _ = out.WriteData(s, body, true) })
	}
	for now, _ := out.ConnWindow(); now > 0; now, _ = out.ConnWindow() {
		runtime.Gosched()
	}
	for b.Loop() {
		_ = out.AddConnWindow(1)
		for now, _ := out.ConnWindow(); now > 0; now, _ = out.ConnWindow() {
			runtime.Gosched()
		}
	}
	out.Close(frame.ErrClosed)
	all.Wait()
}
