package frame_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"portico.dev/internal/httpengine/portico/http2/frame"
)

// consumedCounter counts the consumed bytes.
type consumedCounter struct{ n atomic.Int64 }

func (l *consumedCounter) Consumed(n int) { l.n.Add(int64(n)) }

func TestBodyIsReadUnchanged(t *testing.T) {
	var l consumedCounter
	b := &frame.Body{Consumer: &l}
	want := pattern(100_000)
	go func() {
		random := rand.New(rand.NewPCG(1, 2))
		for rest := want; len(rest) > 0; {
			n := min(len(rest), 1+random.IntN(16384))
			var err error
			if n == len(rest) {
				err = io.EOF
			}
			if unwanted := b.Add(bytes.Clone(rest[:n]), err); unwanted != 0 {
				t.Errorf("Add returned %d unwanted bytes, want 0", unwanted)
			}
			rest = rest[n:]
		}
	}()
	got, err := io.ReadAll(b)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("read = %d bytes, error %v, want the %d bytes added", len(got), err, len(want))
	}
	if n := l.n.Load(); n != 100_000 {
		t.Errorf("%d bytes counted, want 100000", n)
	}
}

func TestBodyReturnsErrorAtItsEnd(t *testing.T) {
	reset := errors.New("reset")
	for _, test := range []struct {
		name     string
		do       func(*frame.Body)
		want     string
		err      error
		counted  int64 // by the Consumer after all reads
		unwanted int   // of three more bytes
	}{
		{"the end comes with the bytes", func(b *frame.Body) { b.Add([]byte("abc"), io.EOF) }, "abc", nil, 3, 3},
		{"the end comes later", func(b *frame.Body) { b.Add([]byte("abc"), nil); b.End(io.EOF) }, "abc", nil, 3, 3},
		{"only the first end counts", func(b *frame.Body) { b.End(io.EOF); b.End(reset) }, "", nil, 0, 3},
		{"cut short after what arrived", func(b *frame.Body) { b.Add([]byte("abc"), reset) }, "abc", reset, 3, 3},
		{"failed: what arrived is not read", func(b *frame.Body) { b.Add([]byte("abc"), nil); b.Fail(reset) }, "", reset, 3, 3},
		{"failed after its end, unread", func(b *frame.Body) { b.Add([]byte("abc"), io.EOF); b.Fail(reset) }, "", reset, 3, 3},
		{"failed after its end, all read", func(b *frame.Body) { b.End(io.EOF); b.Fail(reset) }, "", nil, 0, 3},
		{"closed", func(b *frame.Body) { b.Add([]byte("abc"), nil); _ = b.Close(); _ = b.Close() }, "", frame.ErrBodyClosed, 3, 3},
		{"closed after failing", func(b *frame.Body) { b.Add([]byte("abc"), nil); b.Fail(reset); _ = b.Close() }, "", frame.ErrBodyClosed, 3, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			var l consumedCounter
			b := &frame.Body{Consumer: &l}
			test.do(b)
			if n := b.Add([]byte("xyz"), nil); n != test.unwanted {
				t.Errorf("Add of three more bytes = %d unwanted, want %d", n, test.unwanted)
			}
			got, err := io.ReadAll(b)
			if string(got) != test.want || err != test.err {
				t.Errorf("read = %q, error %v, want %q and %v", got, err, test.want, test.err)
			}
			if l.n.Load() != test.counted {
				t.Errorf("%d bytes counted, want %d", l.n.Load(), test.counted)
			}
		})
	}
}

func TestBodyWakesItsReader(t *testing.T) {
	reset := errors.New("reset")
	for name, test := range map[string]struct {
		do   func(*frame.Body)
		want error
	}{
		"by bytes":     {func(b *frame.Body) { b.Add([]byte("a"), nil) }, nil},
		"by its end":   {func(b *frame.Body) { b.End(io.EOF) }, io.EOF},
		"by a failure": {func(b *frame.Body) { b.Fail(reset) }, reset},
		"by Close":     {func(b *frame.Body) { _ = b.Close() }, frame.ErrBodyClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &frame.Body{}
				got := make(chan error)
				go func() {
					_, err := b.Read(make([]byte, 8))
					got <- err
				}()
				synctest.Wait()
				select {
				case err := <-got:
					t.Fatalf("Read returned before data arrived: %v, want it to wait", err)
				default:
				}
				test.do(b)
				if err := <-got; err != test.want {
					t.Errorf("error of Read = %v, want %v", err, test.want)
				}
			})
		})
	}
}

// Every received byte is counted once, by Add or by the Consumer, in all interleavings.
func TestBodyCountsEveryByteOnce(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 7))
		var l consumedCounter
		b := &frame.Body{Consumer: &l}
		sizes, reads, ends := make([]int, 20), random.IntN(20), random.IntN(4)
		total, unwanted := 0, 0
		for i := range sizes {
			sizes[i] = random.IntN(5000)
			total += sizes[i]
		}
		var all sync.WaitGroup
		all.Go(func() {
			for _, n := range sizes {
				unwanted += b.Add(make([]byte, n), nil)
			}
			b.End(io.EOF)
		})
		all.Go(func() {
			p := make([]byte, 3000)
			for range reads {
				if _, err := b.Read(p); err != nil {
					break
				}
			}
			if ends > 0 {
				_ = b.Close()
			} else if _, err := io.Copy(io.Discard, b); err != nil {
				t.Error(err)
			}
		})
		if ends > 1 {
			all.Go(func() { b.Fail(io.ErrUnexpectedEOF) })
		}
		all.Wait()
		if got := int(l.n.Load()) + unwanted; got != total {
			t.Fatalf("seed %d: %d bytes counted, want %d", seed, got, total)
		}
	}
}

func TestInflow(t *testing.T) {
	f := frame.NewRecvWindow(1000)
	for _, step := range []struct {
		name       string
		take, give int
		ok         bool
		notice     uint32
	}{
		{name: "all but one", take: 999, ok: true},
		{name: "two more are too many", take: 2},
		{name: "one more", take: 1, ok: true},
		{name: "nothing, with nothing left", take: 0, ok: true},
		{name: "a little is not worth a frame", give: 249, ok: true},
		{name: "and does not count yet", take: 1},
		{name: "a quarter is", give: 1, ok: true, notice: 250},
		{name: "and counts", take: 250, ok: true},
		{name: "to the byte", take: 1},
	} {
		if step.give > 0 {
			if n := f.Return(step.give); n != step.notice {
				t.Errorf("%s: Return = %d, want %d", step.name, n, step.notice)
			}
		} else if ok := f.Take(step.take); ok != step.ok {
			t.Errorf("%s: Take(%d) = %v, want %v", step.name, step.take, ok, step.ok)
		}
	}
	if tiny := frame.NewRecvWindow(1); !tiny.Take(1) || tiny.Return(1) != 1 {
		t.Error("window of 1 stays closed after Return(1), want an update of 1")
	}
}
