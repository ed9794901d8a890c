package frame_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"portico.dev/internal/httpengine/portico/http2/frame"
)

// fields are the names and values of a header.
type fields []string

func (f fields) EncodeHeaders(e *frame.Encoder) {
	for i := 0; i+1 < len(f); i += 2 {
		e.WriteField(f[i], f[i+1])
	}
}

// gate is a connection that holds writes until they are released, and records them.
type gate struct {
	pass   chan error // nil: the write succeeds
	writes [][]byte
}

func newGate() *gate { return &gate{pass: make(chan error)} }

func (g *gate) Write(p []byte) (int, error) {
	kept := bytes.Clone(p)
	if err := <-g.pass; err != nil {
		return 0, err
	}
	g.writes = append(g.writes, kept)
	return len(p), nil
}

// let releases writes until none is left.
func (g *gate) let() {
	for {
		synctest.Wait()
		select {
		case g.pass <- nil:
		default:
			return
		}
	}
}

// open is a connection that accepts writes at once.
type open struct {
	mu sync.Mutex
	bytes.Buffer
}

func (o *open) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Buffer.Write(p)
}

// told describes the written frames.
func told(t *testing.T, b []byte) (list []string) {
	t.Helper()
	framer := http2.NewFramer(nil, bytes.NewReader(b))
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := framer.ReadFrame()
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		h := f.Header()
		word := fmt.Sprintf("%v %d", h.Type, h.StreamID)
		if d, ok := f.(*http2.DataFrame); ok {
			word += fmt.Sprintf(" %d", len(d.Data()))
		}
		if (h.Type == http2.FrameData || h.Type == http2.FrameHeaders) && h.Flags.Has(http2.FlagDataEndStream) {
			word += " end"
		}
		if (h.Type == http2.FrameSettings || h.Type == http2.FramePing) && h.Flags.Has(http2.FlagSettingsAck) {
			word += " ack"
		}
		list = append(list, word)
	}
}

func neverFails(t *testing.T) func(error) {
	return func(err error) { t.Errorf("write failed: %v, want no error", err) }
}

func initialWindow(n uint32) []frame.Setting {
	return []frame.Setting{{ID: frame.InitialWindowSize, Value: n}}
}

// The Writer sends exactly the bytes that the windows allow.
func TestWriterStaysWithinWindows(t *testing.T) {
	type out = frame.Writer
	for _, test := range []struct {
		name  string
		size  int // of the body
		steps []func(*out, *frame.SendStream) error
		want  []string // frames at the start and after each step
	}{
		{"within the windows", 20000, nil, []string{"DATA 1 16384, DATA 1 3616 end"}},
		{"as much as the windows", 65535, nil, []string{"DATA 1 16384, DATA 1 16384, DATA 1 16384, DATA 1 16383 end"}},
		{"one byte at a time", 65538, []func(*out, *frame.SendStream) error{
			func(o *out, s *frame.SendStream) error { return o.AddStreamWindow(s, 1) },
			func(o *out, s *frame.SendStream) error { return o.AddConnWindow(1) },
			func(o *out, s *frame.SendStream) error { return o.AddConnWindow(100) },
			func(o *out, s *frame.SendStream) error { return o.AddStreamWindow(s, 1) },
			func(o *out, s *frame.SendStream) error { return o.AddStreamWindow(s, 100) },
		}, []string{"DATA 1 16384, DATA 1 16384, DATA 1 16384, DATA 1 16383", "", "DATA 1 1", "", "DATA 1 1", "DATA 1 1 end"}},
		{"the initial window shrinks below nothing, and opens", 65636, []func(*out, *frame.SendStream) error{
			func(o *out, s *frame.SendStream) error { return o.AddConnWindow(1 << 20) },
			func(o *out, s *frame.SendStream) error { return o.AckSettings(initialWindow(10_000)) },
			func(o *out, s *frame.SendStream) error { return o.AddStreamWindow(s, 55_535) },
			func(o *out, s *frame.SendStream) error { return o.AddStreamWindow(s, 1) },
			func(o *out, s *frame.SendStream) error { return o.AckSettings(initialWindow(10_010)) },
			func(o *out, s *frame.SendStream) error { return o.AckSettings(initialWindow(0)) },
			func(o *out, s *frame.SendStream) error { return o.AddStreamWindow(s, 10_009) },
			func(o *out, s *frame.SendStream) error { return o.AddStreamWindow(s, 2) },
			func(o *out, s *frame.SendStream) error { return o.AckSettings(initialWindow(1 << 20)) },
		}, []string{
			"DATA 1 16384, DATA 1 16384, DATA 1 16384, DATA 1 16383", "", "SETTINGS 0 ack", "", "DATA 1 1", "SETTINGS 0 ack, DATA 1 10",
			"SETTINGS 0 ack", "", "DATA 1 1", "SETTINGS 0 ack, DATA 1 89 end",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var conn open
				o := frame.NewWriter(&conn, 0, neverFails(t))
				s := &frame.SendStream{ID: 1}
				var all sync.WaitGroup
				all.Go(func() {
					if err := o.WriteData(s, pattern(test.size), true); err != nil {
						t.Error(err)
					}
				})
				for i, want := range test.want {
					if i > 0 {
						if err := test.steps[i-1](o, s); err != nil {
							t.Fatal(err)
						}
					}
					synctest.Wait()
					if got := strings.Join(told(t, conn.Bytes()), ", "); got != want {
						t.Errorf("frames after step %d = %q, want %q", i, got, want)
					}
					conn.Reset()
				}
				all.Wait()
			})
		})
	}
}

