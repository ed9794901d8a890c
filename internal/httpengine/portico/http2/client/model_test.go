package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"pgregory.net/rapid"
	"portico.dev/internal/httpengine/engine"
)

// A model of stream states and flow control (RFC 9113, 5.1, 5.2 and 6.9) from the view of a server. The server sends everything it may
// and some invalid frames. Callers send, read, close and cancel in any order. After each step the bubble is idle: all data that the
// windows allow has been sent, and all window updates have been sent.

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

// modelFrame is one of the client's frames.
type modelFrame struct {
	http2.FrameHeader
	path      string
	data      []byte
	code      http2.ErrCode
	increment int64
}

type model struct {
	*rapid.T
	client  *Conn
	conn    net.Conn // the server's end
	framer  *http2.Framer
	encoder *hpack.Encoder
	block   []byte

	mu     sync.Mutex // guards the fields below
	resume sync.Cond
	paused bool // The server does not read.
	inbox  []modelFrame
	ended  bool // No more frames arrive.

	calls      []*modelCall
	sendWindow int64 // bytes that the server may send on the connection
	window     int64 // bytes that the client may send
	initial    int64
	announced  []int64
	pings      int
	streams    int // MAX_CONCURRENT_STREAMS
	newest     uint32
	goneAway   bool
}

// modelCall is a request and its outcome.
type modelCall struct {
	index    int
	request  *http.Request
	cancel   context.CancelFunc
	body     *modelBody // nil: no body, or a Whole body
	whole    int64
	commands chan func()

	id      uint32
	got     int64
	credit  int64
	sent    int64 // bytes of the response's body
	left    int64
	length  int64                  // of the response, -1: unknown
	headers bool                   // of the response were sent
	held    bool                   // The headers wait for the rest.
	ended   bool                   // by the client
	over    bool                   // The stream is closed: both sides know or will know.
	ours    bool                   // by the server's END_STREAM or RST_STREAM
	expects map[http2.ErrCode]bool // RST_STREAMs that must arrive, or may arrive if false
	kind    engine.ErrorKind       // the kind of the failure; none: success
	told    bool                   // RoundTrip must have returned.

	mu       sync.Mutex // guards the fields below
	returned bool
	response *http.Response
	err      error
	doing    string
	read     int64
	readErr  error
	wrong    string
	closed   bool
}

const none = engine.ErrorKind(-1)

// modelBody is a request's body. The model adds data to it.
type modelBody struct {
	index  int
	mu     sync.Mutex // guards the fields below
	come   sync.Cond
	there  int64 // bytes that are available to the client
	taken  int64
	err    error
	closed bool
}

var errModelBody = errors.New("the body broke")

func (b *modelBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.taken == b.there && b.err == nil && !b.closed {
		b.come.Wait()
	}
	n := int(min(int64(len(p)), b.there-b.taken))
	copy(p, fill(b.index, b.taken, n))
	b.taken += int64(n)
	if b.taken < b.there {
		return n, nil
	}
	if b.err == nil && b.closed {
		return n, io.ErrClosedPipe
	}
	return n, b.err
}

func (b *modelBody) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.come.Broadcast()
	return nil
}

// add adds n more bytes, and the end unless err is nil.
func (b *modelBody) add(n int64, err error) {
	b.mu.Lock()
	b.there += n
	if b.err == nil {
		b.err = err
	}
	b.mu.Unlock()
	b.come.Broadcast()
}

// offered returns how many bytes the body had and whether it has ended without an error.
func (b *modelBody) offered() (n int64, whole, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.there, b.err == io.EOF, b.err == nil && !b.closed
}

func (b *modelBody) left() bool { b.mu.Lock(); defer b.mu.Unlock(); return !b.closed }

func pattern(index int, at int64) byte { return byte(int64(index)*31 + at*7 + at>>8) }

func fill(index int, from int64, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = pattern(index, from+int64(i))
	}
	return p
}

type modelBlock []byte

func (b *modelBlock) Write(p []byte) (int, error) { *b = append(*b, p...); return len(p), nil }

