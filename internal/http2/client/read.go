package client

import (
	"errors"
	"fmt"

	"portico.dev/internal/http2/wire"
)

// reader is the reading goroutine's own.
type reader struct {
	conn   *Conn
	in     *wire.Reader
	block  *wire.Block
	inflow wire.Inflow // the connection's
	head   head
	now    wire.Frame
	spoke  bool // SETTINGS came
	list   []wire.Setting

	spare   int   // how much that carries nothing may still come
	look    int64 // the look at which spare was added to
	updates wire.Updates
}

// What carries nothing is bounded: PING, SETTINGS, acknowledgements, PRIORITY, empty DATA, updates of windows beyond what our
// DATA explains, what nobody knows, and what is about streams that are over. maxSpare of them may come at once, and
// sparePerLook with each look, which is a thousand a second.
const (
	maxSpare     = 5000
	sparePerLook = maxSpare / 20
	// spareOfResponse may come with each response besides: windows of a request that was answered before it was read.
	spareOfResponse = 8
	// spareOfCancelled may come for each request that we give up: what was on its way.
	spareOfCancelled = 64
	// costOfOversized has a connection end after some header blocks that are too large: they cost as much to read as hundreds of
	// frames.
	costOfOversized = 500
)

func (r *reader) begin(c *Conn) {
	r.conn, r.in, r.spare = c, wire.NewReader(r), maxSpare
	r.block = wire.NewBlock(wire.BlockLimit(c.config.MaxHeaderBytes))
	r.inflow = wire.NewInflow(connWindow)
	r.head.begin(wire.Limits{Bytes: c.config.MaxHeaderBytes, Fields: maxFields})
}

// Read is where in reads from.
func (r *reader) Read(p []byte) (int, error) {
	n, err := r.conn.nc.Read(p)
	if n > 0 {
		r.conn.reads.Add(1)
	}
	return n, err
}

func (r *reader) close() { r.in.Close() }

func (r *reader) run() (err error) {
	for err == nil {
		if r.now, err = r.in.Next(); err == nil {
			err = r.frame(&r.now)
		}
		if err != nil {
			err = r.survive(err)
		}
	}
	return err
}

// survive takes an error that is about one stream.
func (r *reader) survive(err error) error {
	var only wire.StreamError
	if errors.As(err, &only) {
		return r.reset(only)
	}
	return err
}

// reset gives up one stream, because of what came on it.
func (r *reader) reset(why wire.StreamError) error {
	s, err := r.conn.find(why.Stream)
	if err != nil || s == nil {
		return err
	}
	s.fail(&Error{Broken, why}, why.Code)
	return nil
}

// codeOf is the code of an error of the connection.
func codeOf(err error) (code wire.Code, ok bool) {
	if err == nil {
		return 0, false
	}
	var broken wire.ConnError
	ok = errors.As(err, &broken)
	return broken.Code, ok
}

// onStream says of which stream an error is.
func onStream(err error, id uint32) error {
	var only wire.StreamError
	if errors.As(err, &only) {
		only.Stream = id
		return only
	}
	return err
}

func protocolError(format string, args ...any) error {
	return wire.ConnError{Code: wire.ProtocolError, Why: fmt.Sprintf(format, args...)}
}

func (r *reader) frame(f *wire.Frame) error {
	if !r.spoke && (f.Type != wire.Settings || f.Has(wire.FlagAck)) {
		return protocolError("the first frame is not SETTINGS")
	}
	if open := r.block.Open(); open != 0 && (f.Type != wire.Continuation || f.Stream != open) {
		return protocolError("a header block is interrupted")
	}
	switch f.Type {
	case wire.Data, wire.Headers, wire.RSTStream, wire.Priority, wire.Continuation:
		if f.Stream == 0 {
			return protocolError("a frame of type %d without a stream", f.Type)
		}
	case wire.Settings, wire.Ping, wire.GoAway:
		if f.Stream != 0 {
			return protocolError("a frame of type %d on a stream", f.Type)
		}
	}
	switch f.Type {
	case wire.Data:
		return r.data(f)
	case wire.Headers, wire.Continuation:
		return r.headers(f)
	case wire.RSTStream:
		return r.rst(f)
	case wire.WindowUpdate:
		return r.window(f)
	case wire.Settings:
		return r.settings(f)
	case wire.Ping:
		return r.ping(f)
	case wire.GoAway:
		return r.goAway(f)
	case wire.PushPromise:
		return protocolError("PUSH_PROMISE, which was not allowed")
	}
	return r.useless(1) // PRIORITY, and what does not exist yet
}

// useless counts a frame that carries nothing. Too many are a flood.
func (r *reader) useless(cost int) error {
	if now := r.conn.looks.Load(); now != r.look {
		r.earn(sparePerLook * int(min(now-r.look, maxSpare)))
		r.look = now
	}
	if r.spare < cost {
		r.earn(spareOfCancelled * int(min(r.conn.cancelled.Swap(0), maxSpare)))
	}
	if r.spare < cost {
		return wire.ConnError{Code: wire.EnhanceYourCalm, Why: "a flood of frames that carry nothing"}
	}
	r.spare -= cost
	return nil
}

func (r *reader) earn(n int) { r.spare = min(maxSpare, r.spare+n) }

func (r *reader) data(f *wire.Frame) error {
	n := len(f.Payload)
	if !r.inflow.Take(n) {
		return wire.ConnError{Code: wire.FlowControlError, Why: "more DATA than the connection's window"}
	}
	if increment := r.inflow.Give(n); increment > 0 {
		if err := r.conn.out.Credit(0, increment); err != nil {
			return err
		}
	}
	p, err := f.Unpad()
	if err != nil {
		return err
	}
	s, err := r.conn.find(f.Stream)
	if err != nil {
		return err
	}
	end := f.Has(wire.FlagEndStream)
	if s == nil || len(p) == 0 && !end {
		if err := r.useless(1); err != nil || s == nil {
			return err
		}
	}
	return s.data(p, n, end)
}

func (r *reader) headers(f *wire.Frame) error {
	if f.Type == wire.Continuation && r.block.Open() == 0 {
		return protocolError("CONTINUATION of nothing")
	}
	block, end, err := r.block.Add(f)
	if err != nil {
		return err
	}
	if r.block.Open() != 0 {
		r.conn.blockBegan()
		return nil
	}
	r.conn.blockSince.Store(0)
	// A block is read even if nobody wants it: it changes the table.
	failed := r.head.read(block)
	defer r.head.reset()
	if _, fatal := codeOf(failed); fatal {
		return failed
	}
	s, err := r.conn.find(f.Stream)
	if err != nil {
		return err
	}
	if failed == error(wire.ErrBlockTooLarge) {
		if err := r.useless(costOfOversized); err != nil {
			return err
		}
	}
	if s == nil {
		return r.useless(1 + len(block)>>10)
	}
	if failed != nil {
		return onStream(failed, f.Stream)
	}
	before := s.heads
	err = s.headers(&r.head, end)
	if s.heads && !before {
		r.earn(spareOfResponse)
	}
	return err
}

func (r *reader) rst(f *wire.Frame) error {
	if len(f.Payload) != 4 {
		return wire.ConnError{Code: wire.FrameSizeError, Why: "RST_STREAM of another size"}
	}
	s, err := r.conn.find(f.Stream)
	if err != nil {
		return err
	}
	if s == nil {
		return r.useless(1)
	}
	s.wasReset(wire.Code(wire.Uint32(f.Payload)))
	return nil
}
