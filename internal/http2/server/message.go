package server

import (
	"io"
	"slices"

	"portico.dev/internal/http2/frame"
)

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
