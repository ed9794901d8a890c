package server

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"pgregory.net/rapid"
)

// A model of stream states and flow control (RFC 9113, 5.1, 5.2 and 6.9) from the view of a client. The client sends everything it may
// and some invalid frames. Handlers read, write and return in any order. After each step the bubble is idle: all data that the windows
// allow has been sent, and all consumed bytes have been returned.

// modelTimeout bounds one sequence in real time. A goroutine that waits for a mutex forever leaves the bubble neither idle nor
// deadlocked.
const modelTimeout = time.Minute

func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		overdue := time.AfterFunc(modelTimeout, func() { panic("a sequence of the model does not end: something waits for a lock for ever") })
		defer overdue.Stop()
		var thrown any
		synctest.Test(t, func(*testing.T) {
			defer func() { thrown = recover() }()
			m := newModel(rt)
			defer m.close()
			m.run()
		})
		switch fmt.Sprintf("%T", thrown) { // rapid's own panics must reach the goroutine of rapid.
		case "<nil>":
		case "rapid.invalidData": // Not on the same line: rapid compares the traces of two failing sequences.
			panic(thrown)
		default:
			panic(thrown)
		}
	})
}

// modelFrame is one of the server's frames.
type modelFrame struct {
	http2.FrameHeader
	status    string
	data      []byte
	code      http2.ErrCode
	increment int64
	last      uint32
	ping      [8]byte
}

type model struct {
	*rapid.T
	server   *Server
	conn     net.Conn // the client's end
	framer   *http2.Framer
	encoder  *hpack.Encoder
	block    []byte
	over     chan struct{} // closed when the server has ended the connection
	most     int           // MAX_CONCURRENT_STREAMS
	connSize int64
	size     int64 // of the windows of streams

	mu     sync.Mutex // guards the fields below
	resume sync.Cond
	paused bool // The client does not read.
	inbox  []modelFrame
	ended  bool // No more frames arrive.
	starts map[uint32]*modelHandler

	streams    []*modelStream
	sendWindow int64   // bytes that the client may send on the connection
	window     int64   // bytes that the server may send
	initial    int64   // windows of streams that the server has acknowledged
	announced  []int64 // not acknowledged yet
	maxFrame   uint32
	pings      int // unanswered
	leaving    bool
	final      bool // The server has announced the last stream.
	resets     int
	goAway     http2.ErrCode
	next       uint32
}

type modelStream struct {
	id       uint32
	head     bool
	declared int64
	handler  *modelHandler
	ignored  bool // It began after the server announced the last stream.
	refused  bool

	sent      int64 // bytes of the body
	sentEnd   bool
	late      bool  // The client was not reading.
	left      int64 // bytes that the client may send
	got       int64
	credit    int64
	answered  bool // The final HEADERS arrived.
	ended     bool
	reset     bool          // by either side
	ours      bool          // by the client
	code      http2.ErrCode // by the server
	expecting map[http2.ErrCode]bool
}

// modelHandler contains the commands for a stream's handler and their results.
type modelHandler struct {
	commands chan func(http.ResponseWriter, *http.Request) bool // true: return

	mu       sync.Mutex // guards the fields below
	started  bool
	doing    string // "" while it waits for a command
	returned bool
	offered  int64
	flushed  bool
	read     int64
	closed   bool // It reads no more.
	readErr  error
	wrong    string
	context  bool // ended
}

func pattern(id uint32, at int64) byte { return byte(int64(id)*31 + at*7 + at>>8) }

func fill(id uint32, from int64, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = pattern(id, from+int64(i))
	}
	return p
}

