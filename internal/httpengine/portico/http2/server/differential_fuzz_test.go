package server

import (
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"

	"portico.dev/internal/httpengine/httpmsg"
	"portico.dev/internal/httpengine/portico/http2/http2test"
)

// serverRun contains a server's events at each step and the requests that its handler received.
type serverRun struct {
	events [][]http2test.Event
	seen   []string
}

// observedHandler responds according to the path and records the request.
func observedHandler(note func(string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request := describe(r)
		note(request)
		switch r.URL.Path {
		case "/now":
			_, _ = io.WriteString(w, "now")
			return
		case "/wait":
			<-r.Context().Done()
			return
		case "/large":
			_, _ = w.Write(make([]byte, 100_000))
			return
		case "/early":
			w.WriteHeader(http.StatusEarlyHints)
		case "/trailers":
			w.Header().Set("Trailer", "X-Sum")
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		_, _ = fmt.Fprintf(w, "%s body %s trailer %s", request, shown(body), sorted(r.Trailer))
		w.Header().Set("X-Sum", fmt.Sprint(len(body)))
	})
}

// shown describes a body. The description is short, so that no client window truncates it before the responses differ.
func shown(body []byte) string {
	if len(body) > 1000 {
		return fmt.Sprintf("of %d bytes, %x", len(body), sha256.Sum256(body))
	}
	return fmt.Sprintf("%q", body)
}

func describe(r *http.Request) string {
	return fmt.Sprintf("%s %q %q host %q length %d header %s trailer %s", r.Method, r.RequestURI, r.URL, r.Host, r.ContentLength, sorted(r.Header), sorted(r.Trailer))
}

