package server

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/dispatch/dispatchtest"
	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/httpengine/httpmsg"
	"portico.dev/internal/pki"
	"portico.dev/internal/request"
	"portico.dev/internal/routetable"
	"portico.dev/internal/transport"
)

// arrived is a request as its bytes arrived at a backend.
type arrived struct {
	method, target string
	fields         []string // "name: value", names in lower case
}

func (a arrived) field(name string) (values []string) {
	for _, f := range a.fields {
		if n, v, _ := strings.Cut(f, ": "); n == name {
			values = append(values, v)
		}
	}
	return values
}

// listenRaw is a backend that reads the bytes without an HTTP library. It speaks one version.
func listenRaw(t *testing.T, set *transport.Set, proto string, serve func(net.Conn)) *transport.Backend {
	t.Helper()
	authority, err := pki.NewAuthority("backends")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := authority.Issue(pki.Leaf{CommonName: "raw", DNSNames: []string{"raw.ns.svc"}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	config := pki.ServerConfig(pair)
	config.NextProtos = []string{proto}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				tc := tls.Server(c, config)
				defer func() { _ = tc.Close() }()
				_ = tc.SetDeadline(time.Now().Add(2 * time.Minute))
				if tc.Handshake() == nil {
					serve(tc)
				}
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); set.Close(); all.Wait() })
	b, err := set.Backend(transport.Spec{
		Name: "ns/raw:443", ServerName: "raw.ns.svc", CABundle: authority.PEM(), LoopbackOK: true,
		Endpoints: []transport.Endpoint{{Address: l.Addr().String()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// readHTTP1 reports each request head that arrives, split at CRLF only, and responds to it.
func readHTTP1(came chan<- arrived) func(net.Conn) {
	return func(c net.Conn) {
		in := bufio.NewReader(c)
		for {
			var head []byte
			for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
				b, err := in.ReadByte()
				if err != nil {
					return
				}
				head = append(head, b)
			}
			lines := strings.Split(strings.TrimSuffix(string(head), "\r\n\r\n"), "\r\n")
			a := arrived{}
			method, rest, _ := strings.Cut(lines[0], " ")
			a.method, a.target = method, strings.TrimSuffix(rest, " HTTP/1.1")
			for _, line := range lines[1:] {
				name, value, _ := strings.Cut(line, ": ")
				a.fields = append(a.fields, strings.ToLower(name)+": "+value)
			}
			came <- a
			if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err != nil {
				return
			}
		}
	}
}

// readHTTP2 does the same for HTTP/2.
func readHTTP2(came chan<- arrived) func(net.Conn) {
	return func(c net.Conn) {
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(c, preface); err != nil {
			return
		}
		f := http2.NewFramer(c, c)
		decoder := hpack.NewDecoder(4096, nil)
		if f.WriteSettings() != nil {
			return
		}
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if !frame.IsAck() && f.WriteSettingsAck() != nil {
					return
				}
			case *http2.PingFrame:
				if !frame.IsAck() && f.WritePing(true, frame.Data) != nil {
					return
				}
			case *http2.HeadersFrame:
				fields, err := decoder.DecodeFull(frame.HeaderBlockFragment())
				if err != nil {
					return
				}
				a := arrived{}
				for _, field := range fields {
					switch field.Name {
					case ":method":
						a.method = field.Value
					case ":path":
						a.target = field.Value
					default:
						a.fields = append(a.fields, field.Name+": "+field.Value)
					}
				}
				came <- a
				var block bytes.Buffer
				_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
				if f.WriteHeaders(http2.HeadersFrameParam{StreamID: frame.StreamID, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}) != nil {
					return
				}
			}
		}
	}
}

// sending is a client that writes the given request and returns the result: a status code, or "reset" and the error code.
type sending interface {
	send(t *testing.T, method, target, host, name, value string) string
}

type sendingHTTP1 struct {
	l    *listening
	conn *tls.Conn
	in   *bufio.Reader
}

func (s *sendingHTTP1) send(t *testing.T, method, target, host, name, value string) string {
	if s.conn == nil {
		conn, err := tls.Dial("tcp", s.l.address, &tls.Config{RootCAs: s.l.roots, NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
		s.conn, s.in = conn, bufio.NewReader(conn)
	}
	text := method + " " + target + " HTTP/1.1\r\nHost: " + host + "\r\nTest-User: alice\r\n" + name + ": " + value + "\r\n\r\n"
	if _, err := io.WriteString(s.conn, text); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(s.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	if res.Close {
		_ = s.conn.Close()
		s.conn = nil
	}
	return fmt.Sprint(res.StatusCode)
}

type sendingHTTP2 struct {
	l *listening
	a *attacker
}

func (s *sendingHTTP2) send(t *testing.T, method, target, host, name, value string) string {
	if s.a != nil && s.a.stream > 300 { // a connection is closed after more broken streams
		_ = s.a.conn.Close()
		s.a = nil
	}
	if s.a == nil {
		s.a = s.l.attack(t)
		_ = s.a.conn.SetDeadline(time.Now().Add(2 * time.Minute))
	}
	a := s.a
	a.block.Reset()
	for _, f := range [][2]string{{":method", method}, {":scheme", "https"}, {":authority", host}, {":path", target}, {"test-user", "alice"}, {name, value}} {
		_ = a.encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true})
	}
	id := a.stream
	a.stream += 2
	if err := a.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: a.block.Bytes(), EndHeaders: true, EndStream: true}); err != nil {
		t.Fatal(err)
	}
	said := ""
	for {
		frame, err := a.ReadFrame()
		if err != nil {
			t.Fatalf("reading the response of stream %d failed: %v, want a frame", id, err)
		}
		if frame, ok := frame.(*http2.GoAwayFrame); ok {
			defer func() { _ = a.conn.Close(); s.a = nil }()
			if frame.LastStreamID < id {
				t.Fatalf("last stream in GOAWAY = %d, want at least %d", frame.LastStreamID, id)
			}
		}
		if frame.Header().StreamID != id {
			continue
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			said = frame.PseudoValue("status")
		case *http2.RSTStreamFrame:
			if said == "" {
				return "reset " + frame.ErrCode.String()
			}
			return said
		}
		if frame.Header().Flags.Has(http2.FlagDataEndStream) {
			return said
		}
	}
}

