package server

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/http2/frame"
	"portico.dev/internal/httpmsg"
)

var (
	errGone   = errors.New("the client is gone")
	errParted = errors.New("the connection is at its end")
)

// conn is a connection of a client. One goroutine reads it, in run; what is said to be the reader's, only it touches.
type conn struct {
	server *Server
	net    net.Conn
	raw    net.Conn // below TLS
	tls    *tls.ConnectionState
	remote string
	home   httpmsg.Home
	out    *frame.Out

	// The reader's.
	in      *frame.Reader
	block   *frame.Block
	decoder *frame.Decoder
	head    head
	each    func(name, value string) error // head.add, made once
	bounds  bounds
	told    []frame.Setting // room for the settings of a frame
	slow    bool            // the header block in hand did not come at once
	updates frame.Updates

	shed    shed
	heard   atomic.Bool    // a frame came since watch looked
	running sync.WaitGroup // handlers

	mu      sync.Mutex // guards what follows
	streams map[uint32]*stream
	last    uint32 // the newest stream
	open    int    // streams as the client counts them
	busy    int    // handlers that run
	waiting []*stream
	inflow  frame.Inflow
	broken  [recently]uint32 // streams that we reset last: frames may still be on their way
	breaks  int
	watch   watch
	bye     bye

	toldAll chan struct{} // closed when the client knows which stream is the last
	gone    chan struct{} // closed when nothing is read any more
}

// recently is of how many streams we know that it was us who reset them.
const recently = 128

func newConn(s *Server, nc, raw net.Conn, state *tls.ConnectionState) *conn {
	limit := s.c.MaxHeaderBytes + 320 // as net/http: room for what RFC 9113 counts of ten fields
	c := &conn{
		server: s, net: nc, raw: raw, tls: state, remote: nc.RemoteAddr().String(),
		home:    httpmsg.Home{Local: nc.LocalAddr(), HTTP: s.c.HTTP},
		in:      frame.NewReader(nc),
		block:   frame.NewBlock(frame.BlockLimit(limit)),
		decoder: frame.NewDecoder(frame.Limits{Bytes: limit, Fields: httpmsg.MaxFields + 4}),
		bounds:  newBounds(s.c.MaxConcurrentStreams),
		streams: make(map[uint32]*stream),
		inflow:  frame.NewInflow(int64(s.c.ConnWindow)),
		toldAll: make(chan struct{}), gone: make(chan struct{}),
	}
	c.each = c.head.add
	c.in.Await = c.waits
	c.out = frame.NewOut(httpmsg.Gathering(nc, raw), 0, func(error) { c.cut() })
	return c
}

// cut ends the connection at once.
func (c *conn) cut() { _ = c.raw.Close() }

func (c *conn) run() {
	c.look()
	err := c.greet()
	for err == nil {
		err = c.step()
	}
	var broken frame.ConnError
	if errors.As(err, &broken) {
		c.server.logf("http2: connection of %s: %v", c.remote, broken)
		c.breakOff(broken)
	}
	c.end()
}

// greet says what a server says first, and hears what a client does.
func (c *conn) greet() error {
	s := &c.server.c
	err := c.out.Settings(true,
		frame.Setting{ID: frame.MaxFrameSize, Value: frame.MaxFrame},
		frame.Setting{ID: frame.MaxConcurrentStreams, Value: uint32(s.MaxConcurrentStreams)},
		frame.Setting{ID: frame.MaxHeaderListSize, Value: uint32(s.MaxHeaderBytes + 320)},
		frame.Setting{ID: frame.InitialWindowSize, Value: uint32(s.StreamWindow)},
		frame.Setting{ID: frame.NoPriorities, Value: 1},
	)
	if more := s.ConnWindow - frame.InitialWindow; err == nil && more > 0 {
		err = c.out.Credit(0, uint32(more))
	}
	if err != nil {
		return err
	}
	preface, err := c.in.Skip(len(frame.Preface))
	if err != nil {
		return err
	}
	if string(preface) != frame.Preface {
		return frame.ConnError{Code: frame.ProtocolError, Why: "the client's preface is another protocol's"}
	}
	f, err := c.in.Next()
	if err != nil {
		return err
	}
	if f.Type != frame.Settings || f.Has(frame.FlagAck) {
		return frame.ConnError{Code: frame.ProtocolError, Why: "the first frame is not SETTINGS"}
	}
	if err := c.frame(&f); err != nil {
		return err
	}
	c.mu.Lock()
	c.watch.greeted = true
	c.watch.timer.Reset(c.nextLook(time.Now()))
	c.mu.Unlock()
	return nil
}