func newModel(rt *rapid.T) *model {
	m := &model{
		T: rt, over: make(chan struct{}), starts: map[uint32]*modelHandler{}, window: 65535, initial: 65535, maxFrame: 16384, next: 1,
		sendWindow: 65535,
		most:       rapid.IntRange(1, 6).Draw(rt, "MAX_CONCURRENT_STREAMS"),
		connSize:   rapid.Int64Range(65535, 100_000).Draw(rt, "connection window"),
		size:       rapid.SampledFrom([]int64{1, 100, 16_000, 40_000, 100_000}).Draw(rt, "stream window"),
	}
	m.resume.L = &m.mu
	const never = 1000 * time.Hour
	m.server = New(Config{
		Handler: http.HandlerFunc(m.serve), MaxConcurrentStreams: m.most, ConnWindow: int(m.connSize), StreamWindow: int(m.size),
		IdleTimeout: never, PingAfter: never, StallTimeout: never,
	})
	ours, theirs := net.Pipe()
	m.conn = theirs
	go func() {
		defer close(m.over)
		m.server.begin(ours, ours, nil)()
	}()
	m.framer = http2.NewFramer(theirs, theirs)
	m.framer.AllowIllegalWrites = true
	m.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	m.encoder = hpack.NewEncoder((*modelBlock)(&m.block))
	go m.read()
	_, err := io.WriteString(theirs, http2.ClientPreface)
	m.must(err)
	m.announced = append(m.announced, rapid.SampledFrom([]int64{65_535, 1 << 20}).Draw(rt, "the client's stream window"))
	m.must(m.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(m.announced[0])}))
	m.settle()
	if m.sendWindow != m.connSize {
		m.Fatalf("connection window at the start = %d, want %d", m.sendWindow, m.connSize)
	}
	return m
}

type modelBlock []byte

func (b *modelBlock) Write(p []byte) (int, error) { *b = append(*b, p...); return len(p), nil }

func (m *model) must(err error) {
	if err != nil {
		m.Fatalf("server ended the connection: %v, want it open", err)
	}
}

// close ends the model after success or failure.
func (m *model) close() {
	_ = m.conn.Close()
	m.setPaused(false)
	for _, s := range m.streams {
		close(s.handler.commands)
	}
	<-m.over
	m.server.Close()
	synctest.Wait()
}

func (m *model) read() {
	for {
		m.mu.Lock()
		for m.paused {
			m.resume.Wait()
		}
		m.mu.Unlock()
		f, err := m.framer.ReadFrame()
		m.mu.Lock()
		if err != nil {
			m.ended = true
			m.mu.Unlock()
			return
		}
		k := modelFrame{FrameHeader: f.Header()}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			k.status = f.PseudoValue("status")
		case *http2.DataFrame:
			k.data = append([]byte(nil), f.Data()...)
		case *http2.RSTStreamFrame:
			k.code = f.ErrCode
		case *http2.GoAwayFrame:
			k.code, k.last = f.ErrCode, f.LastStreamID
		case *http2.WindowUpdateFrame:
			k.increment = int64(f.Increment)
		case *http2.PingFrame:
			k.ping = f.Data
		}
		m.inbox = append(m.inbox, k)
		m.mu.Unlock()
	}
}

func (m *model) setPaused(to bool) {
	m.mu.Lock()
	m.paused = to
	m.mu.Unlock()
	m.resume.Broadcast()
}

// serve is the handler.
func (m *model) serve(w http.ResponseWriter, r *http.Request) {
	var id uint32
	_, _ = fmt.Sscanf(r.URL.Path, "/%d", &id)
	m.mu.Lock()
	h := m.starts[id]
	m.mu.Unlock()
	h.set(func() { h.started = true })
	defer h.set(func() { h.returned, h.doing = true, "" })
	for do := range h.commands {
		stop := do(w, r)
		h.set(func() { h.doing, h.context = "", r.Context().Err() != nil })
		if stop {
			return
		}
	}
}

func (h *modelHandler) set(f func()) { h.mu.Lock(); f(); h.mu.Unlock() }

// tell gives an idle handler a command.
func (h *modelHandler) tell(what string, do func(http.ResponseWriter, *http.Request) bool) {
	h.set(func() { h.doing = what })
	h.commands <- do
}

// settle waits until the bubble is idle and processes the received frames.
func (m *model) settle() {
	synctest.Wait()
	m.mu.Lock()
	came := m.inbox
	m.inbox = nil
	m.mu.Unlock()
	again := false
	for i := range came {
		again = m.came(&came[i]) || again
	}
	if again {
		m.settle()
	}
}

func (m *model) find(id uint32) *modelStream {
	for _, s := range m.streams {
		if s.id == id {
			return s
		}
	}
	m.Fatalf("frame on the unused stream %d, want a stream of a request", id)
	return nil
}

