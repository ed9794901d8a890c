package http2_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"golang.org/x/net/http2"

	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/portico/http2/client"
)

// If a caller cancels a request, the stream is reset and the connection continues.
func TestCanceledRequestResetsItsStream(t *testing.T) {
	for _, c := range callers {
		for _, when := range []string{"before the answer", "within the body", "by closing the body"} {
			t.Run(c.name+", "+when, func(t *testing.T) {
				begun := make(chan struct{})
				address, saw := listenByHand(t, func(b *backend) {
					b.settle()
					id := b.request(true)
					if when != "before the answer" {
						b.answer(id, false)
						b.tell(b.WriteData(id, false, []byte("abc")))
					}
					close(begun)
					for {
						f, err := b.listen()
						if err != nil {
							return
						}
						if h, ok := f.(*http2.MetaHeadersFrame); ok {
							b.answer(h.StreamID, true)
						}
					}
				})
				rt := c.dial(t, address)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				why := errors.New("enough")
				if when == "before the answer" {
					go func() { <-begun; cancel(why) }()
				}
				res, err := rt.RoundTrip(newRequest(t, "GET", nil).WithContext(ctx))
				switch when {
				case "within the body":
					<-begun
					cancel(why)
					_, err = io.ReadAll(res.Body)
					_ = res.Body.Close()
				case "by closing the body":
					err = res.Body.Close()
					if err == nil {
						err = context.Canceled
					}
				}
				if !errors.Is(err, context.Canceled) && !errors.Is(err, why) {
					t.Errorf("error of the canceled request = %v, want context.Canceled or the cause", err)
				}
				if got := asked(rt, newRequest(t, "GET", nil)); got != "200 OK" {
					t.Errorf("request after the canceled one = %s, want 200 OK", got)
				}
				if list := saw(rt, 1); !slices.Equal(list, []string{"RST 1 CANCEL"}) {
					t.Errorf("frames received by the server = %q, want RST 1 CANCEL", list)
				}
			})
		}
	}
}

// Bodies of all kinds arrive completely through small windows of the server.
func TestUploadsThroughSmallWindows(t *testing.T) {
	data := make([]byte, 300_000)
	_, _ = rand.Read(data)
	kinds := map[string]func() io.Reader{
		"in memory":         func() io.Reader { return bytes.NewReader(data) },
		"of unknown length": func() io.Reader { return io.MultiReader(bytes.NewReader(data)) },
		"whole":             func() io.Reader { return engine.NewBytesBody(data) },
	}
	for _, c := range callers {
		for kind, body := range kinds {
			for _, window := range []uint32{0, 1000, 65_535} {
				t.Run(fmt.Sprintf("%s, %s, %d", c.name, kind, window), func(t *testing.T) {
					t.Parallel()
					address, _ := listenByHand(t, func(b *backend) { b.receive(window, c.late) })
					rt := c.dial(t, address)
					r := newRequest(t, "POST", body())
					if got, want := asked(rt, r), fmt.Sprintf("200 OK | header Sum=[\"%x\"]", sha256.Sum256(data)); got != want {
						t.Errorf("response to the upload = %s, want %s", got, want)
					}
				})
			}
		}
	}
}

// receive accepts one request and opens the windows in small steps. It reports bytes beyond the windows and beyond late.
func (b *backend) receive(window uint32, late int64) {
	b.settle(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	b.deaf = true
	sum, stream, connection := sha256.New(), int64(window), int64(65_535)
	acked := false
	for {
		f, err := b.listen()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			acked = acked || f.IsAck()
		case *http2.MetaHeadersFrame:
			if window == 0 {
				stream += 500
				b.tell(b.WriteWindowUpdate(f.StreamID, 500))
			}
		case *http2.DataFrame:
			n := int64(f.Length)
			sum.Write(f.Data())
			stream, connection = stream-n, connection-n
			if acked && (stream < -late || connection < 0) {
				b.t.Errorf("client sent %d bytes beyond the stream's window and %d beyond the connection's, want 0", -stream, -connection)
				return
			}
			if f.StreamEnded() {
				b.answer(f.StreamID, true, "sum", fmt.Sprintf("%x", sum.Sum(nil)))
				return
			}
			if stream < 100 { // negative if the client did not have the setting yet
				more := 7777 - stream
				stream += more
				b.tell(b.WriteWindowUpdate(f.StreamID, uint32(more)))
			}
			if connection < 100 {
				connection += 33_333
				b.tell(b.WriteWindowUpdate(0, 33_333))
			}
		}
	}
}