// The end of a stream needs no window, even if the window is negative.
func TestWriterEndsStreamWithoutWindow(t *testing.T) {
	for name, initial := range map[string]uint32{"the window is used up": 1000, "the window is below nothing": 10} {
		for way, end := range map[string]func(*frame.Writer, *frame.SendStream) error{
			"DATA 1 0 end": func(o *frame.Writer, s *frame.SendStream) error { return o.WriteData(s, nil, true) },
			"HEADERS 1 end": func(o *frame.Writer, s *frame.SendStream) error {
				return o.WriteHeaders(s, fields{"a", "b"}, nil, true)
			},
		} {
			t.Run(name+", "+way, func(t *testing.T) {
				var conn open
				o := frame.NewWriter(&conn, 0, neverFails(t))
				s := &frame.SendStream{ID: 1}
				if err := errors.Join(o.WriteData(s, make([]byte, 1000), false), o.AckSettings(initialWindow(initial))); err != nil {
					t.Fatal(err)
				}
				o.Wait()
				conn.Reset()
				if err := end(o, s); err != nil {
					t.Fatal(err)
				}
				if got := told(t, conn.Bytes()); !slices.Equal(got, []string{way}) {
					t.Errorf("frames = %q, want %q", got, way)
				}
				if !o.Abort(s, io.EOF) {
					t.Error("Abort of the ended stream = false, want true")
				}
			})
		}
	}
}

func TestWriterRejectsWindowOverflow(t *testing.T) {
	o := frame.NewWriter(io.Discard, 0, neverFails(t))
	s := &frame.SendStream{ID: 5}
	if err := errors.Join(o.AddConnWindow(frame.MaxWindow-frame.InitialWindow), o.AddStreamWindow(s, frame.MaxWindow-frame.InitialWindow)); err != nil {
		t.Fatal(err)
	}
	if c, connection := code(o.AddConnWindow(1)); c != frame.FlowControlError || !connection {
		t.Errorf("AddConnWindow beyond the maximum: code = %v, want FLOW_CONTROL_ERROR", c)
	}
	err := o.AddStreamWindow(s, 1)
	if c, connection := code(err); c != frame.FlowControlError || connection || err.(frame.StreamError).Stream != 5 {
		t.Errorf("AddStreamWindow beyond the maximum: error = %v, want FLOW_CONTROL_ERROR on stream 5", err)
	}
	if err := o.WriteData(s, make([]byte, 10), false); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(o.AddConnWindow(10), o.AddStreamWindow(s, 10)); err != nil {
		t.Errorf("windows of the maximum size: error = %v, want no error", err)
	}
}