// came checks a frame of the server. It reports whether the client has answered it.
func (m *model) came(f *modelFrame) bool {
	if f.Length > m.maxFrame {
		m.Fatalf("frame has %d bytes, want at most %d", f.Length, m.maxFrame)
	}
	switch f.Type {
	case http2.FrameHeaders:
		s := m.find(f.StreamID)
		m.open(s, f)
		if s.answered && !f.Flags.Has(http2.FlagHeadersEndStream) {
			m.Fatalf("stream %d: HEADERS after the final HEADERS, want END_STREAM", s.id)
		}
		s.answered = true
		s.ended = f.Flags.Has(http2.FlagHeadersEndStream)
	case http2.FrameData:
		m.data(f)
	case http2.FrameRSTStream:
		m.wasReset(m.find(f.StreamID), f.code)
	case http2.FrameSettings:
		if f.Flags.Has(http2.FlagSettingsAck) {
			m.initial = m.announced[0]
			m.announced = m.announced[1:]
			return false
		}
		m.must(m.framer.WriteSettingsAck())
		return true
	case http2.FrameWindowUpdate:
		if f.StreamID == 0 {
			m.sendWindow += f.increment
			break
		}
		if s := m.find(f.StreamID); !s.reset {
			s.left += f.increment
		}
	case http2.FramePing:
		if !f.Flags.Has(http2.FlagPingAck) {
			m.must(m.framer.WritePing(true, f.ping))
			return true
		}
		m.pings--
	case http2.FrameGoAway:
		m.goAway = f.code
		if f.code == http2.ErrCodeNo && f.last != 1<<31-1 {
			m.final = true
		}
	default:
		m.Fatalf("frame %v, want a known type", f.FrameHeader)
	}
	return false
}

// open checks that a frame may still arrive on s.
func (m *model) open(s *modelStream, f *modelFrame) {
	switch {
	case s.ended:
		m.Fatalf("stream %d: %v after its end, want none", s.id, f.FrameHeader)
	case s.reset && !s.ours:
		m.Fatalf("stream %d: %v after the server's RST_STREAM, want none", s.id, f.FrameHeader)
	case s.ignored:
		m.Fatalf("stream %d: %v on a stream after GOAWAY, want none", s.id, f.FrameHeader)
	}
}

func (m *model) data(f *modelFrame) {
	s, n := m.find(f.StreamID), int64(f.Length)
	m.open(s, f)
	if !s.answered || s.head {
		m.Fatalf("stream %d: DATA before HEADERS or in a response to HEAD, want none", s.id)
	}
	for i, b := range f.data {
		if b != pattern(s.id, s.got+int64(i)) {
			m.Fatalf("stream %d: byte %d differs from the byte written, want equal bytes", s.id, s.got+int64(i))
		}
	}
	s.got += n
	m.window -= n
	if left := m.initial + s.credit - s.got; n > 0 && (left < 0 || m.window < 0) {
		m.Fatalf("stream %d received %d bytes: windows = %d and %d, want at least 0", s.id, n, left, m.window)
	}
	s.ended = f.Flags.Has(http2.FlagDataEndStream)
}

func (m *model) wasReset(s *modelStream, code http2.ErrCode) {
	if s.reset && !s.ours && !s.expecting[code] {
		m.Fatalf("stream %d: second RST_STREAM with %v, want one", s.id, code)
	}
	if code == http2.ErrCodeNo && (!s.sentEnd || s.late) && s.ended {
		s.reset, s.code = true, code // The rest of the body is not needed (RFC 9113, 8.1).
		return
	}
	if !s.expecting[code] {
		m.Fatalf("stream %d: RST_STREAM with %v, want none or another code", s.id, code)
	}
	delete(s.expecting, code)
	if code == http2.ErrCodeRefusedStream {
		s.refused = true
	}
	if !s.ours {
		s.reset, s.code = true, code
	}
}

// live reports whether the server's side of s is open and the stream was not reset.
func (s *modelStream) live() bool { return !s.reset && !s.ended && !s.ignored }

// serving returns the number of streams that the server counts.
func (m *model) serving() (n int) {
	for _, s := range m.streams {
		if s.live() {
			n++
		}
	}
	return n
}

// expect records that the server must reset s. The reset must arrive in the same step, unless the client does not read.
func (m *model) expect(s *modelStream, code http2.ErrCode) {
	if s.expecting == nil {
		s.expecting = map[http2.ErrCode]bool{}
	}
	s.expecting[code] = true
	m.resets++
}

