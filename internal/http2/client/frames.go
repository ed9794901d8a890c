package client

import (
	"errors"
	"fmt"

	"portico.dev/internal/http2/frame"
)

// reader is the reading goroutine's own.
type reader struct {
	conn   *Conn
	in     *frame.Reader
	block  *frame.Block
	inflow frame.Inflow // the connection's
	head   head
	now    frame.Frame
	spoke  bool // SETTINGS came
	list   []frame.Setting

	spare   int   // how much that carries nothing may still come
	look    int64 // the look at which spare was added to
	updates frame.Updates
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
	r.conn, r.in, r.spare = c, frame.NewReader(r), maxSpare
	r.block = frame.NewBlock(frame.BlockLimit(c.config.MaxHeaderBytes))
	r.inflow = frame.NewInflow(connWindow)
	r.head.begin(frame.Limits{Bytes: c.config.MaxHeaderBytes, Fields: maxFields})
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
	var only frame.StreamError
	if errors.As(err, &only) {
		return r.reset(only)
	}
	return err
}

// reset gives up one stream, because of what came on it.
func (r *reader) reset(why frame.StreamError) error {
	s, err := r.conn.find(why.Stream)
	if err != nil || s == nil {
		return err
	}
	s.fail(&Error{Broken, why}, why.Code)
	return nil
}

// codeOf is the code of an error of the connection.
func codeOf(err error) (code frame.Code, ok bool) {
	if err == nil {
		return 0, false
	}
	var broken frame.ConnError
	ok = errors.As(err, &broken)
	return broken.Code, ok
}

// onStream says of which stream an error is.
func onStream(err error, id uint32) error {
	var only frame.StreamError
	if errors.As(err, &only) {
		only.Stream = id
		return only
	}
	return err
}

func protocolError(format string, args ...any) error {
	return frame.ConnError{Code: frame.ProtocolError, Why: fmt.Sprintf(format, args...)}
}

func (r *reader) frame(f *frame.Frame) error {
	if !r.spoke && (f.Type != frame.Settings || f.Has(frame.FlagAck)) {
		return protocolError("the first frame is not SETTINGS")
	}
	if open := r.block.Open(); open != 0 && (f.Type != frame.Continuation || f.Stream != open) {
		return protocolError("a header block is interrupted")
	}
	switch f.Type {
	case frame.Data, frame.Headers, frame.RSTStream, frame.Priority, frame.Continuation:
		if f.Stream == 0 {
			return protocolError("a frame of type %d without a stream", f.Type)
		}
	case frame.Settings, frame.Ping, frame.GoAway:
		if f.Stream != 0 {
			return protocolError("a frame of type %d on a stream", f.Type)
		}
	}
	switch f.Type {
	case frame.Data:
		return r.data(f)
	case frame.Headers, frame.Continuation:
		return r.headers(f)
	case frame.RSTStream:
		return r.rst(f)
	case frame.WindowUpdate:
		return r.window(f)
	case frame.Settings:
		return r.settings(f)
	case frame.Ping:
		return r.ping(f)
	case frame.GoAway:
		return r.goAway(f)
	case frame.PushPromise:
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
		return frame.ConnError{Code: frame.EnhanceYourCalm, Why: "a flood of frames that carry nothing"}
	}
	r.spare -= cost
	return nil
}

func (r *reader) earn(n int) { r.spare = min(maxSpare, r.spare+n) }

