package client

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"

	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/httpmsg"
	"portico.dev/internal/httpengine/portico/http2/http2test"
)

// fuzzTimeout is longer than a client may take to close a failed connection and shorter than its other timeouts.
const fuzzTimeout = 4 * time.Second

// clientUnderTest is a connection with a function that runs its periodic checks.
type clientUnderTest struct {
	http.RoundTripper
	look func()
	end  func()
}

// dialOurs and dialLibrary start HTTP/2 on a connection. The first SETTINGS are in flight.
func dialOurs(c net.Conn) (*clientUnderTest, error) {
	ctx, cancel := context.WithTimeout(context.Background(), fuzzTimeout)
	defer cancel()
	conn, err := New(ctx, c, engine.ClientConfig{
		MaxHeaderBytes: 64 << 10, CheckInterval: time.Second, PingAfter: time.Hour, PingTimeout: time.Hour, HeaderTimeout: time.Hour, ProtocolTimeout: time.Hour,
	})
	if err != nil {
		return nil, err
	}
	return &clientUnderTest{conn, func() { conn.Check(false) }, func() { conn.Close(); conn.Wait() }}, nil
}

func dialLibrary(c net.Conn) (*clientUnderTest, error) {
	//lint:ignore SA1019 x/net's own client, while there is one, is what this is held to
	tr := &http2.Transport{DisableCompression: true, MaxHeaderListSize: 64 << 10, MaxReadFrameSize: 16 << 10}
	//lint:ignore SA1019 as above
	conn, err := tr.NewClientConn(c)
	if err != nil {
		return nil, err
	}
	return &clientUnderTest{conn, func() {}, func() { _ = conn.Close() }}, nil
}

// methods are the methods of the two requests, by a number.
var methods = [...][2]string{{"GET", "GET"}, {"GET", "POST"}, {"POST", "HEAD"}, {"HEAD", "GET"}}

