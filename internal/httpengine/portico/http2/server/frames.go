package server

import (
	"io"
	"slices"

	"portico.dev/internal/httpengine/portico/http2/frame"
)

// This file processes received frames, on the goroutine that reads.

func connError(code frame.Code, why string) error { return frame.ConnError{Code: code, Reason: why} }

func (c *conn) frame(f *frame.Frame) error {
	if open := c.block.OpenStream(); open != 0 && (f.Type != frame.Continuation || f.Stream != open) {
		return connError(frame.ProtocolError, "something else within a header block")
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
		return c.recvGoAway(f)
	case frame.Priority:
		return c.priority(f)
	case frame.PushPromise:
		return connError(frame.ProtocolError, "a client that pushes")
	}
	return c.rate.takeControl(1)
}

func (c *conn) data(f *frame.Frame) error {
	if f.Stream == 0 {
		return connError(frame.ProtocolError, "DATA on no stream")
	}
	p, err := f.Unpad()
	if err != nil {
		return err
	}
	size, end := len(f.Payload), f.Has(frame.FlagEndStream)
	if len(p) == 0 && !end {
		if err := c.rate.takeControl(1); err != nil {
			return err
		}
	}
	c.mu.Lock()
	if !c.recvWindow.Take(size) {
		c.mu.Unlock()
		return connError(frame.FlowControlError, "more DATA than the connection's window")
	}
	st, breaks := c.streams[f.Stream], c.resetCount
	fault := c.dataErrorLocked(st, f.Stream, size, len(p), end)
	var toConn, toStream uint32
	switch {
	case st == nil || fault != nil:
		toConn = c.recvWindow.Return(size)
	case size > len(p): // padding is not read
		toConn, toStream = c.recvWindow.Return(size-len(p)), st.returnWindowLocked(size-len(p))
	}
	c.mu.Unlock()
	if toConn > 0 || toStream > 0 {
		if err := c.w.WriteWindowUpdates(f.Stream, toStream, toConn); err != nil {
			return err
		}
	}
	if fault != nil {
		return fault
	}
	if st == nil {
		return c.rate.takeStray(breaks)
	}
	var ended error
	if end {
		ended = io.EOF
	}
	if unwanted := st.body.Add(p, ended); unwanted > 0 {
		if err := c.returnWindow(nil, unwanted); err != nil {
			return err
		}
		return c.rate.takeStray(breaks)
	}
	return nil
}

// dataErrorLocked returns the error of a DATA frame with size bytes, of which n belong to the body.
func (c *conn) dataErrorLocked(st *stream, id uint32, size, n int, end bool) error {
	switch {
	case st == nil && c.beyondLastLocked(id):
		return nil
	case st == nil && (id > c.lastID || id%2 == 0):
		return connError(frame.ProtocolError, "DATA on a stream that has not begun")
	case st == nil && c.wasResetLocked(id):
		return nil
	case st == nil || st.received:
		return frame.StreamError{Stream: id, Code: frame.StreamClosed, Reason: "DATA on a stream that has ended"}
	case !st.recvWindow.Take(size):
		return frame.StreamError{Stream: id, Code: frame.FlowControlError, Reason: "more DATA than the stream's window"}
	}
	return st.addReceivedLocked(n, end)
}

// beyondLastLocked reports whether a stream is later than the last stream in GOAWAY.
func (c *conn) beyondLastLocked(id uint32) bool {
	return c.goaway.stage >= goAwayFinal && id > c.goaway.lastID && id%2 == 1
}

func (c *conn) wasResetLocked(id uint32) bool {
	return slices.Contains(c.resetStreams[:], id)
}

func (c *conn) windowUpdate(f *frame.Frame) error {
	if len(f.Payload) != 4 {
		return connError(frame.FrameSizeError, "a WINDOW_UPDATE that is not 4 bytes")
	}
	increment := frame.Uint31(f.Payload)
	if !c.updates.Explained(c.w) {
		if err := c.rate.takeControl(1); err != nil {
			return err
		}
	}
	if f.Stream == 0 {
		if increment == 0 {
			return connError(frame.ProtocolError, "a WINDOW_UPDATE of nothing")
		}
		return c.w.AddConnWindow(increment)
	}
	st, err := c.lookup(f.Stream, "WINDOW_UPDATE")
	if err != nil {
		return err
	}
	if increment == 0 {
		return frame.StreamError{Stream: f.Stream, Code: frame.ProtocolError, Reason: "a WINDOW_UPDATE of nothing"}
	}
	if st == nil {
		return nil
	}
	return c.w.AddStreamWindow(&st.send, increment)
}

