package http2test

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Event is an action of the other side.
type Event struct {
	Stream uint32
	Kind   string // headers, data, end, RST, GOAWAY, pong, closed, answer, invalid
	Text   string
}

func (e Event) String() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s %s", e.Stream, e.Kind, e.Text))
}

// Kinds of events.
const (
	Headers = "headers"
	Data    = "data"
	End     = "end"
	Reset   = "RST"
	GoAway  = "GOAWAY"
	Pong    = "pong"
	Closed  = "closed"
	Answer  = "answer"  // response to a request, recorded at the end
	Invalid = "invalid" // a frame that cannot be parsed: its sender violated the protocol
)

// Failed is the text of an Answer if there was no complete response.
const Failed = "failed"

// Record contains the frames that one side of a connection wrote.
type Record struct {
	mu     sync.Mutex // guards the fields below
	events []Event
}

// Read reads frames until the connection ends.
func (r *Record) Read(from io.Reader) {
	f := http2.NewFramer(io.Discard, from)
	f.AllowIllegalReads = true
	f.SetMaxReadFrameSize(1 << 24)
	d := hpack.NewDecoder(4096, nil)
	var block []byte
	var end bool
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			r.add(Event{Kind: Closed})
			return
		}
		id := frame.Header().StreamID
		switch frame := frame.(type) {
		case *http2.HeadersFrame:
			block, end = append([]byte(nil), frame.HeaderBlockFragment()...), frame.StreamEnded()
			if frame.HeadersEnded() {
				r.block(d, id, block, end)
			}
		case *http2.ContinuationFrame:
			if block = append(block, frame.HeaderBlockFragment()...); frame.HeadersEnded() {
				r.block(d, id, block, end)
			}
		case *http2.DataFrame:
			if len(frame.Data()) > 0 {
				r.add(Event{id, Data, string(bytes.Clone(frame.Data()))})
			}
			if frame.StreamEnded() {
				r.add(Event{id, End, ""})
			}
		case *http2.RSTStreamFrame:
			r.add(Event{id, Reset, frame.ErrCode.String()})
		case *http2.GoAwayFrame:
			r.add(Event{0, GoAway, frame.ErrCode.String()})
		case *http2.PingFrame:
			if frame.IsAck() {
				r.add(Event{0, Pong, ""})
			}
		}
	}
}

// block records a header block. Fields that a server adds automatically are omitted.
func (r *Record) block(d *hpack.Decoder, id uint32, block []byte, end bool) {
	fields, err := d.DecodeFull(block)
	if err != nil {
		r.add(Event{id, Invalid, err.Error()})
		return
	}
	var text []string
	for _, f := range fields {
		switch f.Name {
		case "date", "content-type", "content-length", "x-content-type-options", "trailer":
		default:
			text = append(text, f.Name+"="+f.Value)
		}
	}
	slices.Sort(text)
	r.add(Event{id, Headers, strings.Join(text, " ")})
	if end {
		r.add(Event{id, End, ""})
	}
}

func (r *Record) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Kind == Data {
		for i := range r.events { // the DATA of one stream is one event, regardless of its frames
			if o := &r.events[i]; o.Stream == e.Stream && o.Kind == Data {
				o.Text += e.Text
				return
			}
		}
	}
	r.events = append(r.events, e)
}

// Take returns the events since the last call, stream by stream.
func (r *Record) Take() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.events
	r.events = nil
	slices.SortStableFunc(all, func(a, b Event) int { return int(a.Stream) - int(b.Stream) })
	return all
}

// ClientSeeds returns inputs that generate ordinary requests, with bodies and trailers, resets and settings.
func ClientSeeds() [][]byte {
	get := []byte{0x20, 0x01, 0, 0, 0, 0, 0, 0, 0}
	post := []byte{0x20, 0x00, 0, 0, 1, 0, 0, 0, 1, 7}
	data := []byte{0x60, 0, 0, 5, 'h', 'e', 'l', 'l', 'o', 0}
	last := []byte{0x60, 0, 1, 0, 0}
	trailers := []byte{0x20, 0x41, 0, 1, 14}
	return [][]byte{
		get, join(get, get, get, get), join(post, data, last), join(post, data, trailers), join(post, data, data, last),
		join(post, []byte{0xb8, 0, 8, 0}, data), join([]byte{0xa8, 0, 2, 4, 0, 1, 2, 0}, get), join(post, []byte{0x90, 0, 0, 6, 0}, data, last),
		join([]byte{0x00, 0x00, 0, 0, 1, 0, 0, 0, 0, 0}, data, last), join(get, []byte{0xd8, 0, 0, 0, 0}, get, []byte{0xe8, 0, 0, 0}),
		join([]byte{0x20, 0x01, 0, 0, 0, 0, 0, 3, 0}, []byte{0x90, 0, 1, 8, 0}, get),
	}
}

// ServerSeeds returns inputs that generate ordinary responses.
func ServerSeeds() [][]byte {
	head := []byte{0x20, 0x00, 0xd1, 0, 0, 0}
	sized := []byte{0x20, 0x00, 0xd1, 0, 0, 1, 7}
	data := []byte{0x60, 0xd1, 0, 5, 'h', 'e', 'l', 'l', 'o', 0}
	end := []byte{0x60, 0xd1, 1, 0, 0}
	trailers := []byte{0x20, 0x41, 0xd1, 1, 14}
	return [][]byte{
		join(head, data, end), join(sized, data, end), join(head, data, trailers), join([]byte{0x20, 0x00, 0xd1, 0, 4, 0}, head, data, end),
		{0x20, 0x01, 0xd1, 0, 2, 0}, join(head, []byte{0xb8, 0xd1, 8, 0}), join([]byte{0xe8, 2, 0, 0}, head, data, end), join([]byte{0xa8, 0, 1, 3, 2, 0}, head, end),
	}
}

func join(parts ...[]byte) (all []byte) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}