func newModel(rt *rapid.T) *model {
	m := &model{T: rt, window: 65535, initial: 65535, sendWindow: 65535, streams: 1000}
	m.resume.L = &m.mu
	ours, theirs := net.Pipe()
	m.conn = theirs
	m.framer = http2.NewFramer(theirs, theirs)
	m.framer.AllowIllegalWrites = true
	m.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	m.encoder = hpack.NewEncoder((*modelBlock)(&m.block))
	go m.read()
	go func() {
		_ = m.framer.WriteSettings() // New returns the error.
	}()
	m.announced = append(m.announced, 65535)
	const never = 1000 * time.Hour
	var err error
	m.client, err = New(context.Background(), ours, engine.ClientConfig{
		MaxHeaderBytes: 64 << 10, CheckInterval: time.Second, PingAfter: never, PingTimeout: never, HeaderTimeout: never, ProtocolTimeout: never,
	})
	if err != nil {
		rt.Fatalf("New failed: %v, want a connection", err)
	}
	m.settle()
	if m.sendWindow != connWindow {
		rt.Fatalf("connection window at the start = %d, want %d", m.sendWindow, connWindow)
	}
	return m
}

func (m *model) must(err error) {
	if err != nil {
		m.Fatalf("client ended the connection: %v, %v, want it open", err, m.client.closeError())
	}
}

// close ends the model after success or failure.
func (m *model) close() {
	if m.client != nil {
		m.client.Close()
	}
	_ = m.conn.Close()
	m.setPaused(false)
	for _, c := range m.calls {
		c.cancel()
		if c.body != nil {
			_ = c.body.Close()
		}
		close(c.commands)
	}
	if m.client != nil {
		m.client.Wait()
	}
	synctest.Wait()
}

func (m *model) read() {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(m.conn, preface); err != nil {
		return
	}
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
			k.path = f.PseudoValue("path")
		case *http2.DataFrame:
			k.data = append([]byte(nil), f.Data()...)
		case *http2.RSTStreamFrame:
			k.code = f.ErrCode
		case *http2.GoAwayFrame:
			k.code = f.ErrCode
		case *http2.WindowUpdateFrame:
			k.increment = int64(f.Increment)
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

func (m *model) find(id uint32) *modelCall {
	for _, c := range m.calls {
		if c.id == id {
			return c
		}
	}
	m.Fatalf("frame on the unused stream %d, want a stream of a request", id)
	return nil
}

// came checks a frame of the client. It reports whether the server has answered it.
func (m *model) came(f *modelFrame) bool {
	if f.Length > 16384 {
		m.Fatalf("frame has %d bytes, want at most 16384", f.Length)
	}
	switch f.Type {
	case http2.FrameHeaders:
		index := -1
		_, _ = fmt.Sscanf(f.path, "/%d", &index)
		if index < 0 || m.calls[index].id != 0 || f.StreamID <= m.newest || f.StreamID%2 == 0 {
			m.Fatalf("%v of request %d follows stream %d, want a new odd stream ID", f.FrameHeader, index, m.newest)
		}
		m.newest = f.StreamID
		c := m.calls[index]
		c.id = f.StreamID
		c.ended = f.Flags.Has(http2.FlagHeadersEndStream)
	case http2.FrameData:
		m.data(f)
	case http2.FrameRSTStream:
		c := m.find(f.StreamID)
		if _, ok := c.expects[f.code]; !ok {
			m.Fatalf("request %d: RST_STREAM with %v, want none or another code", c.index, f.code)
		}
		delete(c.expects, f.code)
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
		} else {
			m.find(f.StreamID).left += f.increment
		}
	case http2.FramePing:
		m.pings--
	case http2.FrameGoAway:
		m.Fatalf("GOAWAY with %v, want none", f.code)
	default:
		m.Fatalf("frame %v, want a known type", f.FrameHeader)
	}
	return false
}

func (m *model) data(f *modelFrame) {
	c, n := m.find(f.StreamID), int64(f.Length)
	if c.ended {
		m.Fatalf("request %d: DATA after the end of its stream, want none", c.index)
	}
	for i, b := range f.data {
		if b != pattern(c.index, c.got+int64(i)) {
			m.Fatalf("request %d: byte %d differs from the byte sent, want equal bytes", c.index, c.got+int64(i))
		}
	}
	c.got += n
	m.window -= n
	if left := m.initial + c.credit - c.got; n > 0 && (left < 0 || m.window < 0) {
		m.Fatalf("request %d sent %d bytes: windows = %d and %d, want at least 0", c.index, n, left, m.window)
	}
	c.ended = f.Flags.Has(http2.FlagDataEndStream)
}