// lookup returns a stream that was opened, or nil if it has ended.
func (c *conn) lookup(id uint32, what string) (*stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if st := c.streams[id]; st != nil {
		return st, nil
	}
	if id%2 == 0 || id > c.lastID && !c.beyondLastLocked(id) {
		return nil, connError(frame.ProtocolError, what+" on a stream that has not begun")
	}
	return nil, nil
}

func (c *conn) resetStream(f *frame.Frame) error {
	if len(f.Payload) != 4 {
		return connError(frame.FrameSizeError, "an RST_STREAM that is not 4 bytes")
	}
	if f.Stream == 0 {
		return connError(frame.ProtocolError, "RST_STREAM on no stream")
	}
	st, err := c.lookup(f.Stream, "RST_STREAM")
	if err != nil {
		return err
	}
	if st == nil {
		return c.rate.takeControl(1)
	}
	c.removeStream(st, false)
	st.abort(clientResetError{frame.Code(frame.Uint32(f.Payload))})
	return c.rate.takeReset()
}

func (c *conn) settings(f *frame.Frame) error {
	if f.Stream != 0 {
		return connError(frame.ProtocolError, "SETTINGS on a stream")
	}
	if f.Has(frame.FlagAck) {
		if len(f.Payload) > 0 {
			return connError(frame.FrameSizeError, "an acknowledgement of SETTINGS that is not empty")
		}
		return c.rate.takeControl(1)
	}
	if err := c.rate.takeControl(1 + len(f.Payload)/60); err != nil {
		return err
	}
	c.settingsBuf = c.settingsBuf[:0]
	err := frame.ParseSettings(f, func(s frame.Setting) error {
		c.settingsBuf = append(c.settingsBuf, s)
		return nil
	})
	if err != nil {
		return err
	}
	if err := c.w.AckSettings(c.settingsBuf); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range c.streams {
		if c.w.WindowOverflows(&st.send) {
			return connError(frame.FlowControlError, "INITIAL_WINDOW_SIZE makes a stream's window too large")
		}
	}
	return nil
}

func (c *conn) ping(f *frame.Frame) error {
	if len(f.Payload) != 8 {
		return connError(frame.FrameSizeError, "a PING that is not 8 bytes")
	}
	if f.Stream != 0 {
		return connError(frame.ProtocolError, "PING on a stream")
	}
	if err := c.rate.takeControl(1); err != nil {
		return err
	}
	if !f.Has(frame.FlagAck) {
		return c.w.WritePingAck(f.Payload)
	}
	if [8]byte(f.Payload) == goAwayPingData {
		c.sendLastGoAway()
	}
	return nil
}

func (c *conn) recvGoAway(f *frame.Frame) error {
	if f.Stream != 0 {
		return connError(frame.ProtocolError, "GOAWAY on a stream")
	}
	if len(f.Payload) < 8 {
		return connError(frame.FrameSizeError, "a GOAWAY that is less than 8 bytes")
	}
	c.goAway()
	return c.rate.takeControl(1)
}

func (c *conn) priority(f *frame.Frame) error {
	if f.Stream == 0 {
		return connError(frame.ProtocolError, "PRIORITY on no stream")
	}
	if err := c.rate.takeControl(1); err != nil {
		return err
	}
	if len(f.Payload) != 5 {
		return frame.StreamError{Stream: f.Stream, Code: frame.FrameSizeError, Reason: "a PRIORITY that is not 5 bytes"}
	}
	if frame.Uint31(f.Payload) == f.Stream {
		return frame.StreamError{Stream: f.Stream, Code: frame.ProtocolError, Reason: "a stream that depends on itself"}
	}
	return nil
}

// Header blocks: requests and their trailers.

func (c *conn) headers(f *frame.Frame) error {
	if f.Type == frame.Continuation && c.block.OpenStream() == 0 {
		return connError(frame.ProtocolError, "CONTINUATION of nothing")
	}
	if f.Stream%2 == 0 {
		return connError(frame.ProtocolError, "HEADERS on a stream that is not a client's")
	}
	block, end, err := c.block.Add(f)
	if err != nil {
		return err
	}
	if c.block.OpenStream() != 0 {
		c.headerStarted()
		return nil
	}
	if c.partialBlock {
		c.headerEnded()
	}
	defer c.endBlock()
	err = c.decoder.Decode(block, c.addField)
	if broken, ok := err.(frame.ConnError); ok {
		return broken
	}
	if err == error(frame.ErrBlockTooLarge) {
		if err := c.rate.takeControl(costOfOversized); err != nil {
			return err
		}
	} else if c.large.Large() {
		if err := c.takeLarge(); err != nil {
			return err
		}
	}
	return c.headersComplete(f.Stream, end, err)
}