// step reads a frame and does what it says.
func (c *conn) step() error {
	f, err := c.in.Next()
	if err != nil {
		return err
	}
	if !c.heard.Load() {
		c.heard.Store(true)
	}
	err = c.frame(&f)
	if broken, ok := err.(frame.StreamError); ok {
		return c.breakStream(broken)
	}
	return err
}

// breakOff tells the client what it did wrong, and gives it the time to read that.
func (c *conn) breakOff(why frame.ConnError) {
	c.mu.Lock()
	last := c.last
	c.bye.stage = byeBroken
	all := c.streamsLocked()
	c.mu.Unlock()
	for _, st := range all {
		st.abort(why)
	}
	_ = c.out.GoAway(last, why.Code, why.Why)
	_ = c.net.SetDeadline(time.Now().Add(c.server.c.GoAwayGrace))
	c.overhear()
}

// overhear reads what nobody wants, until the client ends the connection or the deadline comes: to close with something
// unread resets the connection, and the client might never see what it was told.
func (c *conn) overhear() {
	room := make([]byte, 4<<10)
	for heard := 0; heard < mostHeard; {
		n, err := c.net.Read(room)
		if err != nil {
			break
		}
		heard += n
	}
	c.out.Flushed()
}

// mostHeard is how much of that is borne.
const mostHeard = 4 << 20

// end ends everything that the connection has, and returns when nothing of it runs any more.
func (c *conn) end() {
	c.mu.Lock()
	parted := c.bye.stage == byeParted
	c.bye.stage = byeGone
	all := c.streamsLocked()
	c.waiting = nil
	c.mu.Unlock()
	close(c.gone)
	c.stopWatch()
	for _, st := range all {
		st.abort(errGone)
	}
	if parted {
		c.out.Flushed()
	}
	c.out.Close(errGone)
	_ = c.net.Close()
	c.in.Close()
	c.out.Wait()
	c.running.Wait()
}

func (c *conn) streamsLocked() []*stream {
	all := make([]*stream, 0, len(c.streams))
	for _, st := range c.streams {
		all = append(all, st)
	}
	clear(c.streams)
	return all
}

// The stages of leaving (RFC 9113, 6.8). The client first hears that there is an end, and may still begin streams, as some
// are on their way; when it has confirmed, or some time has passed, it is told which stream is the last.
const (
	byeStaying = iota
	byeTold
	byeFinal
	byeParted // no streams are left
	byeBroken // the client broke the protocol
	byeGone
)

type bye struct {
	stage int
	last  uint32      // no stream beyond it is served, from byeFinal on
	timer *time.Timer // ends byeTold
}

func (b *bye) stop() {
	if b.timer != nil {
		b.timer.Stop()
	}
}

// goAway begins to leave. It does not wait.
func (c *conn) goAway() {
	c.mu.Lock()
	if c.bye.stage != byeStaying {
		c.mu.Unlock()
		return
	}
	c.bye.stage = byeTold
	c.bye.timer = time.AfterFunc(c.server.c.GoAwayGrace, c.lastCall)
	c.mu.Unlock()
	_ = c.out.GoAway(frame.MaxStreamID, frame.NoError, "")
	_ = c.out.Probe(farewell)
}

// lastCall says which stream is the last.
func (c *conn) lastCall() {
	c.mu.Lock()
	if c.bye.stage != byeTold {
		c.mu.Unlock()
		return
	}
	c.bye.stage, c.bye.last = byeFinal, c.last
	last, none := c.last, len(c.streams) == 0
	c.bye.stop()
	c.mu.Unlock()
	_ = c.out.GoAway(last, frame.NoError, "")
	close(c.toldAll)
	if none {
		c.part()
	}
}

// part ends the connection, after its last stream: the client is given the time to do so itself.
func (c *conn) part() {
	c.mu.Lock()
	if c.bye.stage != byeFinal {
		c.mu.Unlock()
		return
	}
	c.bye.stage = byeParted
	c.mu.Unlock()
	_ = c.net.SetReadDeadline(time.Now().Add(c.server.c.GoAwayGrace))
}

// emptied reports whether the last stream that is served has ended. Called with mu held.
func (c *conn) emptied() bool { return c.bye.stage == byeFinal && len(c.streams) == 0 }

// turnAway tells a client that came too late that nothing of what it sends is served: it may send it elsewhere, writes too.
func (c *conn) turnAway() {
	_ = c.net.SetDeadline(time.Now().Add(c.server.c.GoAwayGrace))
	if c.out.Settings(true) == nil && c.out.GoAway(0, frame.NoError, "") == nil {
		c.overhear()
	}
	c.out.Close(errParted)
	_ = c.net.Close()
	c.out.Wait()
}