// A server may respond before it has the complete request. The caller receives the response and the connection continues.
func TestEarlyResponseIsDelivered(t *testing.T) {
	for _, c := range callers {
		for _, way := range []string{"and says so", "and says nothing"} {
			t.Run(c.name+", "+way, func(t *testing.T) {
				address, _ := listenByHand(t, func(b *backend) {
					b.settle()
					b.deaf = true
					id := b.request(false)
					b.headers(id, false, ":status", "413")
					b.tell(b.WriteData(id, true, []byte("no")))
					if way == "and says so" {
						b.tell(b.WriteRSTStream(id, http2.ErrCodeNo))
					}
					b.deaf = false
					b.tell(b.WriteWindowUpdate(0, 1<<20))
					if id := b.request(true); id != 0 {
						b.answer(id, true)
					}
				})
				rt := c.dial(t, address)
				body, writer := io.Pipe()
				var writing sync.WaitGroup
				writing.Go(func() {
					for {
						if _, err := writer.Write(make([]byte, 10_000)); err != nil {
							return
						}
					}
				})
				if got, want := asked(rt, newRequest(t, "POST", body)), "413 Request Entity Too Large | length -1 | body no"; got != want {
					t.Errorf("response to the unfinished upload = %s, want %s", got, want)
				}
				writing.Wait() // The client has closed the body.
				if got := asked(rt, newRequest(t, "GET", nil)); got != "200 OK" {
					t.Errorf("request after the early response = %s, want 200 OK", got)
				}
			})
		}
	}
}

// A response beyond the window is an error of the stream or the connection. A response within the window waits for its reader and does
// not block other streams.
func TestResponseBeyondWindowIsRejected(t *testing.T) {
	for _, c := range callers {
		for more, what := range []string{"all that it may", "a byte more"} {
			t.Run(c.name+", "+what, func(t *testing.T) {
				sent := make(chan int64, 1)
				address, _ := listenByHand(t, func(b *backend) {
					b.settle()
					stream := int64(65_535)
					var id uint32
					for id == 0 {
						f, err := b.listen()
						if err != nil {
							return
						}
						switch f := f.(type) {
						case *http2.SettingsFrame:
							if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
								stream = int64(v)
							}
						case *http2.MetaHeadersFrame:
							id = f.StreamID
						}
					}
					b.answer(id, false)
					total := int64(0)
					for stream > 0 {
						n := min(stream, 16_384)
						b.tell(b.WriteData(id, false, make([]byte, n)))
						stream -= n
						total += n
					}
					b.tell(b.WriteData(id, more == 0, make([]byte, more)))
					sent <- total
					if other := b.request(true); other != 0 {
						b.answer(other, false)
						b.tell(b.WriteData(other, true, []byte("abc")))
					}
				})
				rt := c.dial(t, address)
				res, err := rt.RoundTrip(newRequest(t, "GET", nil))
				if err != nil {
					t.Fatal(err)
				}
				got := asked(rt, newRequest(t, "GET", nil))
				if got != "200 OK | length -1 | body abc" && !(more > 0 && c.name == library) { // net/http's client closes the connection.
					t.Errorf("response on another stream = %s, want 200 OK with body abc", got)
				}
				n, err := io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				switch total := <-sent; {
				case more == 0 && (err != nil || n != total):
					t.Errorf("response = %d bytes, error %v, want %d bytes and no error", n, err, total)
				case more > 0 && (err == nil || c.name == ours && errorKind(err) != "broken"):
					t.Errorf("response beyond the window = %d of %d bytes, error %v, want an error", n, total, err)
				}
			})
		}
	}
}

// The client obeys a stream limit that the server sets or lowers, or fails the request. No request is lost.
func TestClientObeysServerStreamLimit(t *testing.T) {
	address, _ := listenByHand(t, func(b *backend) {
		b.settle(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 3})
		for range 2 {
			if id := b.request(true); id != 0 {
				b.answer(id, true)
			}
		}
		b.settle(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1})
		for range 2 {
			if id := b.request(true); id != 0 {
				b.answer(id, true)
			}
		}
	})
	c, ok := dialOurs(t, address).(*client.Conn)
	if !ok {
		t.Fatal("dial did not return a connection, want a client.Conn")
	}
	if n := c.MaxStreams(); n != 3 {
		t.Errorf("%d streams are allowed, want 3", n)
	}
	for range 4 {
		if got := asked(c, newRequest(t, "GET", nil)); got != "200 OK" {
			t.Errorf("request within the limit of streams = %s, want 200 OK", got)
		}
	}
	if n := c.MaxStreams(); n != 1 {
		t.Errorf("%d streams are allowed, want 1", n)
	}
}
