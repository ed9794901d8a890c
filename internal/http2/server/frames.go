package server

import (
	"io"

	"portico.dev/internal/http2/frame"
)

// What the frames of a client do. All of it is the reader's.

func broken(code frame.Code, why string) error { return frame.ConnError{Code: code, Why: why} }

func (c *conn) frame(f *frame.Frame) error {
	if open := c.block.Open(); open != 0 && (f.Type != frame.Continuation || f.Stream != open) {
		return broken(frame.ProtocolError, "something else within a header block")
	}
	switch f.Type {
	case frame.Headers, frame.Continuation:
		return c.headers(f)
	case frame.Data:
		return c.data(f)
	case frame.WindowUpdate:
		return c.windowUpdate(f)
	case frame.RSTStream:
		return c.resetStream(f)
	case frame.Settings:
		return c.settings(f)
	case frame.Ping:
		return c.ping(f)
	case frame.GoAway:
		return c.goneAway(f)
	case frame.Priority:
		return c.priority(f)
	case frame.PushPromise:
		return broken(frame.ProtocolError, "a client that pushes")
	}
	return c.bounds.said(1)
}

func (c *conn) data(f *frame.Frame) error {
	if f.Stream == 0 {
		return broken(frame.ProtocolError, "DATA on no stream")
	}
	p, err := f.Unpad()
	if err != nil {
		return err
	}
	size, end := len(f.Payload), f.Has(frame.FlagEndStream)
	if len(p) == 0 && !end {
		if err := c.bounds.said(1); err != nil {
			return err
		}
	}
	c.mu.Lock()
	if !c.inflow.Take(size) {
		c.mu.Unlock()
		return broken(frame.FlowControlError, "more DATA than the connection's window")
	}
	st, breaks := c.streams[f.Stream], c.breaks
	fault := c.arrivedLocked(st, f.Stream, size, len(p), end)
	var toConn, toStream uint32
	switch {
	case st == nil || fault != nil:
		toConn = c.inflow.Give(size)
	case size > len(p): // padding is read by nobody
		toConn, toStream = c.inflow.Give(size-len(p)), st.creditLocked(size-len(p))
	}
	c.mu.Unlock()
	if toConn > 0 || toStream > 0 {
		if err := c.out.Credits(f.Stream, toStream, toConn); err != nil {
			return err
		}
	}
	if fault != nil {
		return fault
	}
	if st == nil {
		return c.bounds.stray(breaks)
	}
	var ended error
	if end {
		ended = io.EOF
	}
	if unwanted := st.body.Add(p, ended); unwanted > 0 {
		if err := c.credit(nil, unwanted); err != nil {
			return err
		}
		return c.bounds.stray(breaks)
	}
	return nil
}

// arrivedLocked says what is wrong with DATA of which size bytes count and n are the body's.
func (c *conn) arrivedLocked(st *stream, id uint32, size, n int, end bool) error {
	switch {
	case st == nil && c.beyondLocked(id):
		return nil
	case st == nil && (id > c.last || id%2 == 0):
		return broken(frame.ProtocolError, "DATA on a stream that has not begun")
	case st == nil && c.brokenLocked(id):
		return nil
	case st == nil || st.received:
		return frame.StreamError{Stream: id, Code: frame.StreamClosed, Why: "DATA on a stream that has ended"}
	case !st.inflow.Take(size):
		return frame.StreamError{Stream: id, Code: frame.FlowControlError, Why: "more DATA than the stream's window"}
	}
	return st.receiveLocked(n, end)
}

// beyondLocked reports whether a stream is one that the client was told is not served.
func (c *conn) beyondLocked(id uint32) bool {
	return c.bye.stage >= byeFinal && id > c.bye.last && id%2 == 1
}

func (c *conn) brokenLocked(id uint32) bool {
	for _, other := range c.broken {
		if other == id {
			return true
		}
	}
	return false
}

