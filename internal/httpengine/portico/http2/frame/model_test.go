package frame_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"portico.dev/internal/httpengine/portico/http2/frame"
)

// account tracks the bytes that a Writer may send and has sent to its peer. It reads the connection like a peer and opens windows as
// it chooses.
type account struct {
	t      *testing.T
	random *rand.Rand
	out    *frame.Writer

	mu         sync.Mutex // guards the fields below
	senders    map[uint32]*frame.SendStream
	connection int64
	initial    int64
	credit     map[uint32]int64 // in addition to the initial window
	got        map[uint32]hash.Hash
	received   map[uint32]int64
	ended      map[uint32]int
	announced  []int64 // initial windows without an acknowledgement
}

// read reads frames until all streams have ended.
func (a *account) read(conn io.Reader, streams int) {
	r := frame.NewReader(conn)
	defer r.Close()
	block, decoder := frame.NewBlockAssembler(1<<20), frame.NewDecoder(frame.BlockLimits{MaxBytes: 1 << 20, MaxFields: 100})
	for ends := 0; ends < streams; {
		f, err := r.Next()
		if err != nil {
			a.t.Errorf("read of a frame failed: %v, want no error", err)
			return
		}
		if open := block.OpenStream(); open != 0 && (f.Type != frame.Continuation || f.Stream != open) {
			a.t.Errorf("frame of type %d on stream %d within the header block of stream %d, want CONTINUATION", f.Type, f.Stream, open)
			return
		}
		switch f.Type {
		case frame.Headers, frame.Continuation:
			b, end, err := block.Add(&f)
			if err == nil && block.OpenStream() == 0 {
				err = decoder.Decode(b, func(name, value string) error { return nil })
			}
			if err != nil {
				a.t.Error(err)
				return
			}
			if end && block.OpenStream() == 0 {
				a.end(f.Stream)
				ends++
			}
		case frame.Data:
			a.data(&f)
			if f.Has(frame.FlagEndStream) {
				a.end(f.Stream)
				ends++
			}
		case frame.Settings:
			a.acknowledged()
		}
		a.disturb()
	}
}

func (a *account) end(stream uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended[stream]++
}

// data counts a DATA frame and reports bytes beyond the window.
func (a *account) data(f *frame.Frame) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := int64(len(f.Payload))
	a.received[f.Stream] += n
	a.connection -= n
	a.got[f.Stream].Write(f.Payload)
	if left := a.initial + a.credit[f.Stream] - a.received[f.Stream]; n > 0 && left < 0 {
		a.t.Errorf("stream %d received %d bytes, %d beyond its window, want 0", f.Stream, n, -left)
	}
	if a.connection < 0 {
		a.t.Errorf("connection received %d bytes beyond its window, want 0", -a.connection)
	}
	if a.ended[f.Stream] > 0 {
		a.t.Errorf("DATA on stream %d after its end, want none", f.Stream)
	}
}

// acknowledged applies the oldest announced setting.
func (a *account) acknowledged() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.initial = a.announced[0]
	a.announced = a.announced[1:]
}

// disturb opens a window, changes the initial window or sends a frame that needs a response, like the goroutine that reads. Streams
// with an empty window always receive an update in the end.
func (a *account) disturb() {
	switch a.random.IntN(8) {
	case 0:
		n := int64(a.random.IntN(120_000))
		a.mu.Lock()
		a.announced = append(a.announced, n)
		a.mu.Unlock()
		a.must(a.out.AckSettings(initialWindow(uint32(n))))
	case 1:
		a.must(a.out.WritePingAck(make([]byte, 8)))
	default:
		a.give()
	}
}

// give opens a window by one or many bytes if necessary.
func (a *account) give() {
	amount := func() int64 { return []int64{1, 10, 5000, 60_000, 200_000}[a.random.IntN(5)] }
	type gift struct {
		s *frame.SendStream
		n int64
	}
	var gifts []gift
	a.mu.Lock()
	for id, s := range a.senders {
		if a.ended[id] == 0 && a.initial+a.credit[id]-a.received[id] < 30_000 {
			gifts = append(gifts, gift{s, amount()})
			a.credit[id] += gifts[len(gifts)-1].n
		}
	}
	n := int64(0)
	if a.connection < 100_000 {
		n = amount()
		a.connection += n
	}
	a.mu.Unlock()
	for _, g := range gifts {
		a.must(a.out.AddStreamWindow(g.s, uint32(g.n)))
	}
	if n > 0 {
		a.must(a.out.AddConnWindow(uint32(n)))
	}
}