// Header blocks of several frames stay contiguous while other streams write. All frames arrive in order.
func TestWriterKeepsHeaderBlocksContiguous(t *testing.T) {
	const streams, rounds = 16, 20
	var conn open
	o := frame.NewWriter(&conn, 1, neverFails(t))
	_ = o.AckSettings([]frame.Setting{{ID: frame.InitialWindowSize, Value: frame.MaxWindow}})
	_ = o.AddConnWindow(frame.MaxWindow - frame.InitialWindow)
	o.AddActive(streams)
	var all sync.WaitGroup
	for i := range streams {
		all.Go(func() {
			s := &frame.SendStream{ID: uint32(2*i + 1)}
			head := fields{":status", "200", "x", strings.Repeat(string(rune('a'+i)), 40_000), "y", fmt.Sprint(i)}
			for round := range rounds {
				if err := o.WriteHeaders(s, head, pattern(100*i), false); err != nil {
					t.Error(err)
				}
				if round%4 == 0 {
					_ = o.WritePingAck(make([]byte, 8))
				}
			}
			if err := o.WriteHeaders(s, fields{"trailer", fmt.Sprint(i)}, nil, true); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	o.Wait()
	framer := http2.NewFramer(nil, &conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	framer.MaxHeaderListSize = 1 << 20
	heads, data, ends := map[uint32]int{}, map[uint32]int{}, map[uint32]int{}
	for {
		f, err := framer.ReadFrame()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		i := int(f.Header().StreamID-1) / 2
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			heads[f.StreamID]++
			if v := f.Fields[len(f.Fields)-1].Value; v != fmt.Sprint(i) {
				t.Fatalf("stream %d has the fields of %s, want %d", f.StreamID, v, i)
			}
			if f.StreamEnded() {
				ends[f.StreamID]++
			}
		case *http2.DataFrame:
			if want := pattern(100 * i); !bytes.Equal(f.Data(), want) {
				t.Fatalf("stream %d received data of another stream, want its own", f.StreamID)
			}
			data[f.StreamID]++
		}
	}
	for i := range streams {
		id := uint32(2*i + 1)
		if heads[id] != rounds+1 || ends[id] != 1 || i > 0 && data[id] != rounds {
			t.Errorf("stream %d: %d headers, %d data frames, %d ends, want %d, %d and 1", id, heads[id], data[id], ends[id], rounds+1, rounds)
		}
	}
}

// Frames that are added during a write are sent together in the next write.
func TestWriterBatchesFramesAddedDuringWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		o := frame.NewWriter(g, 1, neverFails(t))
		var all sync.WaitGroup
		say := func(i int) {
			all.Go(func() {
				if err := o.WriteHeaders(&frame.SendStream{ID: uint32(i)}, fields{"a", "b"}, []byte("x"), true); err != nil {
					t.Error(err)
				}
			})
		}
		say(1)
		synctest.Wait()
		for i := range 50 {
			say(2*i + 3)
		}
		synctest.Wait()
		g.let()
		all.Wait()
		if len(g.writes) != 2 || len(told(t, slices.Concat(g.writes...))) != 102 {
			t.Errorf("%d writes for 102 frames, want 2", len(g.writes))
		}
	})
}

// If several messages are in preparation, the first writer waits for the other ones. They need no lock and no separate write.
func TestWriterWaitsForMessagesInPreparation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		o := frame.NewWriter(g, 0, neverFails(t))
		o.AddActive(2)
		var all sync.WaitGroup
		for _, id := range []uint32{1, 3} {
			all.Go(func() { _ = o.WriteHeaders(&frame.SendStream{ID: id}, fields{"a", "b"}, nil, true) })
		}
		g.let()
		all.Wait()
		if got := told(t, slices.Concat(g.writes...)); len(got) != 2 || len(g.writes) > 2 {
			t.Errorf("frames = %q in %d writes, want 2 frames in at most 2 writes", got, len(g.writes))
		}
	})
}