// live reports whether the stream has begun and was neither answered completely nor reset.
func (c *modelCall) live() bool { return c.id != 0 && !c.over }

func (m *model) active() (n int) {
	for _, c := range m.calls {
		if !c.over {
			n++
		}
	}
	return n
}

// fail lets c end with kind. The stream is reset with code unless the server knows of its end.
func (m *model) fail(c *modelCall, kind engine.ErrorKind, code http2.ErrCode) {
	c.over, c.kind, c.told, c.held = true, kind, true, false
	if code != http2.ErrCodeNo {
		m.expect(c, code)
	}
}

func (m *model) expect(c *modelCall, code http2.ErrCode) {
	if c.expects == nil {
		c.expects = map[http2.ErrCode]bool{}
	}
	c.expects[code] = true
}

// complete lets c succeed.
func (m *model) complete(c *modelCall) {
	c.over, c.ours, c.told, c.held = true, true, true, false
	if !c.ended {
		m.expect(c, http2.ErrCodeNo) // The rest is not sent.
		if m.paused {                // or is in flight
			c.expects[http2.ErrCodeNo] = false
		}
	}
}

// check compares the client with the model while the bubble is idle.
func (m *model) check() {
	// The pool calls MaxStreams when it chooses a connection. The call must not wait for a writer (golang/go#32388).
	if got := m.client.MaxStreams(); got != m.streams {
		m.Fatalf("MaxStreams = %d, want %d", got, m.streams)
	}
	m.client.Window()
	ended := m.client.Closed()
	if spent := m.goneAway && m.active() == 0; ended != spent || m.client.Available() == m.goneAway {
		m.Fatalf("closed = %v, available = %v, error %v, want the state of the model (closed: %v)", ended, m.client.Available(), m.client.closeError(), spent)
	}
	for _, c := range m.calls {
		m.checkCall(c)
	}
	if m.paused || ended {
		return
	}
	if m.pings != 0 {
		m.Fatalf("%d PINGs are unanswered, want 0", m.pings)
	}
	// Window updates are sent when data arrives. An unread response must not block other streams (golang/go#16510).
	if owed := connWindow - m.sendWindow; owed < 0 || owed >= connWindow/4 {
		m.Fatalf("connection window = %d, want more than three quarters of %d", m.sendWindow, connWindow)
	}
}

func (m *model) checkCall(c *modelCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := kindOf(c.err)
	switch {
	case c.wrong != "":
		m.Fatalf("request %d: %s, want no problem", c.index, c.wrong)
	case c.returned != c.told:
		m.Fatalf("request %d: returned = %v, want %v; error %v", c.index, c.returned, c.told, c.err)
	case c.err != nil && (c.kind != kind || c.kind == none):
		m.Fatalf("request %d: kind = %d, want %d; error %v", c.index, kind, c.kind, c.err)
	case c.id != 0 && kind == engine.Unsent:
		m.Fatalf("request %d was sent and its kind is Unsent, want another kind", c.index)
	case c.returned && c.err == nil && !c.headers:
		m.Fatalf("request %d returned a response before the server sent one, want none", c.index)
	case c.doing != "" && (c.sent > c.read || c.over):
		m.Fatalf("request %d: reader waits in %s after %d of %d bytes, stream closed: %v, want it to return", c.index, c.doing, c.read, c.sent, c.over)
	case c.readErr != nil && !c.over:
		m.Fatalf("request %d: read error = %v, want none", c.index, c.readErr)
	case c.readErr == io.EOF && (c.kind != none || c.read != c.sent):
		m.Fatalf("request %d: io.EOF after %d of %d bytes, want an error or all bytes", c.index, c.read, c.sent)
	}
	if m.paused || m.client.Closed() {
		return
	}
	for code, must := range c.expects {
		if !must {
			continue
		}
		m.Fatalf("request %d was not reset, want RST_STREAM with %v", c.index, code)
	}
	if !c.live() {
		return
	}
	offered, whole := c.whole, true
	if c.body != nil {
		offered, whole, _ = c.body.offered()
	}
	window := min(m.window, m.initial+c.credit-c.got)
	switch {
	case c.got > offered:
		m.Fatalf("request %d: %d bytes arrived, want at most %d", c.index, c.got, offered)
	case c.got < offered && window > 0:
		m.Fatalf("request %d: %d of %d bytes arrived with windows of %d and %d, want all that the windows allow", c.index, c.got, offered, m.initial+c.credit-c.got, m.window)
	case c.got == offered && whole && !c.ended:
		m.Fatalf("request %d has not ended after all of its %d bytes, want END_STREAM", c.index, c.got)
	}
	if owed := streamWindow - c.left - (c.sent - c.read); owed < 0 || owed >= streamWindow/4 {
		m.Fatalf("request %d: window = %d of %d, %d bytes unread, %d not returned, want less than a quarter", c.index, c.left, streamWindow, c.sent-c.read, owed)
	}
}