// runClient lets a client send two requests and sends steps to it, one at a time. It is called in a bubble.
func runClient(steps []http2test.Step, kind uint8, dial func(net.Conn) (*clientUnderTest, error)) (events [][]http2test.Event) {
	ours, theirs := net.Pipe()
	var record http2test.Record
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := io.CopyN(io.Discard, theirs, int64(len(http2.ClientPreface))); err == nil {
			record.Read(theirs)
		}
	})
	say := func(p []byte) bool {
		_ = theirs.SetWriteDeadline(time.Now().Add(fuzzTimeout))
		_, err := theirs.Write(p)
		return err == nil
	}
	all.Go(func() { say([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00")) })
	c, err := dial(ours)
	if err != nil {
		panic(err) // SETTINGS arrived
	}
	synctest.Wait()
	results := make([]http2test.Event, 2)
	for i, method := range methods[kind%byte(len(methods))] {
		all.Go(func() {
			results[i] = http2test.Event{Stream: uint32(2*i + 1), Kind: http2test.Answer, Text: ask(c, method)}
		})
		synctest.Wait()
	}
	dataless := func() []http2test.Event { // Frames of the requests are not compared.
		return slices.DeleteFunc(record.Take(), func(e http2test.Event) bool {
			return e.Kind == http2test.Headers || e.Kind == http2test.Data || e.Kind == http2test.End
		})
	}
	events = append(events, dataless())
	for _, step := range steps {
		good := say(step.Bytes)
		synctest.Wait()
		events = append(events, dataless())
		if !good {
			break
		}
	}
	c.look()
	time.Sleep(fuzzTimeout)
	synctest.Wait()
	_ = theirs.Close()
	synctest.Wait()
	c.end()
	all.Wait()
	return append(events, results)
}

// ask sends a request and describes the outcome.
func ask(c http.RoundTripper, method string) string {
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader("hello")
	}
	r, err := http.NewRequestWithContext(context.Background(), method, "https://example.com/", body)
	if err != nil {
		panic(err)
	}
	res, err := c.RoundTrip(r)
	if err != nil {
		return http2test.Failed
	}
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		return http2test.Failed
	}
	return fmt.Sprintf("%d length %d header %s body %q trailer %s", res.StatusCode, res.ContentLength, sorted(res.Header), text, sorted(mayBe(res.Trailer)))
}

func sorted(h http.Header) string {
	var all []string
	for name, values := range h {
		switch name {
		case "Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade":
			continue // x/net's client drops fields that HTTP/2 has no place for. In Portico the proxy drops them for all versions (proxy/header.go).
		}
		if len(values) == 0 && !httpguts.ValidTrailerHeader(name) {
			continue // x/net's client announces trailers that are not allowed.
		}
		all = append(all, fmt.Sprintf("%q=%q", name, values))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// mayBe returns the allowed trailers. Portico's client drops the other ones (RFC 9110, 6.5.1).
func mayBe(trailer http.Header) http.Header {
	all := http.Header{}
	for name, values := range trailer {
		if httpmsg.ValidTrailer(name) {
			all[name] = values
		}
	}
	return all
}

// clientDifferences are the intended differences.
var clientDifferences = []http2test.Difference{
	{Name: "the connection is given up with another code", Why: "the library's GOAWAY mostly stays in its buffer",
		Is: func(c *http2test.Compared) bool {
			return http2test.EndsConnection(c.Ours) && http2test.EndsConnection(c.Theirs)
		}},
	{Name: "a stream is reset with another code", Why: "more than one thing is wrong with the frame",
		Is: func(c *http2test.Compared) bool { return http2test.Resets(c.Ours) && http2test.Resets(c.Theirs) }},
	{Name: "a header block in too many frames", Why: "CVE-2023-45288: their number is bounded (wire.Block), to the library their bytes are",
		Is: func(c *http2test.Compared) bool {
			return (c.Is(http2.FrameHeaders) || c.Is(http2.FrameContinuation)) && http2test.EndsConnection(c.Ours, http2.ErrCodeEnhanceYourCalm)
		}},
	{Name: "a frame that is not whole", Why: "ours reads all of it before it looks at it",
		Is: func(c *http2test.Compared) bool {
			return c.Ours == "" && len(c.Bytes) >= 9 && len(c.Bytes) < 9+c.Length
		}},
	{Name: "padding as long as HEADERS, or something wrong in HEADERS of a stream that was never begun", Why: "RFC 9113, 5.1 and 6.2 ask for an error of the connection",
		Is: func(c *http2test.Compared) bool {
			return c.Is(http2.FrameHeaders) && http2test.EndsConnection(c.Ours) && http2test.Resets(c.Theirs, http2.ErrCodeProtocol)
		}},
	{Name: "a frame of a stream that was never begun", Why: "RFC 9113, 5.1 asks for an error of the connection; the library takes the stream for one that has ended",
		Is: func(c *http2test.Compared) bool {
			return http2test.EndsConnection(c.Ours, http2.ErrCodeProtocol, http2.ErrCodeFrameSize) && c.Stream != 1 && c.Stream != 3 && c.Theirs == ""
		}},
	{Name: "a status that is not three digits", Why: "RFC 9110, 15", Is: func(c *http2test.Compared) bool {
		return c.Is(http2.FrameHeaders) && http2test.Resets(c.Ours, http2.ErrCodeProtocol) && strings.Contains(c.What, `":status"=`) && !strings.Contains(c.Theirs, "RST")
	}},
	{Name: "a status that is not three digits, told at the end", Why: "the same, where the connection ended with it", Is: func(c *http2test.Compared) bool {
		_, answer, _ := strings.Cut(c.Theirs, " answer ")
		status, _, _ := strings.Cut(answer, " ")
		return strings.HasSuffix(c.Ours, " answer "+http2test.Failed) && answer != http2test.Failed && status != "" && len(status) != 3
	}},
	{Name: "an answer to HEAD that goes on", Why: "nothing of it is of use", Is: func(c *http2test.Compared) bool {
		return http2test.Resets(c.Ours, http2.ErrCodeCancel) && c.Theirs == ""
	}},
	{Name: "PRIORITY of another length", Why: "what servers say of priorities is not looked at",
		Is: func(c *http2test.Compared) bool { return c.Is(http2.FramePriority) && c.Ours == "" }},
	{Name: "PRIORITY_UPDATE", Why: "RFC 9218 is not spoken here: what nobody knows is ignored",
		Is: func(c *http2test.Compared) bool { return c.Type == 0x10 && c.Ours == "" }},
	{Name: "GOAWAY with nothing left to wait for", Why: "ours closes the connection, the library leaves that to the server",
		Is: func(c *http2test.Compared) bool { return c.Ours == "0 closed" && !strings.Contains(c.Theirs, "GOAWAY") }},
	{Name: "GOAWAY that leaves a stream out", Why: "the server does not know it: ours resets nothing",
		Is: func(c *http2test.Compared) bool {
			return c.Is(http2.FrameGoAway) && c.Ours == "" && strings.Contains(c.Theirs, "RST CANCEL")
		}},
	{Name: "one setting twice in a frame", Why: "RFC 9113, 6.5.3 has the values processed in order",
		Is: func(c *http2test.Compared) bool {
			return c.Is(http2.FrameSettings) && c.Ours == "" && http2test.EndsConnection(c.Theirs) && http2test.Twice(c.Bytes[9:])
		}},
	{Name: "NO_RFC7540_PRIORITIES that is neither 0 nor 1", Why: "RFC 9218, 2.1",
		Is: func(c *http2test.Compared) bool {
			return c.Is(http2.FrameSettings) && http2test.EndsConnection(c.Ours, http2.ErrCodeProtocol) && strings.Contains(c.What, "NO_RFC7540_PRIORITIES=")
		}},
	{Name: "a body that is not what its head says", Why: "shorter or longer than its length, or of 204 or 304: ours resets the stream, the library passes over it",
		Is: func(c *http2test.Compared) bool {
			body := c.Is(http2.FrameData) || c.Is(http2.FrameHeaders) && !strings.Contains(c.What, ":status")
			return body && http2test.Resets(c.Ours, http2.ErrCodeProtocol)
		}},
	{Name: "HEADERS that depend on themselves", Why: "RFC 7540, 5.3.1 leaves the connection to us; the library reads no priority",
		Is: func(c *http2test.Compared) bool {
			return c.Is(http2.FrameHeaders) && http2test.EndsConnection(c.Ours, http2.ErrCodeProtocol) && c.Flags&0x20 != 0
		}},
	{Name: "SETTINGS that make the window of a stream too large", Why: "RFC 9113, 6.9.2 asks for an error; the library does not look",
		Is: func(c *http2test.Compared) bool {
			return c.Is(http2.FrameSettings) && http2test.EndsConnection(c.Ours, http2.ErrCodeFlowControl)
		}},
	{Name: "a block in parts of a stream that cannot be", Why: "ours does not wait for the rest of it",
		Is: func(c *http2test.Compared) bool {
			return c.Is(http2.FrameHeaders) && c.Flags&4 == 0 && http2test.EndsConnection(c.Ours) && c.Theirs == ""
		}},
	{Name: "a block in parts", Why: "the library looks at its parts at once, and ends the connection for what is wrong with a stream",
		Is: func(c *http2test.Compared) bool {
			return (c.Is(http2.FrameHeaders) || c.Is(http2.FrameContinuation)) && c.Flags&4 == 0 && !http2test.EndsConnection(c.Ours) && http2test.EndsConnection(c.Theirs)
		}},
	{Name: "a length with 204 or 304", Why: "there is no body that could be shorter (RFC 9110, 8.6 and 15.4.5)",
		Is: func(c *http2test.Compared) bool {
			return (strings.Contains(c.Ours, "answer 204 ") || strings.Contains(c.Ours, "answer 304 ")) && strings.Contains(c.Theirs, http2test.Failed)
		}},
	{Name: "the connection after PROTOCOL_ERROR on a stream", Why: "the library uses it no more, and closes it when nothing is left; here others use it",
		Is: func(c *http2test.Compared) bool {
			return strings.Contains(c.Theirs, "0 closed") && !http2test.EndsConnection(c.Ours) && (c.Spoilt || c.Is(http2.FrameRSTStream) || strings.Contains(c.Ours, "RST "))
		}},
	{Name: "a frame of a stream that has ended", Why: "ours looks at frames before it looks for their stream",
		Is: func(c *http2test.Compared) bool {
			return (c.Again || c.Ended) && http2test.EndsConnection(c.Ours) && c.Theirs == ""
		}},
	{Name: "a frame on a stream on which they parted", Why: "what it is to each depends on what came before",
		Is: func(c *http2test.Compared) bool { return c.Parted }},
}

// FuzzClientDifferential compares Portico's client with x/net's. The same frames of a server must cause the same responses, resets and
// ends, or a named difference.
func FuzzClientDifferential(f *testing.F) {
	old := log.Writer()
	log.SetOutput(io.Discard) // x/net's client logs each invalid frame.
	f.Cleanup(func() { log.SetOutput(old) })
	for i, seed := range append(http2test.ServerSeeds(), http2test.ServerAttacks()...) {
		f.Add(seed, uint8(i))
	}
	f.Fuzz(func(t *testing.T, data []byte, kind uint8) {
		steps := http2test.FromServer(data)
		var ours, theirs [][]http2test.Event
		synctest.Test(t, func(*testing.T) { ours = runClient(steps, kind, dialOurs) })
		synctest.Test(t, func(*testing.T) { theirs = runClient(steps, kind, dialLibrary) })
		if unnamed := http2test.Compare(steps, ours, theirs, clientDifferences); unnamed != "" {
			for i, step := range steps {
				t.Logf("%d: %.300s", i+1, step.What)
			}
			t.Errorf("requests %v: unnamed difference, want none or a named one:\n%s", methods[kind%byte(len(methods))], unnamed)
		}
	})
}