func (r *reader) data(f *frame.Frame) error {
	n := len(f.Payload)
	if !r.inflow.Take(n) {
		return frame.ConnError{Code: frame.FlowControlError, Why: "more DATA than the connection's window"}
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
	end := f.Has(frame.FlagEndStream)
	if s == nil || len(p) == 0 && !end {
		if err := r.useless(1); err != nil || s == nil {
			return err
		}
	}
	return s.data(p, n, end)
}

func (r *reader) headers(f *frame.Frame) error {
	if f.Type == frame.Continuation && r.block.Open() == 0 {
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
	if failed == error(frame.ErrBlockTooLarge) {
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

func (r *reader) rst(f *frame.Frame) error {
	if len(f.Payload) != 4 {
		return frame.ConnError{Code: frame.FrameSizeError, Why: "RST_STREAM of another size"}
	}
	s, err := r.conn.find(f.Stream)
	if err != nil {
		return err
	}
	if s == nil {
		return r.useless(1)
	}
	s.wasReset(frame.Code(frame.Uint32(f.Payload)))
	return nil
}

func (r *reader) window(f *frame.Frame) error {
	if len(f.Payload) != 4 {
		return frame.ConnError{Code: frame.FrameSizeError, Why: "WINDOW_UPDATE of another size"}
	}
	increment := frame.Uint31(f.Payload)
	if !r.updates.Explained(r.conn.out) {
		if err := r.useless(1); err != nil {
			return err
		}
	}
	if f.Stream == 0 {
		if increment == 0 {
			return protocolError("a window that is opened by nothing")
		}
		return r.conn.out.Window(increment)
	}
	s, err := r.conn.find(f.Stream)
	if err != nil {
		return err
	}
	if s == nil {
		return nil
	}
	if increment == 0 {
		return frame.StreamError{Stream: f.Stream, Code: frame.ProtocolError, Why: "a window that is opened by nothing"}
	}
	return r.conn.out.StreamWindow(&s.sender, increment)
}

func (r *reader) settings(f *frame.Frame) error {
	if err := r.useless(1 + len(f.Payload)/60); err != nil {
		return err
	}
	if f.Has(frame.FlagAck) {
		if len(f.Payload) != 0 {
			return frame.ConnError{Code: frame.FrameSizeError, Why: "an acknowledgement with settings"}
		}
		r.conn.acknowledged.Store(true)
		return nil
	}
	c := r.conn
	r.list = r.list[:0]
	err := frame.ParseSettings(f, func(s frame.Setting) error {
		switch {
		case s.ID == frame.EnablePush && s.Value != 0:
			return protocolError("a server that wants to be pushed to")
		case s.ID == frame.MaxConcurrentStreams:
			c.allowed.Store(int64(min(s.Value, defaultStreams)))
		}
		r.list = append(r.list, s)
		return nil
	})
	if err != nil {
		return err
	}
	if err := c.out.Settled(r.list); err != nil {
		return err
	}
	if err := c.exceeded(); err != nil {
		return err
	}
	if len(r.list) > 16 {
		r.list = nil
	}
	if !r.spoke {
		r.spoke = true
		close(c.settled)
	}
	return nil
}

// exceeded finds the streams whose window SETTINGS made too large (RFC 9113, 6.9.2).
func (c *Conn) exceeded() error {
	c.mu.Lock()
	streams := make([]*stream, 0, len(c.streams))
	for _, s := range c.streams {
		streams = append(streams, s)
	}
	c.mu.Unlock()
	for _, s := range streams {
		if c.out.Exceeds(&s.sender) {
			return frame.ConnError{Code: frame.FlowControlError, Why: "SETTINGS make the window of a stream too large"}
		}
	}
	return nil
}

func (r *reader) ping(f *frame.Frame) error {
	if len(f.Payload) != 8 {
		return frame.ConnError{Code: frame.FrameSizeError, Why: "PING of another size"}
	}
	if err := r.useless(1); err != nil || f.Has(frame.FlagAck) { // that something was read is the answer
		return err
	}
	return r.conn.out.Pong(f.Payload)
}

func (r *reader) goAway(f *frame.Frame) error {
	if len(f.Payload) < 8 {
		return frame.ConnError{Code: frame.FrameSizeError, Why: "GOAWAY that is too short"}
	}
	if err := r.useless(1); err != nil {
		return err
	}
	r.conn.goAway(frame.Uint31(f.Payload))
	return nil
}

// goAway takes no more streams. Those above last were not looked at.
func (c *Conn) goAway(last uint32) {
	var passed []*stream
	c.mu.Lock()
	c.full.Store(true)
	for id, s := range c.streams {
		if id > last {
			passed = append(passed, s)
		}
	}
	spent := c.spent()
	c.mu.Unlock()
	why := &Error{Unprocessed, errGoAway}
	for _, s := range passed {
		s.fail(why, noReset)
	}
	if spent {
		c.Close()
	}
}
