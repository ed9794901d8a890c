package client

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/portico/http2/frame"
)

// reader is the state of the goroutine that reads.
type reader struct {
	conn         *Conn
	in           *frame.Reader
	block        *frame.BlockAssembler
	recvWindow   frame.RecvWindow // of the connection
	head         headerBlock
	now          frame.Frame
	settingsRead bool // the server's first SETTINGS have arrived
	settingsBuf  []frame.Setting

	allowance      int   // number of further frames without use that may arrive
	allowanceCheck int64 // the check in which allowance was last increased
	updates        frame.UpdateCounter
}

// Frames without use are limited: PING, SETTINGS, acknowledgements, PRIORITY, empty DATA, WINDOW_UPDATEs that are not
// explained by DATA sent by the client, unknown frames, and frames for streams that have ended. maxAllowance of them may
// arrive at once, and allowancePerCheck in each check interval, which is a thousand per second.
const (
	maxAllowance      = 5000
	allowancePerCheck = maxAllowance / 20
	// allowancePerResponse is added with each response: a server that answered before it read the request still sends
	// WINDOW_UPDATEs.
	allowancePerResponse = 8
	// allowancePerCancel is added for each request that the client resets, for frames in transit.
	allowancePerCancel = 64
	// costOfOversized ends a connection after several oversized header blocks. Decoding one costs as much as hundreds of
	// frames.
	costOfOversized = 500
)

func (r *reader) init(c *Conn) {
	r.conn, r.in, r.allowance = c, frame.NewReader(r), maxAllowance
	r.block = frame.NewBlockAssembler(frame.CompressedLimit(c.config.MaxHeaderBytes))
	r.recvWindow = frame.NewRecvWindow(connWindow)
	r.head.init(frame.BlockLimits{MaxBytes: c.config.MaxHeaderBytes, MaxFields: maxFields})
}

// Read is the io.Reader of in. It counts reads.
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
			err = r.streamErrors(err)
		}
	}
	return err
}

// streamErrors handles errors that end one stream.
func (r *reader) streamErrors(err error) error {
	var only frame.StreamError
	if errors.As(err, &only) {
		return r.reset(only)
	}
	return err
}

// reset resets a stream because of an invalid frame from the server.
func (r *reader) reset(why frame.StreamError) error {
	s, err := r.conn.lookup(why.Stream)
	if err != nil || s == nil {
		return err
	}
	s.fail(&engine.Error{Kind: engine.ProtocolViolation, Err: why}, why.Code)
	return nil
}

// codeOf returns the code of an error that ends the connection.
func codeOf(err error) (code frame.Code, ok bool) {
	if err == nil {
		return 0, false
	}
	var broken frame.ConnError
	ok = errors.As(err, &broken)
	return broken.Code, ok
}

// withStream adds the stream id to a stream error.
func withStream(err error, id uint32) error {
	var only frame.StreamError
	if errors.As(err, &only) {
		only.Stream = id
		return only
	}
	return err
}

func protocolError(format string, args ...any) error {
	return frame.ConnError{Code: frame.ProtocolError, Reason: fmt.Sprintf(format, args...)}
}

func (r *reader) frame(f *frame.Frame) error {
	if !r.settingsRead && (f.Type != frame.Settings || f.Has(frame.FlagAck)) {
		return protocolError("the first frame is not SETTINGS")
	}
	if open := r.block.OpenStream(); open != 0 && (f.Type != frame.Continuation || f.Stream != open) {
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
		return r.rstStream(f)
	case frame.WindowUpdate:
		return r.windowUpdate(f)
	case frame.Settings:
		return r.settings(f)
	case frame.Ping:
		return r.ping(f)
	case frame.GoAway:
		return r.goAway(f)
	case frame.PushPromise:
		return protocolError("PUSH_PROMISE, which was not allowed")
	}
	return r.takeAllowance(1) // PRIORITY, and unknown frames
}

// takeAllowance counts a frame without use. Too many end the connection.
func (r *reader) takeAllowance(cost int) error {
	if now := r.conn.checks.Load(); now != r.allowanceCheck {
		r.addAllowance(allowancePerCheck * int(min(now-r.allowanceCheck, maxAllowance)))
		r.allowanceCheck = now
	}
	if r.allowance < cost {
		r.addAllowance(allowancePerCancel * int(min(r.conn.cancelled.Swap(0), maxAllowance)))
	}
	if r.allowance < cost {
		return frame.ConnError{Code: frame.EnhanceYourCalm, Reason: "a flood of frames that carry nothing"}
	}
	r.allowance -= cost
	return nil
}

func (r *reader) addAllowance(n int) { r.allowance = min(maxAllowance, r.allowance+n) }

func (r *reader) data(f *frame.Frame) error {
	n := len(f.Payload)
	if !r.recvWindow.Take(n) {
		return frame.ConnError{Code: frame.FlowControlError, Reason: "more DATA than the connection's window"}
	}
	if increment := r.recvWindow.Return(n); increment > 0 {
		if err := r.conn.w.WriteWindowUpdate(0, increment); err != nil {
			return err
		}
	}
	p, err := f.Unpad()
	if err != nil {
		return err
	}
	s, err := r.conn.lookup(f.Stream)
	if err != nil {
		return err
	}
	end := f.Has(frame.FlagEndStream)
	if s == nil || len(p) == 0 && !end {
		if err := r.takeAllowance(1); err != nil || s == nil {
			return err
		}
	}
	return s.data(p, n, end)
}