func (c *conn) windowUpdate(f *frame.Frame) error {
	if len(f.Payload) != 4 {
		return broken(frame.FrameSizeError, "a WINDOW_UPDATE that is not 4 bytes")
	}
	increment := frame.Uint31(f.Payload)
	if !c.updates.Explained(c.out) {
		if err := c.bounds.said(1); err != nil {
			return err
		}
	}
	if f.Stream == 0 {
		if increment == 0 {
			return broken(frame.ProtocolError, "a WINDOW_UPDATE of nothing")
		}
		return c.out.Window(increment)
	}
	st, err := c.known(f.Stream, "WINDOW_UPDATE")
	if err != nil {
		return err
	}
	if increment == 0 {
		return frame.StreamError{Stream: f.Stream, Code: frame.ProtocolError, Why: "a WINDOW_UPDATE of nothing"}
	}
	if st == nil {
		return nil
	}
	return c.out.StreamWindow(&st.send, increment)
}

// known is a stream that has begun, or nil when it has ended since.
func (c *conn) known(id uint32, what string) (*stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if st := c.streams[id]; st != nil {
		return st, nil
	}
	if id%2 == 0 || id > c.last && !c.beyondLocked(id) {
		return nil, broken(frame.ProtocolError, what+" on a stream that has not begun")
	}
	return nil, nil
}

func (c *conn) resetStream(f *frame.Frame) error {
	if len(f.Payload) != 4 {
		return broken(frame.FrameSizeError, "an RST_STREAM that is not 4 bytes")
	}
	if f.Stream == 0 {
		return broken(frame.ProtocolError, "RST_STREAM on no stream")
	}
	st, err := c.known(f.Stream, "RST_STREAM")
	if err != nil {
		return err
	}
	if st == nil {
		return c.bounds.said(1)
	}
	c.forget(st, false)
	st.abort(resetError{frame.Code(frame.Uint32(f.Payload))})
	return c.bounds.reset()
}

func (c *conn) settings(f *frame.Frame) error {
	if f.Stream != 0 {
		return broken(frame.ProtocolError, "SETTINGS on a stream")
	}
	if f.Has(frame.FlagAck) {
		if len(f.Payload) > 0 {
			return broken(frame.FrameSizeError, "an acknowledgement of SETTINGS that is not empty")
		}
		return c.bounds.said(1)
	}
	if err := c.bounds.said(1 + len(f.Payload)/60); err != nil {
		return err
	}
	c.told = c.told[:0]
	err := frame.ParseSettings(f, func(s frame.Setting) error {
		c.told = append(c.told, s)
		return nil
	})
	if err != nil {
		return err
	}
	if err := c.out.Settled(c.told); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range c.streams {
		if c.out.Exceeds(&st.send) {
			return broken(frame.FlowControlError, "INITIAL_WINDOW_SIZE makes a stream's window too large")
		}
	}
	return nil
}

func (c *conn) ping(f *frame.Frame) error {
	if len(f.Payload) != 8 {
		return broken(frame.FrameSizeError, "a PING that is not 8 bytes")
	}
	if f.Stream != 0 {
		return broken(frame.ProtocolError, "PING on a stream")
	}
	if err := c.bounds.said(1); err != nil {
		return err
	}
	if !f.Has(frame.FlagAck) {
		return c.out.Pong(f.Payload)
	}
	if [8]byte(f.Payload) == farewell {
		c.lastCall()
	}
	return nil
}

func (c *conn) goneAway(f *frame.Frame) error {
	if f.Stream != 0 {
		return broken(frame.ProtocolError, "GOAWAY on a stream")
	}
	if len(f.Payload) < 8 {
		return broken(frame.FrameSizeError, "a GOAWAY that is less than 8 bytes")
	}
	c.goAway()
	return c.bounds.said(1)
}

func (c *conn) priority(f *frame.Frame) error {
	if f.Stream == 0 {
		return broken(frame.ProtocolError, "PRIORITY on no stream")
	}
	if err := c.bounds.said(1); err != nil {
		return err
	}
	if len(f.Payload) != 5 {
		return frame.StreamError{Stream: f.Stream, Code: frame.FrameSizeError, Why: "a PRIORITY that is not 5 bytes"}
	}
	if frame.Uint31(f.Payload) == f.Stream {
		return frame.StreamError{Stream: f.Stream, Code: frame.ProtocolError, Why: "a stream that depends on itself"}
	}
	return nil
}