// mayProvoke reports whether the server tolerates another reset stream (ratelimit.go).
func (m *model) mayProvoke() bool { return m.resets < 10*m.most-2 }

// check compares the server with the model while the bubble is idle.
func (m *model) check() {
	if m.ended {
		m.Fatalf("server ended the connection with GOAWAY %v, want it open", m.goAway)
	}
	occupied, waiting, unread := 0, 0, int64(0)
	look := func(s *modelStream, h *modelHandler) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.wrong != "" {
			m.Fatalf("stream %d: %s, want no problem", s.id, h.wrong)
		}
		over := h.returned && (s.ended || s.reset || m.paused) // The handler is over, or the client cannot know.
		switch {
		case h.started && (s.refused || s.ignored):
			m.Fatalf("stream %d was served after it was refused, want no handler", s.id)
		case h.started && !over:
			occupied++
		case !h.started && s.live():
			waiting++
		}
		if !s.reset && !s.ignored && !over && !h.closed {
			unread += s.sent - h.read
		}
		if !m.paused {
			m.checkStream(s, h)
		}
	}
	for _, s := range m.streams {
		look(s, s.handler)
	}
	if occupied > m.most || waiting > 0 && occupied < m.most && !m.paused {
		m.Fatalf("%d handlers run and %d requests wait, want at most %d handlers and no idle slot", occupied, waiting, m.most)
	}
	if m.paused {
		return
	}
	if m.pings != 0 {
		m.Fatalf("%d PINGs are unanswered, want 0", m.pings)
	}
	owed := m.connSize - m.sendWindow - unread
	if owed < 0 || owed >= m.connSize/4 {
		m.Fatalf("connection window = %d of %d, %d bytes unread, %d not returned, want less than a quarter", m.sendWindow, m.connSize, unread, owed)
	}
	if unread < 0 {
		m.Fatalf("%d bytes are unread, want at least 0", unread)
	}
}

func (m *model) checkStream(s *modelStream, h *modelHandler) {
	for code := range s.expecting {
		m.Fatalf("stream %d was not reset, want RST_STREAM with %v", s.id, code)
	}
	if s.reset || s.ignored {
		if h.doing != "" {
			m.Fatalf("stream %d is closed and its handler waits in %s, want it to return", s.id, h.doing)
		}
		return
	}
	window := min(m.window, m.initial+s.credit-s.got)
	if s.head {
		window = 0
	}
	switch {
	case s.got > h.offered:
		m.Fatalf("stream %d: %d bytes arrived, want at most %d", s.id, s.got, h.offered)
	case h.doing == "read" && (s.sent > h.read || s.sentEnd || h.closed):
		m.Fatalf("stream %d: handler has read %d of %d bytes and waits, want it to return", s.id, h.read, s.sent)
	case h.doing == "write" || h.doing == "flush":
		if window > 0 || s.head {
			m.Fatalf("stream %d: handler waits to write with windows of %d and %d, want it to return", s.id, m.initial+s.credit-s.got, m.window)
		}
	case s.head:
		if h.returned && !s.ended {
			m.Fatalf("stream %d: response to HEAD is open after its handler, want its end", s.id)
		}
	case h.returned && !s.ended:
		if s.got == h.offered || window > 0 {
			m.Fatalf("stream %d: %d of %d bytes arrived after the handler with windows of %d and %d, want all that the windows allow", s.id, s.got, h.offered, m.initial+s.credit-s.got, m.window)
		}
	case h.returned && s.got != h.offered:
		m.Fatalf("stream %d ended after %d bytes, want %d", s.id, s.got, h.offered)
	case !h.returned && s.ended:
		m.Fatalf("stream %d ended before its handler, want it open", s.id)
	case h.flushed && s.got < h.offered || s.got < h.offered-bufferSize:
		m.Fatalf("stream %d: %d of %d bytes arrived, want all except the buffered ones", s.id, s.got, h.offered)
	}
	if owed := m.size - s.left - (s.sent - h.read); !s.sentEnd && !h.closed && h.started && !h.returned && (owed < 0 || owed >= max(1, m.size/4)) {
		m.Fatalf("stream %d: window = %d of %d, %d bytes unread, %d not returned, want less than a quarter", s.id, s.left, m.size, s.sent-h.read, owed)
	}
}