func (a *account) must(err error) {
	if err != nil {
		a.t.Error(err)
	}
}

// For all sequences of window changes with many simultaneous streams, the received data equals the sent data and stays within the
// windows.
func TestWriterMatchesModel(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		runModel(t, seed)
		if t.Failed() {
			t.Fatalf("model with seed %d failed, want success", seed)
		}
	}
}

func runModel(t *testing.T, seed uint64) {
	const streams = 8
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	o := frame.NewWriter(ours, 0, neverFails(t))
	a := &account{
		t: t, random: rand.New(rand.NewPCG(seed, 1)), out: o, senders: map[uint32]*frame.SendStream{},
		connection: frame.InitialWindow, initial: frame.InitialWindow,
		credit: map[uint32]int64{}, got: map[uint32]hash.Hash{}, received: map[uint32]int64{}, ended: map[uint32]int{},
	}
	sent := make([]hash.Hash, streams)
	for i := range streams {
		id := uint32(2*i + 1)
		a.senders[id], a.got[id], sent[i] = &frame.SendStream{ID: id}, sha256.New(), sha256.New()
	}
	stop := make(chan struct{})
	var ticking, all sync.WaitGroup
	reading := make(chan struct{})
	all.Add(1)
	go func() {
		defer close(reading)
		a.read(theirs, streams)
		all.Done()
		_, _ = io.Copy(io.Discard, theirs) // responses to the last frames
	}()
	ticking.Go(func() { // Streams that wait for a window get an update although nothing arrives.
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				a.nudge()
			}
		}
	})
	for i := range streams {
		all.Go(func() {
			if err := send(o, a.senders[uint32(2*i+1)], sent[i], rand.New(rand.NewPCG(seed, uint64(i+2)))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	close(stop)
	ticking.Wait()
	o.Wait()
	_ = ours.Close()
	<-reading
	for i := range streams {
		id := uint32(2*i + 1)
		if !bytes.Equal(a.got[id].Sum(nil), sent[i].Sum(nil)) || a.ended[id] != 1 {
			t.Errorf("stream %d: data differs or it ended %d times, want the data sent and one end", id, a.ended[id])
		}
	}
}

// nudge opens the windows of all streams without window.
func (a *account) nudge() {
	a.mu.Lock()
	var hungry []*frame.SendStream
	for id, s := range a.senders {
		if a.ended[id] == 0 && a.initial+a.credit[id]-a.received[id] <= 0 && len(a.announced) == 0 {
			a.credit[id] += 3000
			hungry = append(hungry, s)
		}
	}
	n := uint32(0)
	if a.connection <= 0 {
		n = 5000
		a.connection += int64(n)
	}
	a.mu.Unlock()
	for _, s := range hungry {
		a.must(a.out.AddStreamWindow(s, 3000))
	}
	if n > 0 {
		a.must(a.out.AddConnWindow(n))
	}
}

// send writes one stream: a header, data in pieces, and one of the possible ends.
func send(o *frame.Writer, s *frame.SendStream, sum hash.Hash, random *rand.Rand) error {
	head := fields{":status", "200", "x", string(bytes.Repeat([]byte{'x'}, random.IntN(30_000)))}
	piece := func(n int) []byte {
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(random.Uint32())
		}
		sum.Write(p)
		return p
	}
	o.AddActive(1)
	defer o.AddActive(-1)
	errs := []error{o.WriteHeaders(s, head, piece(random.IntN(3000)), false)}
	for range random.IntN(10) {
		errs = append(errs, o.WriteData(s, piece(random.IntN(40_000)), false))
	}
	switch random.IntN(3) {
	case 0:
		errs = append(errs, o.WriteData(s, piece(random.IntN(100)), true))
	case 1:
		errs = append(errs, o.WriteData(s, nil, true))
	case 2:
		errs = append(errs, o.WriteHeaders(s, fields{"trailer", "x"}, nil, true))
	}
	return errors.Join(errs...)
}
