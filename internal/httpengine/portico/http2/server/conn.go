package server

import (
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/httpengine/httpmsg"
	"portico.dev/internal/httpengine/portico/http2/frame"
)

var (
	errClientGone = errors.New("the client is gone")
	errShutdown   = errors.New("the connection is at its end")
)

// conn is a client's connection. One goroutine reads it, in run.
type conn struct {
	server *Server
	net    net.Conn
	raw    net.Conn // below TLS
	tls    *tls.ConnectionState
	remote string
	info   httpmsg.ConnInfo
	w      *frame.Writer

	// Used only by the goroutine that reads.
	r            *frame.Reader
	block        *frame.BlockAssembler
	decoder      *frame.Decoder
	head         headerBlock
	large        httpmsg.ConnHeaders
	addField     func(name, value string) error // headerBlock.add as a value
	rate         rateLimits
	settingsBuf  []frame.Setting // settings of the current frame
	partialBlock bool            // the current header block did not arrive at once
	updates      frame.UpdateCounter

	memory    memoryUse
	frameSeen atomic.Bool    // since the last checkTimeouts
	running   sync.WaitGroup // handlers

	mu           sync.Mutex // guards the fields below
	streams      map[uint32]*stream
	lastID       uint32 // the newest stream
	open         int    // streams that count towards the client's limit
	handling     int    // running handlers
	queued       []*stream
	recvWindow   frame.RecvWindow
	resetStreams [maxResetStreams]uint32 // the last streams that the server reset: frames for them may still arrive
	resetCount   int
	timeouts     timeouts
	goaway       goAwayState

	lastStreamSent chan struct{} // closed when the client has received the last stream id
	closed         chan struct{} // closed when no more frames are read
}

// maxResetStreams is the number of streams reset by the server that are remembered.
const maxResetStreams = 128

func newConn(s *Server, nc, raw net.Conn, state *tls.ConnectionState) *conn {
	limits := s.headerLimits()
	c := &conn{
		server: s, net: nc, raw: raw, tls: state, remote: nc.RemoteAddr().String(),
		info:           httpmsg.ConnInfo{LocalAddr: nc.LocalAddr(), Server: s.c.BaseServer},
		r:              frame.NewReader(nc),
		block:          frame.NewBlockAssembler(frame.CompressedLimit(limits.MaxBytes)),
		decoder:        frame.NewDecoder(limits),
		large:          httpmsg.NewConnHeaders(s.c.LargeHeaders, state, nc.RemoteAddr()),
		rate:           newRateLimits(s.c.MaxConcurrentStreams),
		streams:        make(map[uint32]*stream),
		recvWindow:     frame.NewRecvWindow(int64(s.c.ConnWindow)),
		lastStreamSent: make(chan struct{}), closed: make(chan struct{}),
	}
	c.addField = c.head.add
	c.block.GrowWith(c.growHeader)
	c.decoder.GrowWith(c.growHeader)
	c.r.OnPartial = c.onPartialFrame
	c.w = frame.NewWriter(httpmsg.BatchRecords(nc, raw), 0, func(error) { c.closeNow() })
	return c
}

// closeNow closes the connection without TLS's closing message.
func (c *conn) closeNow() { _ = c.raw.Close() }

func (c *conn) run() {
	c.checkTimeouts()
	err := c.handshake()
	for err == nil {
		err = c.readFrame()
	}
	var broken frame.ConnError
	if errors.As(err, &broken) {
		c.server.logf("http2: connection of %s: %v", c.remote, broken)
		c.connectionError(broken)
	}
	c.close()
}