// run executes a sequence of steps and then finish.
func (m *model) run() {
	for range rapid.SampledFrom([]int{5, 20, 60, 100}).Draw(m.T, "steps") {
		if m.goneAway && m.active() == 0 {
			break
		}
		m.step(rapid.SampledFrom(modelSteps).Draw(m.T, "step"))
		m.settle()
		m.check()
	}
	m.finish()
}

// modelSteps contains frequent steps more than once.
var modelSteps = []string{
	"call", "call", "call", "feed", "feed", "feed", "cancel", "read", "read", "read", "close", "respond", "respond", "respond", "interim",
	"data", "data", "data", "burst", "trailers", "reset", "stream window", "stream window", "connection window", "connection window",
	"settings", "ping", "pause", "resume", "resume", "look", "late", "violate", "violate", "go away",
}

func (m *model) step(what string) {
	switch what {
	case "call":
		m.call()
	case "feed":
		m.feed()
	case "cancel":
		if c := m.pick(what, func(c *modelCall) bool { return !c.over }); c != nil {
			m.leave(c)
			c.cancel()
		}
	case "read":
		if c := m.pick(what, (*modelCall).readable); c != nil {
			m.reads(c, rapid.IntRange(1, 100_000).Draw(m.T, "bytes"))
		}
	case "close":
		if c := m.pick(what, (*modelCall).readable); c != nil {
			if !c.over {
				m.leave(c)
			}
			c.closed = true
			c.commands <- func() { _ = c.response.Body.Close() }
		}
	case "respond":
		m.respond()
	case "interim":
		if c := m.pick(what, func(c *modelCall) bool {
			return c.live() && !c.headers && rapid.IntRange(0, 3).Draw(m.T, "once more") == 0
		}); c != nil {
			m.write(c, false, ":status", "103")
		}
	case "data":
		if c := m.pick(what, (*modelCall).responding); c != nil {
			m.send(c, 1)
		}
	case "burst":
		if c := m.pick(what, (*modelCall).responding); c != nil {
			m.send(c, 40)
		}
	case "trailers":
		if c := m.pick(what, func(c *modelCall) bool { return c.responding() && (c.length < 0 || c.length == c.sent) }); c != nil {
			m.write(c, true, "x-trailer", "x")
			m.complete(c)
		}
	case "reset":
		m.reset()
	case "stream window":
		if c := m.pick(what, (*modelCall).live); c != nil {
			n := rapid.Int64Range(1, 60_000).Draw(m.T, "increment")
			c.credit += n
			m.must(m.framer.WriteWindowUpdate(c.id, uint32(n)))
		}
	case "connection window":
		n := rapid.SampledFrom([]int64{1, 100, 5000, 40_000}).Draw(m.T, "increment")
		m.window += n
		m.must(m.framer.WriteWindowUpdate(0, uint32(n)))
	case "settings":
		m.settings()
	case "ping":
		m.pings++
		m.must(m.framer.WritePing(false, [8]byte{1}))
	case "pause":
		m.setPaused(true)
	case "resume":
		m.setPaused(false)
	case "look":
		m.client.Check(false)
		for _, c := range m.calls {
			if c.held {
				c.held, c.told = false, true
			}
		}
	case "late": // frames in flight when the client reset the stream
		if c := m.pick(what, func(c *modelCall) bool { return c.id != 0 && c.over && !c.ours }); c != nil {
			n := rapid.Int64Range(0, min(16_384, m.sendWindow)).Draw(m.T, "bytes")
			m.sendWindow -= n
			m.must(m.framer.WriteData(c.id, false, make([]byte, n)))
			if rapid.Bool().Draw(m.T, "window") {
				m.must(m.framer.WriteWindowUpdate(c.id, 1000))
			}
		}
	case "violate":
		m.violate()
	case "go away":
		if rapid.IntRange(0, 4).Draw(m.T, "really") == 0 {
			m.goAway()
		}
	}
}