func (r *reader) headers(f *frame.Frame) error {
	if f.Type == frame.Continuation && r.block.OpenStream() == 0 {
		return protocolError("CONTINUATION of nothing")
	}
	block, end, err := r.block.Add(f)
	if err != nil {
		return err
	}
	if r.block.OpenStream() != 0 {
		r.conn.headerBlockStarted()
		return nil
	}
	r.conn.headerBlockSince.Store(0)
	// Every block is decoded, because it changes the dynamic table.
	failed := r.head.decode(block)
	defer r.head.reset()
	if _, fatal := codeOf(failed); fatal {
		return failed
	}
	s, err := r.conn.lookup(f.Stream)
	if err != nil {
		return err
	}
	if failed == error(frame.ErrBlockTooLarge) {
		if err := r.takeAllowance(costOfOversized); err != nil {
			return err
		}
	}
	if s == nil {
		return r.takeAllowance(1 + len(block)>>10)
	}
	if failed != nil {
		return withStream(failed, f.Stream)
	}
	before := s.headersReceived
	err = s.headers(&r.head, end)
	if s.headersReceived && !before {
		r.addAllowance(allowancePerResponse)
	}
	return err
}

func (r *reader) rstStream(f *frame.Frame) error {
	if len(f.Payload) != 4 {
		return frame.ConnError{Code: frame.FrameSizeError, Reason: "RST_STREAM of another size"}
	}
	s, err := r.conn.lookup(f.Stream)
	if err != nil {
		return err
	}
	if s == nil {
		return r.takeAllowance(1)
	}
	s.serverReset(frame.Code(frame.Uint32(f.Payload)))
	return nil
}

func (r *reader) windowUpdate(f *frame.Frame) error {
	if len(f.Payload) != 4 {
		return frame.ConnError{Code: frame.FrameSizeError, Reason: "WINDOW_UPDATE of another size"}
	}
	increment := frame.Uint31(f.Payload)
	if !r.updates.Explained(r.conn.w) {
		if err := r.takeAllowance(1); err != nil {
			return err
		}
	}
	if f.Stream == 0 {
		if increment == 0 {
			return protocolError("a window that is opened by nothing")
		}
		return r.conn.w.AddConnWindow(increment)
	}
	s, err := r.conn.lookup(f.Stream)
	if err != nil {
		return err
	}
	if s == nil {
		return nil
	}
	if increment == 0 {
		return frame.StreamError{Stream: f.Stream, Code: frame.ProtocolError, Reason: "a window that is opened by nothing"}
	}
	return r.conn.w.AddStreamWindow(&s.send, increment)
}

func (r *reader) settings(f *frame.Frame) error {
	if err := r.takeAllowance(1 + len(f.Payload)/60); err != nil {
		return err
	}
	if f.Has(frame.FlagAck) {
		if len(f.Payload) != 0 {
			return frame.ConnError{Code: frame.FrameSizeError, Reason: "an acknowledgement with settings"}
		}
		r.conn.acknowledged.Store(true)
		return nil
	}
	c := r.conn
	r.settingsBuf = r.settingsBuf[:0]
	err := frame.ParseSettings(f, func(s frame.Setting) error {
		switch {
		case s.ID == frame.EnablePush && s.Value != 0:
			return protocolError("a server that wants to be pushed to")
		case s.ID == frame.MaxConcurrentStreams:
			c.maxStreams.Store(int64(min(s.Value, maxStreamsPerConn)))
		}
		r.settingsBuf = append(r.settingsBuf, s)
		return nil
	})
	if err != nil {
		return err
	}
	if err := c.w.AckSettings(r.settingsBuf); err != nil {
		return err
	}
	if err := c.checkWindows(); err != nil {
		return err
	}
	if len(r.settingsBuf) > 16 {
		r.settingsBuf = nil
	}
	if !r.settingsRead {
		r.settingsRead = true
		close(c.settingsReceived)
	}
	return nil
}

// checkWindows finds streams with a window that became too large with the server's SETTINGS (RFC 9113, section 6.9.2).
func (c *Conn) checkWindows() error {
	c.mu.Lock()
	streams := slices.Collect(maps.Values(c.streams))
	c.mu.Unlock()
	for _, s := range streams {
		if c.w.WindowOverflows(&s.send) {
			return frame.ConnError{Code: frame.FlowControlError, Reason: "SETTINGS make the window of a stream too large"}
		}
	}
	return nil
}

func (r *reader) ping(f *frame.Frame) error {
	if len(f.Payload) != 8 {
		return frame.ConnError{Code: frame.FrameSizeError, Reason: "PING of another size"}
	}
	if err := r.takeAllowance(1); err != nil || f.Has(frame.FlagAck) { // Check evaluates the read itself
		return err
	}
	return r.conn.w.WritePingAck(f.Payload)
}

func (r *reader) goAway(f *frame.Frame) error {
	if len(f.Payload) < 8 {
		return frame.ConnError{Code: frame.FrameSizeError, Reason: "GOAWAY that is too short"}
	}
	if err := r.takeAllowance(1); err != nil {
		return err
	}
	r.conn.goAway(frame.Uint31(f.Payload))
	return nil
}

// goAway accepts no more streams. The server did not process streams above last.
func (c *Conn) goAway(last uint32) {
	var passed []*stream
	c.mu.Lock()
	c.draining.Store(true)
	for id, s := range c.streams {
		if id > last {
			passed = append(passed, s)
		}
	}
	spent := c.drained()
	c.mu.Unlock()
	why := &engine.Error{Kind: engine.Unprocessed, Err: errGoAway}
	for _, s := range passed {
		s.fail(why, noReset)
	}
	if spent {
		c.Close()
	}
}
