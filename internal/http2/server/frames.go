package server

import (
	"io"
	"slices"

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

// Requests and their trailers, as they come in header blocks. All of it is the reader's.

func (c *conn) headers(f *frame.Frame) error {
	if f.Type == frame.Continuation && c.block.Open() == 0 {
		return broken(frame.ProtocolError, "CONTINUATION of nothing")
	}
	if f.Stream%2 == 0 {
		return broken(frame.ProtocolError, "HEADERS on a stream that is not a client's")
	}
	block, end, err := c.block.Add(f)
	if err != nil {
		return err
	}
	if c.block.Open() != 0 {
		c.headerBegan()
		return nil
	}
	if c.slow {
		c.headerEnded()
	}
	defer c.head.reset() // an idle connection keeps none of it
	err = c.decoder.Decode(block, c.each)
	if broken, ok := err.(frame.ConnError); ok {
		return broken
	}
	if err == error(frame.ErrBlockTooLarge) {
		if err := c.bounds.said(costOfOversized); err != nil {
			return err
		}
	}
	return c.message(f.Stream, end, err)
}

// message is a whole header block, and err what was wrong with it.
func (c *conn) message(id uint32, end bool, err error) error {
	c.mu.Lock()
	st := c.streams[id]
	known := id <= c.last
	beyond := c.beyondLocked(id)
	expected := st == nil && known && c.brokenLocked(id)
	if !known && !beyond {
		c.last = id
	}
	crowded := c.crowdedLocked()
	c.mu.Unlock()
	switch {
	case beyond || expected:
		return c.bounds.said(1)
	case st != nil:
		return c.trailers(st, end, err)
	case known:
		return broken(frame.ProtocolError, "HEADERS on a stream that has ended")
	case crowded:
		return frame.StreamError{Stream: id, Code: frame.RefusedStream, Why: "too many streams"}
	case c.refused():
		return frame.StreamError{Stream: id, Code: frame.RefusedStream, Why: "memory is short"}
	}
	if err != nil && err != error(frame.ErrBlockTooLarge) {
		return streamFault(id, err)
	}
	st, err = c.request(id, end, err != nil)
	if err != nil {
		return streamFault(id, err)
	}
	return c.begin(st)
}

// crowdedLocked reports whether the client has begun as many streams as it may. Those whose handlers have returned are not
// counted any more, but go on being open while their ends wait for windows.
func (c *conn) crowdedLocked() bool {
	most := c.server.c.MaxConcurrentStreams
	if c.open >= most || len(c.streams) < most {
		return c.open >= most
	}
	n := 0
	for _, st := range c.streams {
		if !c.out.Ended(&st.send) {
			n++
		}
	}
	return n >= most
}

// streamFault is err as the fault of stream id.
func streamFault(id uint32, err error) error {
	fault, ok := err.(frame.StreamError)
	if !ok {
		fault = frame.StreamError{Code: frame.ProtocolError, Why: err.Error()}
	}
	fault.Stream = id
	return fault
}

// begin has the handler of st run, as soon as one may.
func (c *conn) begin(st *stream) error {
	c.mu.Lock()
	if c.bye.stage >= byeBroken {
		c.mu.Unlock()
		return errGone
	}
	c.streams[st.send.ID] = st
	c.open++
	if c.busy >= c.server.c.MaxConcurrentStreams { // of streams that were reset
		c.waiting = append(slices.DeleteFunc(c.waiting, func(other *stream) bool { return c.streams[other.send.ID] != other }), st)
		c.mu.Unlock()
		return nil
	}
	c.busy++
	c.running.Add(1)
	c.mu.Unlock()
	c.out.Expect(1)
	c.server.pool.run(st)
	return nil
}

func (c *conn) trailers(st *stream, end bool, err error) error {
	id := st.send.ID
	c.mu.Lock()
	closed := st.received
	c.mu.Unlock()
	switch {
	case closed:
		return frame.StreamError{Stream: id, Code: frame.StreamClosed, Why: "HEADERS after the end of the request"}
	case err != nil:
		return streamFault(id, err)
	case !end:
		return frame.StreamError{Stream: id, Code: frame.ProtocolError, Why: "trailers that do not end the request"}
	case c.head.pseudo != 0:
		return frame.StreamError{Stream: id, Code: frame.ProtocolError, Why: "a pseudo field in trailers"}
	}
	if err := st.body.trailers(c.head.fields); err != nil {
		return streamFault(id, err)
	}
	c.mu.Lock()
	err = st.receiveLocked(0, true)
	c.mu.Unlock()
	if err == nil {
		st.body.End(io.EOF)
	}
	return err
}