// Required responses, such as acknowledgements, do not wait. Their number is bounded.
func TestWriterBoundsRequiredResponses(t *testing.T) {
	for name, answer := range map[string]func(*frame.Writer) error{
		"PING":          func(o *frame.Writer) error { return o.WritePingAck(make([]byte, 8)) },
		"SETTINGS":      func(o *frame.Writer) error { return o.AckSettings(nil) },
		"RST_STREAM":    func(o *frame.Writer) error { return o.WriteRSTStream(1, frame.RefusedStream) },
		"WINDOW_UPDATE": func(o *frame.Writer) error { return o.WriteWindowUpdate(0, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate()
				o := frame.NewWriter(g, 0, func(error) {})
				_ = answer(o)
				synctest.Wait() // The write is in progress and stays blocked.
				n := 1
				for ; n < 1_000_000; n++ {
					if err := answer(o); err != nil {
						if err != frame.ErrFlood {
							t.Error(err)
						}
						break
					}
				}
				if n < 1000 || n > 40_000 {
					t.Errorf("writer failed after %d responses, want 1000 to 40000", n)
				}
				o.Close(frame.ErrClosed)
				g.pass <- io.ErrClosedPipe
				o.Wait()
			})
		})
	}
}

// Messages wait while the queue is long, which bounds the memory. They continue afterwards.
func TestWriterBlocksMessagesWhileQueueIsLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		o := frame.NewWriter(g, 0, neverFails(t))
		_ = o.AddConnWindow(frame.MaxWindow - frame.InitialWindow)
		var all sync.WaitGroup
		for i := range 30 {
			all.Go(func() {
				if err := o.WriteHeaders(&frame.SendStream{ID: uint32(2*i + 1)}, fields{"a", "b"}, pattern(60_000), true); err != nil {
					t.Error(err)
				}
			})
		}
		g.let()
		all.Wait()
		total := 0
		for i, w := range g.writes {
			if total += len(w); len(w) > 200<<10 {
				t.Errorf("write %d has %d bytes, want at most %d", i, len(w), 200<<10)
			}
		}
		if total < 30*60_000 {
			t.Errorf("%d bytes written, want at least %d", total, 30*60_000)
		}
	})
}

// All waiting calls, for a window or for space, return the error that ended the wait.
func TestWriterErrorWakesAllWaiters(t *testing.T) {
	why := errors.New("why")
	for _, test := range []struct {
		name string
		end  func(*frame.Writer, *gate, []*frame.SendStream)
		stay int // number of calls that still wait
	}{
		{"Close", func(o *frame.Writer, _ *gate, _ []*frame.SendStream) { o.Close(why) }, 0},
		{"an error of a write", func(_ *frame.Writer, g *gate, _ []*frame.SendStream) { g.pass <- why }, 0},
		{"Abort of each", func(o *frame.Writer, _ *gate, list []*frame.SendStream) {
			for _, s := range list {
				o.Abort(s, why)
			}
		}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate()
				failures := 0
				o := frame.NewWriter(g, 1, func(error) { failures++ })
				starved := &frame.SendStream{ID: 1}
				var list []*frame.SendStream
				var mu sync.Mutex
				var got []error
				var all sync.WaitGroup
				run := func(s *frame.SendStream, do func() error) {
					list = append(list, s)
					all.Go(func() {
						err := do()
						mu.Lock()
						defer mu.Unlock()
						got = append(got, err)
					})
				}
				run(starved, func() error { return o.WriteData(starved, make([]byte, 70_000), true) })
				g.let()
				_ = o.AddConnWindow(1 << 20)
				_ = o.WritePingAck(make([]byte, 8)) // The write is in progress and stays blocked.
				synctest.Wait()
				filler := &frame.SendStream{ID: 3}
				if err := o.WriteData(filler, make([]byte, 65_535), false); err != nil {
					t.Fatal(err)
				}
				for i := range 3 {
					s := &frame.SendStream{ID: uint32(5 + 2*i)}
					run(s, func() error { return o.WriteHeaders(s, fields{"a", "b"}, nil, true) })
					s2 := &frame.SendStream{ID: uint32(15 + 2*i)}
					run(s2, func() error { return o.WriteData(s2, []byte("x"), true) })
				}
				synctest.Wait()
				if len(got) != 0 {
					t.Fatalf("calls returned early: %v, want all to wait", got)
				}
				test.end(o, g, list)
				synctest.Wait()
				mu.Lock()
				if len(got) != len(list) {
					t.Errorf("%d calls returned, want %d", len(got), len(list))
				}
				for _, err := range got {
					if !errors.Is(err, why) {
						t.Errorf("error of a waiting call = %v, want %v", err, why)
					}
				}
				mu.Unlock()
				o.Close(frame.ErrClosed)
				select {
				case g.pass <- io.ErrClosedPipe:
				default:
				}
				all.Wait()
				o.Wait()
				if test.name == "an error of a write" && failures != 1 {
					t.Errorf("OnFail called %d times, want 1", failures)
				}
				if err := o.WriteData(&frame.SendStream{ID: 99}, []byte("x"), true); err == nil {
					t.Error("WriteData after the failure: error = nil, want an error")
				}
			})
		})
	}
}