// pick draws one of the calls for which fit is true. It returns nil if there is none.
func (m *model) pick(what string, fit func(*modelCall) bool) *modelCall {
	var all []*modelCall
	for _, c := range m.calls {
		if fit(c) {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[rapid.IntRange(0, len(all)-1).Draw(m.T, what+": request")]
}

func (c *modelCall) responding() bool { return c.live() && c.headers }

func (c *modelCall) readable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.returned && c.err == nil && c.doing == "" && !c.closed
}

// call lets a caller send a request. A request beyond the server's limit is not sent: the connection was chosen before the limit was
// lowered.
func (m *model) call() {
	if m.paused { // The caller may be the writer.
		return
	}
	full := m.active() >= m.streams
	c := &modelCall{index: len(m.calls), left: streamWindow, length: -1, kind: none, commands: make(chan func(), 1)}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	var body io.Reader
	switch rapid.SampledFrom([]string{"none", "whole", "streamed"}).Draw(m.T, "body") {
	case "whole":
		c.whole = rapid.Int64Range(1, 200_000).Draw(m.T, "length")
		body = engine.NewBytesBody(fill(c.index, 0, int(c.whole)))
	case "streamed":
		c.body = &modelBody{index: c.index}
		c.body.come.L = &c.body.mu
		body = c.body
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("https://example.com/%d", c.index), body)
	m.must(err)
	c.request = r
	m.calls = append(m.calls, c)
	if m.goneAway || full {
		c.over, c.kind, c.told = true, engine.Unsent, true
	}
	go func() {
		response, err := m.client.RoundTrip(r)
		c.mu.Lock()
		c.returned, c.response, c.err = true, response, err
		c.mu.Unlock()
		for do := range c.commands {
			do()
		}
	}()
}

// feed lets a body continue, end or fail.
func (m *model) feed() {
	c := m.pick("feed", func(c *modelCall) bool {
		if c.body == nil || c.over {
			return false
		}
		_, _, open := c.body.offered()
		return open
	})
	if c == nil {
		return
	}
	n := rapid.Int64Range(0, 60_000).Draw(m.T, "bytes")
	switch rapid.SampledFrom([]string{"more", "more", "more", "end", "error"}).Draw(m.T, "then") {
	case "more":
		c.body.add(n, nil)
	case "end":
		c.body.add(n, io.EOF)
	case "error":
		if offered, _, _ := c.body.offered(); c.got == offered && !m.paused { // The failure takes effect at once.
			m.fail(c, engine.BodyError, http2.ErrCodeCancel)
			c.body.add(0, errModelBody)
		}
	}
}

// leave lets c end because its caller cancels it.
func (m *model) leave(c *modelCall) {
	m.fail(c, engine.Canceled, http2.ErrCodeNo)
	if c.id != 0 {
		m.expect(c, http2.ErrCodeCancel)
	}
}

// reads lets a caller read once.
func (m *model) reads(c *modelCall, n int) {
	c.doing = "read"
	c.commands <- func() {
		p := make([]byte, n)
		n, err := c.response.Body.Read(p)
		c.mu.Lock()
		defer c.mu.Unlock()
		for i, b := range p[:n] {
			if b != pattern(c.index, c.read+int64(i)) {
				c.wrong = fmt.Sprintf("the byte at %d of the response is not the one that was sent", c.read+int64(i))
			}
		}
		c.read += int64(n)
		c.readErr, c.doing = err, ""
	}
}

func (m *model) write(c *modelCall, end bool, fields ...string) {
	m.block = m.block[:0]
	for i := 0; i < len(fields); i += 2 {
		m.must(m.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	m.must(m.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: c.id, BlockFragment: m.block, EndHeaders: true, EndStream: end}))
}

func (m *model) respond() {
	c := m.pick("respond", func(c *modelCall) bool { return c.live() && !c.headers })
	if c == nil {
		return
	}
	fields := []string{":status", "200"}
	end := false
	switch rapid.SampledFrom([]string{"unknown", "unknown", "empty", "short", "long"}).Draw(m.T, "length") {
	case "empty":
		end = true
	case "short":
		c.length = rapid.Int64Range(1, maxHeld).Draw(m.T, "Content-Length")
	case "long":
		c.length = rapid.Int64Range(maxHeld+1, 1<<20).Draw(m.T, "Content-Length")
	}
	if c.length >= 0 {
		fields = append(fields, "content-length", fmt.Sprint(c.length))
	}
	c.headers = true
	c.held = c.length >= 0 && c.length <= maxHeld
	c.told = c.told || !c.held
	m.write(c, end, fields...)
	if end {
		m.complete(c)
	}
}

// send sends DATA within the windows.
func (m *model) send(c *modelCall, frames int) {
	for range frames {
		most := min(m.sendWindow, c.left, 16_384)
		if c.length >= 0 {
			most = min(most, c.length-c.sent)
		}
		n := max(0, most)
		if frames == 1 && !rapid.Bool().Draw(m.T, "as much as may be") {
			n = rapid.Int64Range(0, n).Draw(m.T, "bytes")
		}
		end := frames == 1 && rapid.IntRange(0, 3).Draw(m.T, "end") == 0
		if c.length >= 0 {
			end = c.sent+n == c.length
		}
		if n == 0 && !end && frames > 1 {
			return
		}
		p := fill(c.index, c.sent, int(n))
		m.sendWindow, c.left, c.sent = m.sendWindow-n, c.left-n, c.sent+n
		if n > 0 && n < 16_000 && min(m.sendWindow, c.left) > 100 && frames == 1 && rapid.IntRange(0, 3).Draw(m.T, "padding") == 0 {
			m.sendWindow, c.left = m.sendWindow-100, c.left-100
			m.must(m.framer.WriteDataPadded(c.id, end, p, make([]byte, 99)))
		} else {
			m.must(m.framer.WriteData(c.id, end, p))
		}
		if end {
			m.complete(c)
			return
		}
	}
}

func (m *model) reset() {
	c := m.pick("reset", (*modelCall).live)
	if c == nil {
		return
	}
	code := rapid.SampledFrom([]http2.ErrCode{http2.ErrCodeCancel, http2.ErrCodeRefusedStream, http2.ErrCodeInternal}).Draw(m.T, "code")
	kind := engine.Reset
	if code == http2.ErrCodeRefusedStream && !c.headers {
		kind = engine.Refused
	}
	m.fail(c, kind, http2.ErrCodeNo)
	c.ours = true
	m.must(m.framer.WriteRSTStream(c.id, code))
}

func (m *model) settings() {
	list := []http2.Setting{{ID: http2.SettingMaxFrameSize, Val: rapid.SampledFrom([]uint32{1 << 14, 1 << 20}).Draw(m.T, "MAX_FRAME_SIZE")}}
	n := rapid.SampledFrom([]int64{0, 1, 1000, 65_535, 120_000}).Draw(m.T, "INITIAL_WINDOW_SIZE")
	list = append(list, http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(n)})
	m.announced = append(m.announced, n)
	if rapid.Bool().Draw(m.T, "and how many streams") {
		m.streams = rapid.SampledFrom([]int{0, 1, 2, 5, 1000}).Draw(m.T, "MAX_CONCURRENT_STREAMS")
		list = append(list, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(m.streams)})
	}
	m.must(m.framer.WriteSettings(list...))
}