// headersComplete processes a complete header block. err is the error of the block.
func (c *conn) headersComplete(id uint32, end bool, err error) error {
	c.mu.Lock()
	st := c.streams[id]
	known := id <= c.lastID
	beyond := c.beyondLastLocked(id)
	expected := st == nil && known && c.wasResetLocked(id)
	if !known && !beyond {
		c.lastID = id
	}
	crowded := c.atStreamLimitLocked()
	c.mu.Unlock()
	switch {
	case beyond || expected:
		return c.rate.takeControl(1)
	case st != nil:
		return c.trailers(st, end, err)
	case known:
		return connError(frame.ProtocolError, "HEADERS on a stream that has ended")
	case crowded:
		return frame.StreamError{Stream: id, Code: frame.RefusedStream, Reason: "too many streams"}
	case c.shouldRefuse():
		return frame.StreamError{Stream: id, Code: frame.RefusedStream, Reason: "memory is short"}
	}
	if err != nil && err != error(frame.ErrBlockTooLarge) {
		return streamFault(id, err)
	}
	st, err = c.newRequest(id, end, err != nil)
	if err != nil {
		return streamFault(id, err)
	}
	return c.startHandler(st)
}

// atStreamLimitLocked reports whether the client has reached its limit of streams. A stream is still open after its handler
// has returned, while its end waits for a window.
func (c *conn) atStreamLimitLocked() bool {
	most := c.server.c.MaxConcurrentStreams
	if c.open >= most || len(c.streams) < most {
		return c.open >= most
	}
	n := 0
	for _, st := range c.streams {
		if !c.w.Ended(&st.send) {
			n++
		}
	}
	return n >= most
}

// streamFault returns err as the error of a stream.
func streamFault(id uint32, err error) error {
	fault, ok := err.(frame.StreamError)
	if !ok {
		fault = frame.StreamError{Code: frame.ProtocolError, Reason: err.Error()}
	}
	fault.Stream = id
	return fault
}

// startHandler runs the handler of st, or queues st.
func (c *conn) startHandler(st *stream) error {
	c.mu.Lock()
	if c.goaway.stage >= goAwayError {
		c.mu.Unlock()
		st.memory.grant.Release()
		return errClientGone
	}
	c.streams[st.send.ID] = st
	c.open++
	if c.handling >= c.server.c.MaxConcurrentStreams { // the handlers of reset streams count too
		c.queued = append(slices.DeleteFunc(c.queued, c.isDroppedLocked), st)
		c.mu.Unlock()
		return nil
	}
	c.handling++
	c.running.Add(1)
	c.mu.Unlock()
	c.w.AddActive(1)
	c.server.pool.run(st)
	return nil
}

// isDroppedLocked reports whether a queued stream was reset, and releases its grant. The caller must remove the stream from
// the queue.
func (c *conn) isDroppedLocked(st *stream) bool {
	if c.streams[st.send.ID] == st {
		return false
	}
	st.memory.grant.Release()
	return true
}

func (c *conn) trailers(st *stream, end bool, err error) error {
	id := st.send.ID
	c.mu.Lock()
	closed := st.received
	c.mu.Unlock()
	switch {
	case closed:
		return frame.StreamError{Stream: id, Code: frame.StreamClosed, Reason: "HEADERS after the end of the request"}
	case err != nil:
		return streamFault(id, err)
	case !end:
		return frame.StreamError{Stream: id, Code: frame.ProtocolError, Reason: "trailers that do not end the request"}
	case c.head.pseudo != 0:
		return frame.StreamError{Stream: id, Code: frame.ProtocolError, Reason: "a pseudo field in trailers"}
	}
	if err := st.body.setTrailers(c.head.fields); err != nil {
		return streamFault(id, err)
	}
	c.mu.Lock()
	err = st.addReceivedLocked(0, true)
	c.mu.Unlock()
	if err == nil {
		st.body.End(io.EOF)
	}
	return err
}
