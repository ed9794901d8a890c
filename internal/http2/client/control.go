package client

import "portico.dev/internal/http2/frame"

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