// run executes a sequence of steps and then finish.
func (m *model) run() {
	for range rapid.SampledFrom([]int{5, 20, 60, 100}).Draw(m.T, "steps") {
		m.step()
		m.settle()
		m.check()
	}
	m.finish()
}

func (m *model) step() {
	switch rapid.SampledFrom(modelSteps).Draw(m.T, "step") {
	case "begin":
		m.begin()
	case "data":
		m.send()
	case "reset":
		if s := m.pick("reset", func(s *modelStream) bool { return !s.reset && !(s.ended && s.sentEnd) && !s.ignored && m.mayProvoke() }); s != nil {
			s.reset, s.ours = true, true
			m.resets++
			m.must(m.framer.WriteRSTStream(s.id, http2.ErrCodeCancel))
		}
	case "handler":
		m.handler()
	case "stream window":
		if s := m.pick("stream window", func(s *modelStream) bool { return !s.reset && !s.ignored }); s != nil {
			n := rapid.Int64Range(1, 60_000).Draw(m.T, "increment")
			s.credit += n
			m.must(m.framer.WriteWindowUpdate(s.id, uint32(n)))
		}
	case "connection window":
		n := rapid.SampledFrom([]int64{1, 100, 5000, 40_000}).Draw(m.T, "increment")
		m.window += n
		m.must(m.framer.WriteWindowUpdate(0, uint32(n)))
	case "settings":
		n := rapid.SampledFrom([]int64{0, 1, 1000, 65_535, 120_000}).Draw(m.T, "INITIAL_WINDOW_SIZE")
		m.announced = append(m.announced, n)
		m.must(m.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(n)},
			http2.Setting{ID: http2.SettingMaxFrameSize, Val: rapid.SampledFrom([]uint32{1 << 14, 1 << 20}).Draw(m.T, "MAX_FRAME_SIZE")}))
	case "ping":
		m.pings++
		m.must(m.framer.WritePing(false, [8]byte{1}))
	case "pause":
		m.setPaused(true)
	case "resume":
		m.setPaused(false)
	case "leave":
		if !m.leaving {
			m.leaving = true
			m.must(m.framer.WriteGoAway(0, http2.ErrCodeNo, nil))
		}
	case "violate":
		m.violate()
	}
}

// modelSteps contains frequent steps more than once.
var modelSteps = []string{
	"begin", "begin", "begin", "data", "data", "data", "data", "reset", "handler", "handler", "handler", "handler", "handler", "handler",
	"stream window", "stream window", "connection window", "connection window", "settings", "ping", "pause", "resume", "resume",
	"leave", "violate",
}