// goAway lets the server send GOAWAY with the last stream that it processed.
func (m *model) goAway() {
	last := m.newest
	if c := m.pick("go away", (*modelCall).live); c != nil {
		last = c.id - uint32(rapid.IntRange(0, 1).Draw(m.T, "before"))
	}
	m.goneAway = true
	for _, c := range m.calls {
		if c.live() && c.id > last {
			m.fail(c, engine.Unprocessed, http2.ErrCodeNo)
			c.ours = true
		}
	}
	m.must(m.framer.WriteGoAway(last, http2.ErrCodeNo, nil))
}

// violate causes the error of one stream.
func (m *model) violate() {
	c := m.pick("violate", (*modelCall).live)
	if c == nil || m.paused {
		return
	}
	what := rapid.SampledFrom([]string{"window", "length", "no headers", "no increment", "too much increment", "no status"}).Draw(m.T, "violation")
	code := http2.ErrCodeProtocol
	switch what {
	case "window": // golang/go#40423: the connection's window must be returned in this case too.
		if !c.headers || c.length >= 0 || c.left > 100_000 {
			return
		}
		for n := c.left + 1; n > 0; n -= 16_384 {
			p := min(n, 16_384)
			m.sendWindow -= p
			m.must(m.framer.WriteData(c.id, false, fill(c.index, c.sent, int(p))))
			if n > 16_384 {
				c.sent += p
			}
		}
		code = http2.ErrCodeFlowControl
	case "length":
		n := c.length - c.sent + 1
		if !c.headers || c.length < 0 || n > min(c.left, 16_384) {
			return
		}
		m.sendWindow -= n
		m.must(m.framer.WriteData(c.id, false, make([]byte, n)))
	case "no headers":
		if c.headers {
			return
		}
		m.sendWindow -= 10
		m.must(m.framer.WriteData(c.id, false, make([]byte, 10)))
	case "no increment":
		m.must(m.framer.WriteWindowUpdate(c.id, 0))
	case "too much increment":
		if len(m.announced) > 0 || m.initial+c.credit-c.got <= 0 {
			return
		}
		m.must(m.framer.WriteWindowUpdate(c.id, 1<<31-1))
		code = http2.ErrCodeFlowControl
	case "no status":
		if c.headers {
			return
		}
		m.write(c, false, "x", "y")
	}
	m.fail(c, engine.ProtocolViolation, code)
}

