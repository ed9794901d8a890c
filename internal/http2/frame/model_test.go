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

	"portico.dev/internal/http2/frame"
)

// account is what the other side of an Out may be sent, and what it was. It reads the connection, as a peer does, and gives
// windows as it likes.
type account struct {
	t      *testing.T
	random *rand.Rand
	out    *frame.Writer

	mu         sync.Mutex // guards what follows
	senders    map[uint32]*frame.SendStream
	connection int64
	initial    int64
	credit     map[uint32]int64 // beyond the initial window
	got        map[uint32]hash.Hash
	received   map[uint32]int64
	ended      map[uint32]int
	announced  []int64 // initial windows that are not acknowledged
}

// read takes frames until all streams have ended.
func (a *account) read(conn io.Reader, streams int) {
	r := frame.NewReader(conn)
	defer r.Close()
	block, decoder := frame.NewBlockAssembler(1<<20), frame.NewDecoder(frame.BlockLimits{MaxBytes: 1 << 20, MaxFields: 100})
	for ends := 0; ends < streams; {
		f, err := r.Next()
		if err != nil {
			a.t.Errorf("reading: %v", err)
			return
		}
		if open := block.OpenStream(); open != 0 && (f.Type != frame.Continuation || f.Stream != open) {
			a.t.Errorf("frame %d of stream %d within the header block of %d", f.Type, f.Stream, open)
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

// data counts a DATA frame, and finds one that is more than was allowed.
func (a *account) data(f *frame.Frame) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := int64(len(f.Payload))
	a.received[f.Stream] += n
	a.connection -= n
	a.got[f.Stream].Write(f.Payload)
	if left := a.initial + a.credit[f.Stream] - a.received[f.Stream]; n > 0 && left < 0 {
		a.t.Errorf("stream %d was sent %d bytes, %d of them too many", f.Stream, n, -left)
	}
	if a.connection < 0 {
		a.t.Errorf("the connection was sent %d bytes too many", -a.connection)
	}
	if a.ended[f.Stream] > 0 {
		a.t.Errorf("data on stream %d after its end", f.Stream)
	}
}

// acknowledged applies the oldest setting that was announced: from here on it counts.
func (a *account) acknowledged() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.initial = a.announced[0]
	a.announced = a.announced[1:]
}

// disturb gives some window, changes the initial one or asks for an answer, as the goroutine that reads does. Streams whose
// window was used up are always given some in the end.
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

// give gives one byte or many, where there is need.
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

// Whatever windows are given and taken while many streams send at one time: what arrives is what was sent, and never more than
// was allowed.
func TestOutAgainstAModel(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		runModel(t, seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
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
		_, _ = io.Copy(io.Discard, theirs) // answers that were asked for at the end
	}()
	ticking.Go(func() { // those that wait for a window get one, though nothing arrives
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
			t.Errorf("stream %d: what arrived is not what was sent, or ended %d times", id, a.ended[id])
		}
	}
}

// nudge gives a little to everybody who has nothing left.
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

// send is one stream: a head, data in pieces, and one of the ways to end.
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