// pick draws one of the streams for which fit is true. It returns nil if there is none.
func (m *model) pick(what string, fit func(*modelStream) bool) *modelStream {
	var all []*modelStream
	for _, s := range m.streams {
		if fit(s) {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[rapid.IntRange(0, len(all)-1).Draw(m.T, what+": stream")]
}

func (m *model) begin() {
	full := m.serving() >= m.most
	if m.paused && (full || m.leaving) || full && !m.mayProvoke() { // The client does not know the server's view.
		return
	}
	s := &modelStream{id: m.next, declared: -1, left: m.size, ignored: m.final}
	m.next += 2
	method := rapid.SampledFrom([]string{"POST", "POST", "GET", "HEAD"}).Draw(m.T, "method")
	s.head = method == "HEAD"
	s.sentEnd = method != "POST"
	fields := []string{":method", method, ":scheme", "https", ":authority", "a", ":path", fmt.Sprintf("/%d", s.id)}
	if !s.sentEnd && rapid.IntRange(0, 3).Draw(m.T, "declared") == 0 {
		s.declared = rapid.Int64Range(1, 50_000).Draw(m.T, "Content-Length")
		fields = append(fields, "content-length", fmt.Sprint(s.declared))
	}
	s.handler = &modelHandler{commands: make(chan func(http.ResponseWriter, *http.Request) bool, 1)}
	m.mu.Lock()
	m.starts[s.id] = s.handler
	m.mu.Unlock()
	if full && !s.ignored {
		m.expect(s, http2.ErrCodeRefusedStream)
	}
	m.streams = append(m.streams, s)
	m.headers(s.id, s.sentEnd, fields...)
}

func (m *model) headers(id uint32, end bool, fields ...string) {
	m.block = m.block[:0]
	for i := 0; i < len(fields); i += 2 {
		m.must(m.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	m.must(m.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: m.block, EndHeaders: true, EndStream: end}))
}

// send sends DATA within the windows, also on streams that the server has reset: the data may be in flight.
func (m *model) send() {
	s := m.pick("data", func(s *modelStream) bool { return !s.sentEnd && !(s.reset && s.ours) })
	if s == nil {
		return
	}
	most := min(m.sendWindow, 16_384)
	if !s.reset && !s.ignored {
		if most = min(most, s.left); s.declared >= 0 {
			most = min(most, s.declared-s.sent)
		}
	}
	padding := rapid.SampledFrom([]int64{0, 0, 0, 1, 100}).Draw(m.T, "padding")
	if padding+1 >= most {
		padding = 0
	}
	room := most
	if padding > 0 {
		room -= padding + 1
	}
	n := rapid.Int64Range(0, max(0, room)).Draw(m.T, "bytes")
	if rapid.Bool().Draw(m.T, "as much as may be") {
		n = max(0, room)
	}
	end := rapid.IntRange(0, 4).Draw(m.T, "end") == 0
	if s.declared >= 0 && !s.reset && !s.ignored {
		end = s.sent+n == s.declared
	}
	m.write(s, n, padding, end)
}

func (m *model) write(s *modelStream, n, padding int64, end bool) {
	p := fill(s.id, s.sent, int(n))
	if padding > 0 {
		m.must(m.framer.WriteDataPadded(s.id, end, p, make([]byte, padding)))
		padding++
	} else {
		m.must(m.framer.WriteData(s.id, end, p))
	}
	m.sendWindow -= n + padding
	s.left -= n + padding
	s.sent += n
	s.sentEnd, s.late = s.sentEnd || end, s.late || end && m.paused
}

// handler gives one of the idle handlers a command.
func (m *model) handler() {
	s := m.pick("handler", func(s *modelStream) bool {
		h := s.handler
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.started && !h.returned && h.doing == ""
	})
	if s == nil {
		return
	}
	h := s.handler
	switch what := rapid.SampledFrom([]string{"read", "read", "write", "write", "write", "flush", "return", "return", "close", "deadline", "abort"}).Draw(m.T, "handler"); what {
	case "read":
		room := make([]byte, rapid.IntRange(1, 50_000).Draw(m.T, "read"))
		h.tell(what, func(_ http.ResponseWriter, r *http.Request) bool { h.reads(r.Body, room, s.id); return false })
	case "write":
		n := rapid.SampledFrom([]int{0, 10, 5000, 50_000, 150_000}).Draw(m.T, "write")
		var p []byte
		h.set(func() { p = fill(s.id, h.offered, n); h.offered += int64(n); h.flushed = h.flushed && n == 0 })
		h.tell(what, func(w http.ResponseWriter, _ *http.Request) bool { _, _ = w.Write(p); return false })
	case "flush":
		h.set(func() { h.flushed = true })
		h.tell(what, func(w http.ResponseWriter, _ *http.Request) bool {
			_ = http.NewResponseController(w).Flush()
			return false
		})
	case "return":
		h.tell(what, func(http.ResponseWriter, *http.Request) bool { return true })
	case "close":
		h.set(func() { h.closed = true })
		h.tell(what, func(_ http.ResponseWriter, r *http.Request) bool { _ = r.Body.Close(); return false })
	case "deadline":
		h.set(func() { h.closed = true })
		h.tell(what, func(w http.ResponseWriter, _ *http.Request) bool {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now())
			return false
		})
	case "abort":
		if m.paused || !m.mayProvoke() {
			return
		}
		if s.live() {
			m.expect(s, http2.ErrCodeInternal)
		}
		h.tell(what, func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) })
	}
}

func (h *modelHandler) reads(body io.Reader, room []byte, id uint32) {
	n, err := body.Read(room)
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, b := range room[:n] {
		if b != pattern(id, h.read+int64(i)) {
			h.wrong = fmt.Sprintf("the byte at %d of the request is not the one that was sent", h.read+int64(i))
		}
	}
	h.read += int64(n)
	h.readErr = err
}