// handshake sends the server's SETTINGS, and reads the client's preface and SETTINGS.
func (c *conn) handshake() error {
	s := &c.server.c
	err := c.w.WriteSettings(true,
		frame.Setting{ID: frame.MaxFrameSize, Value: frame.MaxFrame},
		frame.Setting{ID: frame.MaxConcurrentStreams, Value: uint32(s.MaxConcurrentStreams)},
		frame.Setting{ID: frame.MaxHeaderListSize, Value: uint32(c.server.maxHeaderList())},
		frame.Setting{ID: frame.InitialWindowSize, Value: uint32(s.StreamWindow)},
		frame.Setting{ID: frame.NoPriorities, Value: 1},
	)
	if more := s.ConnWindow - frame.InitialWindow; err == nil && more > 0 {
		err = c.w.WriteWindowUpdate(0, uint32(more))
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.goaway.open = true
	due := c.goaway.due
	c.mu.Unlock()
	if due {
		c.goAway()
	}
	preface, err := c.r.Skip(len(frame.Preface))
	if err != nil {
		return err
	}
	if string(preface) != frame.Preface {
		return frame.ConnError{Code: frame.ProtocolError, Reason: "the client's preface is another protocol's"}
	}
	f, err := c.r.Next()
	if err != nil {
		return err
	}
	if f.Type != frame.Settings || f.Has(frame.FlagAck) {
		return frame.ConnError{Code: frame.ProtocolError, Reason: "the first frame is not SETTINGS"}
	}
	if err := c.frame(&f); err != nil {
		return err
	}
	c.mu.Lock()
	c.timeouts.prefaceRead = true
	c.timeouts.timer.Reset(c.nextCheck(time.Now()))
	c.mu.Unlock()
	return nil
}

// readFrame reads and processes a frame.
func (c *conn) readFrame() error {
	f, err := c.r.Next()
	if err != nil {
		return err
	}
	if !c.frameSeen.Load() {
		c.frameSeen.Store(true)
	}
	err = c.frame(&f)
	if broken, ok := err.(frame.StreamError); ok {
		return c.streamError(broken)
	}
	return err
}

// connectionError sends GOAWAY with an error, and gives the client time to read it.
func (c *conn) connectionError(why frame.ConnError) {
	c.mu.Lock()
	last := c.lastID
	c.goaway.stage = goAwayError
	all := c.streamsLocked()
	c.mu.Unlock()
	for _, st := range all {
		st.abort(why)
	}
	_ = c.w.WriteGoAway(last, why.Code, why.Reason)
	_ = c.net.SetDeadline(time.Now().Add(c.server.c.GoAwayGrace))
	c.drain()
}

// drain reads and drops bytes until the client closes the connection or a deadline passes. A connection that is closed with
// unread bytes is reset, and the client might not receive the GOAWAY.
func (c *conn) drain() {
	room := make([]byte, 4<<10)
	for heard := 0; heard < maxDrain; {
		n, err := c.net.Read(room)
		if err != nil {
			break
		}
		heard += n
	}
	c.w.WaitFlushed()
}

// maxDrain limits the bytes that drain reads.
const maxDrain = 4 << 20

// close ends all streams, and returns when all goroutines of the connection have ended.
func (c *conn) close() {
	c.mu.Lock()
	parted := c.goaway.stage == goAwayDrained
	c.goaway.stage = goAwayClosed
	all := c.streamsLocked()
	c.queued = slices.DeleteFunc(c.queued, c.isDroppedLocked) // all were dropped
	c.mu.Unlock()
	close(c.closed)
	c.large.Detach().Release()
	c.stopTimeouts()
	for _, st := range all {
		st.abort(errClientGone)
	}
	if parted {
		c.w.WaitFlushed()
	}
	c.w.Close(errClientGone)
	_ = c.net.Close()
	c.r.Close()
	c.w.Wait()
	c.running.Wait()
}

func (c *conn) streamsLocked() []*stream {
	all := slices.Collect(maps.Values(c.streams))
	clear(c.streams)
	return all
}

// States of a graceful shutdown (RFC 9113, section 6.8). The first GOAWAY is a warning: the client may still open streams,
// because some are in transit. When the client has confirmed it, or some time has passed, the second GOAWAY contains the
// last stream id.
const (
	goAwayNone = iota
	goAwayWarned
	goAwayFinal
	goAwayDrained // no stream is left
	goAwayError   // the client violated the protocol
	goAwayClosed
)

type goAwayState struct {
	stage  int
	open   bool        // SETTINGS were sent
	due    bool        // goAway was called before
	lastID uint32      // later streams are not processed, from goAwayFinal on
	timer  *time.Timer // ends goAwayWarned
}

func (b *goAwayState) stop() {
	if b.timer != nil {
		b.timer.Stop()
	}
}

// goAway begins a graceful shutdown, or schedules it until SETTINGS, which must be the first frame, were sent. It does not
// wait.
func (c *conn) goAway() {
	c.mu.Lock()
	if !c.goaway.open {
		c.goaway.due = true
		c.mu.Unlock()
		return
	}
	if c.goaway.stage != goAwayNone {
		c.mu.Unlock()
		return
	}
	c.goaway.stage = goAwayWarned
	c.goaway.timer = time.AfterFunc(c.server.c.GoAwayGrace, c.sendLastGoAway)
	c.mu.Unlock()
	_ = c.w.WriteGoAway(frame.MaxStreamID, frame.NoError, "")
	_ = c.w.WritePingNoWait(goAwayPingData)
}

// sendLastGoAway sends the GOAWAY with the last stream id.
func (c *conn) sendLastGoAway() {
	c.mu.Lock()
	if c.goaway.stage != goAwayWarned {
		c.mu.Unlock()
		return
	}
	c.goaway.stage, c.goaway.lastID = goAwayFinal, c.lastID
	last, none := c.lastID, len(c.streams) == 0
	c.goaway.stop()
	c.mu.Unlock()
	_ = c.w.WriteGoAway(last, frame.NoError, "")
	close(c.lastStreamSent)
	if none {
		c.closeAfterLast()
	}
}

// closeAfterLast closes the connection after its last stream. The client has some time to close it first.
func (c *conn) closeAfterLast() {
	c.mu.Lock()
	if c.goaway.stage != goAwayFinal {
		c.mu.Unlock()
		return
	}
	c.goaway.stage = goAwayDrained
	c.mu.Unlock()
	_ = c.net.SetReadDeadline(time.Now().Add(c.server.c.GoAwayGrace))
}

// drained reports whether the last stream has ended. The caller must hold mu.
func (c *conn) drained() bool { return c.goaway.stage == goAwayFinal && len(c.streams) == 0 }

// rejectConn informs a client that connected too late that none of its requests is processed. It may send all of them to
// another server.
func (c *conn) rejectConn() {
	_ = c.net.SetDeadline(time.Now().Add(c.server.c.GoAwayGrace))
	if c.w.WriteSettings(true) == nil && c.w.WriteGoAway(0, frame.NoError, "") == nil {
		c.drain()
	}
	c.w.Close(errShutdown)
	_ = c.net.Close()
	c.w.Wait()
}