// A16, A18, A19: each byte in each element, from either version of HTTP to a backend that speaks the other. A byte outside the tables
// is rejected and reaches no backend. A byte in the tables arrives unchanged, in one request.
func TestA19ByteOutsideElementTableIsRejected(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, way := range []struct {
		name, proto string
		read        func(chan<- arrived) func(net.Conn)
		from        func(*listening) sending
	}{
		{"HTTP2 to an HTTP1 backend", "http/1.1", readHTTP1, func(l *listening) sending { return &sendingHTTP2{l: l} }},
		{"HTTP1 to an HTTP2 backend", "h2", readHTTP2, func(l *listening) sending { return &sendingHTTP1{l: l} }},
	} {
		t.Run(way.name, func(t *testing.T) {
			b := newBench("alice *")
			came := make(chan arrived, 16)
			set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
			route := routetable.Route{
				GroupVersion: schema.GroupVersion{Group: "up.example.com", Version: "v1"}, Name: "v1.up.example.com",
				Backend: listenRaw(t, set, way.proto, way.read(came)), Condition: dispatchtest.Condition(apiregistrationv1.ConditionTrue, "Passed", ""),
			}
			table := routetable.NewTable([]*routetable.Route{&route}, true)
			b.handler = routerOf(table).build().ServeHTTP
			l := b.listen(t, time.Second)
			client := way.from(l)
			overHTTP1 := way.proto == "h2"
			for c := range 256 {
				x := "a" + string([]byte{byte(c)}) + "b"
				visible := c > ' ' && c < 0x7f
				token := visible && !strings.ContainsRune("\"(),/:;<=>?@[\\]{}", rune(c))
				for _, test := range []struct {
					element                           string
					method, target, host, name, value string
					may                               bool // arrive
				}{
					{"method", "GE" + string([]byte{byte(c)}) + "T", foo, "h", "x", "y", token},
					{"path", "GET", foo + x, "h", "x", "y", visible && httpmsg.CheckPath(pathOf(foo+x)) == nil},
					{"query", "GET", foo + "?" + x, "h", "x", "y", visible && httpmsg.CheckQuery(x) == nil},
					{"authority", "GET", foo, x, "x", "y", visible && httpmsg.CheckAuthority(x) == nil},
					{"name", "GET", foo, "h", x, "y", token && (overHTTP1 || c < 'A' || c > 'Z') || overHTTP1 && c == ':'},
					{"value", "GET", foo, "h", "x", x, c >= ' ' && c != 0x7f || c == '\t'},
				} {
					what := fmt.Sprintf("0x%02x in the %s", c, test.element)
					if strings.HasPrefix(test.element, "path") || test.element == "query" {
						path, query, _ := strings.Cut(test.target, "?")
						test.may = test.may && request.CheckTarget(path, query) == nil
					}
					said := client.send(t, test.method, test.target, test.host, test.name, test.value)
					if !test.may {
						if said != "400" && (overHTTP1 || !strings.HasPrefix(said, "reset PROTOCOL_ERROR")) {
							t.Errorf("response to %s = %s, want 400 or a reset with PROTOCOL_ERROR", what, said)
						}
						if len(came) > 0 {
							t.Fatalf("the backend received %+v for %s, want no request", <-came, what)
						}
						continue
					}
					if said != "200" && test.element == "method" { // the chain may not support it
						continue
					}
					if said != "200" || len(came) != 1 {
						t.Fatalf("response to %s = %s with %d requests at the backend, want 200 and 1", what, said, len(came))
					}
					a := <-came
					name, value := strings.ToLower(test.name), test.value
					if before, after, cut := strings.Cut(test.name, ":"); cut {
						name, value = before, after+": "+value
					}
					if a.method != test.method || a.target != test.target || !slices.Equal(a.field("x-forwarded-host"), []string{test.host}) ||
						!slices.Equal(a.field(name), []string{value}) {
						t.Errorf("%s arrived as %+v, want method %q, target %q, host %q and %q with the value %q", what, a, test.method, test.target, test.host, name, value)
					}
				}
			}
			if e := route.Backend.Report().Endpoints[0]; e.State != "well" || e.LastFailure != "" || e.Ejections > 0 {
				t.Errorf("endpoint after the requests = %+v, want the state well without failures and ejections", e)
			}
		})
	}
}

func pathOf(target string) string {
	path, _, _ := strings.Cut(target, "?")
	return path
}