// violate causes the error of one stream.
func (m *model) violate() {
	if !m.mayProvoke() {
		return
	}
	s := m.pick("violate", func(s *modelStream) bool { return s.live() && s.handler != nil })
	if s == nil || m.paused { // Without reading, the client does not know whether the stream has ended.
		return
	}
	switch rapid.SampledFrom([]string{"window", "length", "after the end", "no increment", "too much increment", "itself"}).Draw(m.T, "violation") {
	case "window": // golang/go#40423: the connection's window must be returned in this case too.
		if n := s.left + 1; !s.sentEnd && s.declared < 0 && n <= min(m.sendWindow, 16_384) {
			m.expect(s, http2.ErrCodeFlowControl)
			m.write(s, n, 0, false)
		}
	case "length":
		if n := s.declared - s.sent + 1; !s.sentEnd && s.declared >= 0 && n <= min(m.sendWindow, s.left, 16_384) {
			m.expect(s, http2.ErrCodeProtocol)
			m.write(s, n, 0, false)
		}
	case "after the end":
		if s.sentEnd {
			m.expect(s, http2.ErrCodeStreamClosed)
			m.write(s, min(1000, m.sendWindow), 0, false)
		}
	case "no increment":
		m.expect(s, http2.ErrCodeProtocol)
		m.must(m.framer.WriteWindowUpdate(s.id, 0))
	case "too much increment":
		if len(m.announced) == 0 && m.initial+s.credit-s.got > 0 {
			m.expect(s, http2.ErrCodeFlowControl)
			m.must(m.framer.WriteWindowUpdate(s.id, 1<<31-1))
		}
	case "itself":
		m.expect(s, http2.ErrCodeProtocol)
		m.must(m.framer.WritePriority(s.id, http2.PriorityParam{StreamDep: s.id}))
	}
}

// finish ends everything and checks that the connection's window was returned completely.
func (m *model) finish() {
	m.setPaused(false)
	m.settle()
	m.window += 100 << 20
	m.must(m.framer.WriteWindowUpdate(0, 100<<20))
	m.settle()
	m.check()
	for _, s := range m.streams {
		if !s.reset && !s.ignored && !s.ended {
			s.credit += 10 << 20
			m.must(m.framer.WriteWindowUpdate(s.id, 10<<20))
			m.settle()
		}
	}
	m.check()
	for again := true; again; { // Handlers that waited for another one start.
		again = false
		for _, s := range m.streams {
			h := s.handler
			h.mu.Lock()
			idle := h.started && !h.returned && h.doing == ""
			reads := h.doing == "read"
			h.mu.Unlock()
			if reads && !s.sentEnd { // the rest of the body
				m.must(m.framer.WriteRSTStream(s.id, http2.ErrCodeCancel))
				s.reset, s.ours = true, true
				again = true
			}
			if idle {
				h.tell("return", func(http.ResponseWriter, *http.Request) bool { return true })
				again = true
			}
		}
		m.settle()
		m.check()
	}
	for _, s := range m.streams {
		if s.live() {
			m.Fatalf("stream %d is open at the end, want it ended", s.id)
		}
	}
	if m.final || m.size < 1000 { // A small window would take as many steps as bytes.
		return
	}
	// The next increment of a fully returned window shows the exact size.
	m.begin()
	s := m.streams[len(m.streams)-1]
	if s.sentEnd || s.declared >= 0 || s.refused {
		return
	}
	m.settle()
	h := s.handler
	for {
		before := m.sendWindow
		n := min(m.sendWindow, s.left, 1000)
		if n <= 0 {
			m.Fatalf("stream %d is read and its windows are %d and %d, want more than 0", s.id, s.left, m.sendWindow)
		}
		m.write(s, n, 0, false)
		h.tell("read", func(_ http.ResponseWriter, r *http.Request) bool {
			h.reads(r.Body, make([]byte, 1000), s.id)
			return false
		})
		m.settle()
		m.check()
		if m.sendWindow > before-n {
			break
		}
	}
	if m.sendWindow != m.connSize {
		m.Fatalf("connection window = %d with all data read, want %d", m.sendWindow, m.connSize)
	}
}