func sorted(h http.Header) string {
	var all []string
	for name, values := range h {
		if name == "Host" {
			continue // x/net's server removes it in addition to :authority. net/http's and Portico's do not.
		}
		all = append(all, fmt.Sprintf("%q=%q", name, values))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// fuzzTimeout is longer than a server may take to close a failed connection and shorter than its other timeouts.
const fuzzTimeout = 4 * time.Second

// runFrames sends frames to a server, each after the effects of the previous one are complete. It is called in a bubble.
func runFrames(steps []http2test.Step, serve func(net.Conn, http.Handler)) (run serverRun) {
	var mu sync.Mutex
	handler := observedHandler(func(s string) {
		mu.Lock()
		defer mu.Unlock()
		run.seen = append(run.seen, s)
	})
	ours, theirs := net.Pipe()
	var record http2test.Record
	var all sync.WaitGroup
	all.Go(func() { serve(ours, handler) })
	all.Go(func() { record.Read(theirs) })
	say := func(p []byte) bool {
		_ = theirs.SetWriteDeadline(time.Now().Add(fuzzTimeout))
		_, err := theirs.Write(p)
		synctest.Wait()
		run.events = append(run.events, record.Take())
		return err == nil
	}
	if say([]byte(http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00")) {
		for _, step := range steps {
			if !say(step.Bytes) {
				break
			}
		}
	}
	time.Sleep(fuzzTimeout)
	synctest.Wait()
	run.events = append(run.events, record.Take())
	_ = theirs.Close()
	all.Wait()
	synctest.Wait()
	return run
}

// serveOurs and serveLibrary serve one connection with the same limits.
func serveOurs(c net.Conn, h http.Handler) {
	s := New(Config{Handler: h, MaxConcurrentStreams: 3})
	s.begin(c, c, nil)()
	s.pool.close()
}

func serveLibrary(c net.Conn, h http.Handler) {
	hs := &http.Server{Handler: h, MaxHeaderBytes: 64 << 10, ErrorLog: log.New(io.Discard, "", 0)}
	//lint:ignore SA1019 x/net's own server, while there is one, is what this is held to
	s := &http2.Server{MaxConcurrentStreams: 3, MaxReadFrameSize: 16 << 10, MaxUploadBufferPerConnection: 1 << 20, MaxUploadBufferPerStream: 1 << 20}
	//lint:ignore SA1019 as above
	if http2.ConfigureServer(hs, s) != nil {
		panic("the library's server cannot be configured")
	}
	//lint:ignore SA1019 as above
	s.ServeConn(c, &http2.ServeConnOpts{BaseConfig: hs, Handler: h})
}

// serveBundled serves with net/http's copy.
func serveBundled(c net.Conn, h http.Handler) {
	s := &http.Server{
		Handler: h, MaxHeaderBytes: 64 << 10, ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols), DisableGeneralOptionsHandler: true,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 3, MaxReadFrameSize: 16 << 10, MaxReceiveBufferPerConnection: 1 << 20, MaxReceiveBufferPerStream: 1 << 20},
	}
	s.Protocols.SetUnencryptedHTTP2(true)
	l := &oneConn{conn: make(chan net.Conn, 1)}
	watched := &watchedConn{Conn: c, closed: make(chan struct{})}
	l.conn <- watched
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	<-watched.closed
	close(l.conn)
	<-done
}

// oneConn is a listener with one existing connection.
type oneConn struct{ conn chan net.Conn }

// Accept implements net.Listener.
func (l *oneConn) Accept() (net.Conn, error) {
	if c, ok := <-l.conn; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (l *oneConn) Close() error { return nil }

// Addr implements net.Listener.
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

type watchedConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

// Close implements net.Conn.
func (c *watchedConn) Close() error {
	defer c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// refuses reports whether a server answered a request with this status without calling its handler.
func refuses(did string, status int) bool {
	return strings.Contains(did, fmt.Sprintf(" headers :status=%d", status))
}

// continued reports whether a server sent 100 (Continue).
func continued(did string) bool { return strings.Contains(did, "headers :status=100") }

var quoted = regexp.MustCompile(`(body )?"(?:[^"\\]|\\.)*"`)

// asOursReads normalizes responses of servers that parse these values differently.
func asOursReads(did string) string {
	// RFC 9110, 5.5: whitespace around a value is not part of it. net/http removes it in HTTP/1.1 only.
	did = quoted.ReplaceAllStringFunc(did, func(q string) string {
		if text, err := strconv.Unquote(q); err == nil {
			return strconv.Quote(strings.Trim(text, " \t"))
		}
		return q // a body
	})
	// RFC 9110, 5.6.1.2: empty list elements, as in Trailer, are ignored. net/http treats an empty element as a name.
	return strings.Join(strings.Fields(strings.ReplaceAll(did, ` trailer ""=[]`, " trailer")), " ")
}

var fieldName = regexp.MustCompile(`"([^" ]+)"=`)

// mustNotBeTrailers reports whether the description of a block contains a field that is not allowed as a trailer.
func mustNotBeTrailers(what string) bool {
	return slices.ContainsFunc(fieldName.FindAllStringSubmatch(what, -1), func(m []string) bool { return !httpguts.ValidTrailerHeader(http.CanonicalHeaderKey(m[1])) })
}

// serverDifferences are the intended differences.
var serverDifferences = []http2test.Difference{
	{Name: "the connection is given up with another code", Why: "more than one thing is wrong, or RFC 9113, 5.4 leaves it open",
		Is: func(c *http2test.Compared) bool {
			return http2test.EndsConnection(c.Ours) && http2test.EndsConnection(c.Theirs)
		}},
	{Name: "a header block in too many frames", Why: "CVE-2023-45288: their number is bounded (wire.Block), to the library their bytes are",
		Is: func(c *http2test.Compared) bool {
			return (c.Is(http2.FrameHeaders) || c.Is(http2.FrameContinuation)) && http2test.EndsConnection(c.Ours, http2.ErrCodeEnhanceYourCalm)
		}},
	{Name: "a frame that is not whole", Why: "ours reads all of it before it looks at it",
		Is: func(c *http2test.Compared) bool {
			return c.Ours == "" && len(c.Bytes) >= 9 && len(c.Bytes) < 9+c.Length
		}},
	{Name: "padding as long as HEADERS", Why: "RFC 9113, 6.2 asks for an error of the connection; the library resets the stream",
		Is: func(c *http2test.Compared) bool {
			return c.Is(http2.FrameHeaders) && http2test.EndsConnection(c.Ours, http2.ErrCodeProtocol) && http2test.Resets(c.Theirs, http2.ErrCodeProtocol) && c.Flags&8 != 0
		}},
	{Name: "HEADERS that depend on themselves", Why: "RFC 7540, 5.3.1 leaves the connection to us; the library reads no priority",
		Is: func(c *http2test.Compared) bool {
			return c.Is(http2.FrameHeaders) && http2test.EndsConnection(c.Ours, http2.ErrCodeProtocol) && c.Flags&0x20 != 0
		}},
	{Name: "a request that the rule table refuses", Why: "ours answers 400 with what is wrong, the library takes it, or resets the stream",
		Is: func(c *http2test.Compared) bool { return c.Is(http2.FrameHeaders) && refuses(c.Ours, 400) }},
	{Name: "a request with a wrong length", Why: "CVE-2021-21409: ours resets a stream whose body is not as long as it says",
		Is: func(c *http2test.Compared) bool {
			return http2test.Resets(c.Ours, http2.ErrCodeProtocol) && strings.Contains(c.What, "content-length")
		}},
	{Name: "a body that is not as long as Content-Length says", Why: "ours resets the stream, the library lets the handler find out",
		Is: func(c *http2test.Compared) bool {
			unread := c.Theirs == "" && (c.Is(http2.FrameData) || c.Is(http2.FrameHeaders) && c.Flags&1 != 0 && !strings.Contains(c.What, ":method"))
			return http2test.Resets(c.Ours, http2.ErrCodeProtocol) && (unread || strings.Contains(c.Theirs, "headers :status=418"))
		}},
	{Name: "a stream is reset with another code", Why: "more than one thing is wrong with the frame",
		Is: func(c *http2test.Compared) bool { return http2test.Resets(c.Ours) && http2test.Resets(c.Theirs) }},
	{Name: "a frame on a stream that was reset", Why: "what was on its way is nothing wrong (RFC 9113, 5.1), and a stream whose HEADERS were malformed has begun",
		Is: func(c *http2test.Compared) bool { return c.Again && c.Ours == "" }},
	{Name: "HEADERS on a stream that is older than one whose HEADERS were malformed", Why: "that one has begun all the same (RFC 9113, 5.1.1)",
		Is: func(c *http2test.Compared) bool {
			return c.Again && c.Is(http2.FrameHeaders) && http2test.EndsConnection(c.Ours, http2.ErrCodeProtocol)
		}},
	{Name: "PRIORITY on an idle stream with something wrong in it", Why: "a stream that has not begun cannot be reset (RFC 9113, 6.3 and 6.4)",
		Is: func(c *http2test.Compared) bool { return c.Is(http2.FramePriority) && c.Ours == "" }},
	{Name: "PRIORITY_UPDATE", Why: "RFC 9218 is not spoken here: what nobody knows is ignored",
		Is: func(c *http2test.Compared) bool { return c.Type == 0x10 && c.Ours == "" }},
	{Name: "a frame on a stream on which they parted", Why: "what it is to each depends on what came before",
		Is: func(c *http2test.Compared) bool { return c.Parted }},
	{Name: "HEADERS on a stream that cannot be, whose block is not whole", Why: "ours does not wait for the rest of it",
		Is: func(c *http2test.Compared) bool {
			return c.Is(http2.FrameHeaders) && c.Flags&4 == 0 && http2test.EndsConnection(c.Ours) && c.Theirs == ""
		}},
	{Name: "HEADERS with something wrong in them on a stream that cannot be", Why: "an error of the connection, which the library takes for one of the stream",
		Is: func(c *http2test.Compared) bool {
			return c.Is(http2.FrameHeaders) && http2test.EndsConnection(c.Ours) && http2test.Resets(c.Theirs, http2.ErrCodeProtocol)
		}},
	{Name: "Host beside :authority", Why: "the chain refuses what differs (server/filters.go); x/net resets the stream, or takes Host away, net/http does neither",
		Is: func(c *http2test.Compared) bool {
			return c.Is(http2.FrameHeaders) && strings.Contains(c.What, `"host"=`)
		}},
	{Name: "100 (Continue)", Why: "the library says it to a request without a body too, and not after another interim answer",
		Is: func(c *http2test.Compared) bool {
			return strings.Contains(c.What, `"expect"="100-continue"`) && continued(c.Ours) != continued(c.Theirs)
		}},
	{Name: "a block that is not whole", Why: "the library decodes what there is of it",
		Is: func(c *http2test.Compared) bool {
			return (c.Is(http2.FrameHeaders) || c.Is(http2.FrameContinuation)) && c.Ours == "" && http2test.EndsConnection(c.Theirs) && c.Flags&4 == 0
		}},
	{Name: "something wrong in a part of a block before its last", Why: "RFC 9113, 8.1.1: ours reads the rest and resets the stream, the library ends the connection",
		Is: func(c *http2test.Compared) bool {
			parts := c.Is(http2.FrameHeaders) && c.Flags&4 == 0 || c.Is(http2.FrameContinuation)
			return parts && http2test.Resets(c.Ours) && http2test.EndsConnection(c.Theirs, http2.ErrCodeProtocol)
		}},
	{Name: "PRIORITY of another length", Why: "RFC 9113, 6.3 asks for an error of the stream",
		Is: func(c *http2test.Compared) bool {
			return c.Is(http2.FramePriority) && http2test.Resets(c.Ours, http2.ErrCodeFrameSize) && http2test.EndsConnection(c.Theirs, http2.ErrCodeFrameSize)
		}},
	{Name: "a frame on a stream that has ended", Why: "ours knows that it has begun; the library does not when its HEADERS were malformed",
		Is: func(c *http2test.Compared) bool {
			return c.Again && http2test.Resets(c.Ours, http2.ErrCodeStreamClosed) && http2test.EndsConnection(c.Theirs, http2.ErrCodeProtocol)
		}},
	{Name: "a path that is a URL", Why: "RFC 9113, 8.3.1: it begins with a slash",
		Is: func(c *http2test.Compared) bool {
			return http2test.Resets(c.Ours, http2.ErrCodeProtocol) && strings.Contains(c.What, `":path"="https://`)
		}},
	{Name: "windows and streams that are used up", Why: "by streams on which they parted",
		Is: func(c *http2test.Compared) bool {
			return c.Others && (strings.Contains(c.Ours+c.Theirs, " data ") || http2test.Resets(c.Ours, http2.ErrCodeRefusedStream) || http2test.Resets(c.Theirs, http2.ErrCodeRefusedStream) ||
				http2test.EndsConnection(c.Ours+c.Theirs, http2.ErrCodeFlowControl))
		}},
	{Name: "what the library's handler sees otherwise", Why: "asOursReads has the reasons, one by one",
		Is: func(c *http2test.Compared) bool {
			return asOursReads(c.Ours) == asOursReads(c.Theirs)
		}},
	{Name: "one setting twice in a frame", Why: "RFC 9113, 6.5.3 has the values processed in order",
		Is: func(c *http2test.Compared) bool {
			return c.Is(http2.FrameSettings) && c.Ours == "" && http2test.EndsConnection(c.Theirs, http2.ErrCodeProtocol) && http2test.Twice(c.Bytes[9:])
		}},
	{Name: "NO_RFC7540_PRIORITIES that is neither 0 nor 1", Why: "RFC 9218, 2.1; net/http does not know the setting",
		Is: func(c *http2test.Compared) bool {
			return c.Is(http2.FrameSettings) && http2test.EndsConnection(c.Ours, http2.ErrCodeProtocol) && strings.Contains(c.What, "NO_RFC7540_PRIORITIES=")
		}},
	{Name: "a field that is longer than all of a block may be", Why: "it is answered 431 (RFC 6585, 5), or its stream reset if the answer has begun; to the library HPACK is at fault",
		Is: func(c *http2test.Compared) bool {
			return c.Is(http2.FrameHeaders) && strings.Contains(c.What, `"x-longest"=`) && http2test.EndsConnection(c.Theirs, http2.ErrCodeCompression) &&
				(refuses(c.Ours, 431) || http2test.Resets(c.Ours, http2.ErrCodeEnhanceYourCalm))
		}},
	{Name: "too many trailers", Why: "a bound of the rule table (RFC 9110, 6.5)",
		Is: func(c *http2test.Compared) bool {
			return c.Is(http2.FrameHeaders) && !strings.Contains(c.What, `":`) && http2test.Resets(c.Ours, http2.ErrCodeProtocol) &&
				len(fieldName.FindAllString(c.What, -1)) > httpmsg.MaxTrailers
		}},
	{Name: "trailers that must not be", Why: "RFC 9110, 6.5.1: ours drops them, the library resets the stream of a request that announced any",
		Is: func(c *http2test.Compared) bool {
			return c.Is(http2.FrameHeaders) && !strings.Contains(c.What, `":`) && mustNotBeTrailers(c.What) && !http2test.EndsConnection(c.Ours) &&
				!http2test.Resets(c.Ours) && http2test.Resets(c.Theirs, http2.ErrCodeProtocol)
		}},
	{Name: "WINDOW_UPDATE of nothing on an idle stream", Why: "an error of the connection (RFC 9113, 5.1), which the library takes for one of the stream",
		Is: func(c *http2test.Compared) bool {
			return c.Is(http2.FrameWindowUpdate) && http2test.EndsConnection(c.Ours, http2.ErrCodeProtocol) && http2test.Resets(c.Theirs)
		}},
}

// FuzzServerDifferential compares Portico's server with x/net's. The same frames must cause the same responses, resets and ends, or a
// named difference. bundled selects net/http's copy of x/net's server.
func FuzzServerDifferential(f *testing.F) {
	for _, seed := range append(http2test.ClientSeeds(), http2test.ClientAttacks()...) {
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, data []byte, bundled bool) {
		steps := http2test.FromClient(data)
		library := serveLibrary
		if bundled {
			library = serveBundled
		}
		var ours, theirs serverRun
		synctest.Test(t, func(*testing.T) { ours = runFrames(steps, serveOurs) })
		synctest.Test(t, func(*testing.T) { theirs = runFrames(steps, library) })
		if unnamed := http2test.Compare(steps, ours.events, theirs.events, serverDifferences); unnamed != "" {
			for i, step := range steps {
				t.Logf("%d: %.300s", i+1, step.What)
			}
			t.Errorf("unnamed difference, want none or a named one:\n%s", unnamed)
		}
	})
}