// finish checks that the connection's window is returned completely although responses are unread, and ends everything.
func (m *model) finish() {
	m.setPaused(false)
	m.settle()
	m.check()
	if !m.goneAway && rapid.IntRange(0, 3).Draw(m.T, "probe") == 0 { // It takes as long as the rest of the sequence.
		m.probe()
	}
	m.window += 100 << 20
	if !m.client.Closed() {
		m.must(m.framer.WriteWindowUpdate(0, 100<<20))
		m.settle()
		m.check()
	}
	for _, c := range m.calls {
		if c.live() {
			c.credit += 10 << 20
			m.must(m.framer.WriteWindowUpdate(c.id, 10<<20))
			m.settle()
			m.check()
		}
	}
	for _, c := range m.calls {
		if !c.over {
			m.leave(c)
			c.cancel()
			m.settle()
			m.check()
		}
		if c.body != nil { // The reader of the body closes it as soon as it has data.
			c.body.add(1, nil)
			m.settle()
			if c.body.left() {
				m.Fatalf("request %d has ended and its body is open, want it closed", c.index)
			}
		}
	}
	m.client.mu.Lock()
	left := len(m.client.streams)
	m.client.mu.Unlock()
	if left > 0 || m.client.heldCount.Load() != 0 {
		m.Fatalf("%d streams and %d held headers at the end, want 0", left, m.client.heldCount.Load())
	}
}

// probe sends on a stream that is read until the client returns all consumed bytes. The window must then be complete.
func (m *model) probe() {
	m.streams = 1000
	m.announced = append(m.announced, 65535)
	m.must(m.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1000}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 65535}))
	m.settle()
	m.call()
	m.settle()
	c := m.calls[len(m.calls)-1]
	c.headers, c.told = true, true
	m.write(c, false, ":status", "200")
	m.settle()
	for {
		before := m.sendWindow
		p := min(16_384, c.left)
		if p <= 0 {
			m.Fatalf("request %d is read and its window is %d, want more than 0", c.index, c.left)
		}
		m.must(m.framer.WriteData(c.id, false, fill(c.index, c.sent, int(p))))
		m.sendWindow, c.left, c.sent = m.sendWindow-p, c.left-p, c.sent+p
		m.reads(c, 16_384)
		m.settle()
		if m.sendWindow > before-p {
			break
		}
		m.check()
	}
	if m.sendWindow != connWindow {
		m.Fatalf("connection window = %d, want %d; %s are not returned", m.sendWindow, connWindow, strings.TrimSpace(fmt.Sprint(connWindow-m.sendWindow, " bytes")))
	}
}