// opening is the header of a request.
type opening struct {
	fields
	opened func(uint32) error
}

func (o opening) Opened(id uint32) error { return o.opened(id) }

func TestWriterOpensStreamsInOrder(t *testing.T) {
	var conn open
	o := frame.NewWriter(&conn, 1, neverFails(t))
	o.AddActive(8)
	refused := errors.New("refused")
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			s := &frame.SendStream{}
			_, err := o.OpenStream(s, opening{fields{":method", "GET"}, func(id uint32) error {
				if i%5 == 0 {
					return refused
				}
				return nil
			}}, nil, true)
			if i%5 == 0 != (err == refused) || err == nil && s.ID%2 != 1 {
				t.Errorf("OpenStream %d: error = %v, stream ID %d, want an odd ID or the refusal", i, err, s.ID)
			}
		})
	}
	all.Wait()
	list := told(t, conn.Bytes())
	for i, word := range list {
		if want := fmt.Sprintf("HEADERS %d end", 2*i+1); word != want {
			t.Fatalf("frame = %q, want %q", word, want)
		}
	}
	if len(list) != 160 {
		t.Errorf("%d streams opened, want 160", len(list))
	}
	last := frame.NewWriter(io.Discard, frame.MaxStreamID, neverFails(t))
	if _, err := last.OpenStream(&frame.SendStream{}, opening{nil, func(uint32) error { return nil }}, nil, true); err != nil {
		t.Error(err)
	}
	if _, err := last.OpenStream(&frame.SendStream{}, opening{nil, func(uint32) error { return nil }}, nil, true); !errors.Is(err, frame.ErrNoMoreStreams) {
		t.Errorf("OpenStream beyond the last ID: error = %v, want ErrNoMoreStreams", err)
	}
}

// OpenStream sends the allowed part and does not wait. The rest is sent when windows open. Everything is written when WaitFlushed
// returns.
func TestOpenStreamDoesNotWaitForWindow(t *testing.T) {
	for _, test := range []struct {
		body, window int
		want         string
		rest         string
	}{
		{0, 10, "HEADERS 1 end", ""},
		{10, 10, "HEADERS 1, DATA 1 10 end", ""},
		{11, 10, "HEADERS 1, DATA 1 10", "DATA 1 1 end"},
		{30, 0, "HEADERS 1", "DATA 1 30 end"},
	} {
		t.Run(fmt.Sprintf("%d bytes, a window of %d", test.body, test.window), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var conn open
				o := frame.NewWriter(&conn, 1, neverFails(t))
				_ = o.AckSettings(initialWindow(uint32(test.window)))
				o.WaitFlushed()
				conn.Reset()
				s := &frame.SendStream{}
				body := pattern(test.body)
				n, err := o.OpenStream(s, opening{fields{"a", "b"}, func(uint32) error { return nil }}, body, true)
				if err != nil || n != min(test.body, test.window) {
					t.Fatalf("OpenStream = %d, error %v, want %d bytes", n, err, min(test.body, test.window))
				}
				if got := strings.Join(told(t, conn.Bytes()), ", "); got != test.want {
					t.Errorf("frames = %q, want %q", got, test.want)
				}
				if ended := o.Ended(s); ended != (test.rest == "") {
					t.Errorf("ended = %v, want %v", ended, test.rest == "")
				}
				if test.rest == "" {
					return
				}
				conn.Reset()
				var all sync.WaitGroup
				all.Go(func() { _ = o.WriteData(s, body[n:], true) })
				synctest.Wait()
				if err := o.AddStreamWindow(s, 100); err != nil {
					t.Fatal(err)
				}
				all.Wait()
				o.WaitFlushed()
				if got := strings.Join(told(t, conn.Bytes()), ", "); got != test.rest || !o.Ended(s) {
					t.Errorf("remaining frames = %q, want %q and the end of the stream", got, test.rest)
				}
			})
		})
	}
}
