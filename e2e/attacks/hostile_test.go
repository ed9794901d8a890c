package attacks

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bench "portico.dev/e2e/environment"
)

// hostile is the set of the attacker's extension servers: one port of HTTP/2 and one of HTTP/1.1, without an HTTP library. They
// serve valid discovery documents, so that they are available. The attack handles requests for the name attack.
type hostile struct {
	config *tls.Config
	listen [2]net.Listener
	now    atomic.Pointer[attackRun]
}

// attackedName is the name of the object that the attack serves.
const attackedName = "attack"

func newHostile(o orders) (*hostile, error) {
	pair, err := tls.X509KeyPair(o.Certificate, o.Key)
	if err != nil {
		return nil, err
	}
	nul := pair
	if len(o.NULServices) > 0 {
		if nul, err = tls.X509KeyPair(o.NULCertificate, o.NULKey); err != nil {
			return nil, err
		}
	}
	h := &hostile{config: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if service, _, _ := strings.Cut(hello.ServerName, "."); slices.Contains(o.NULServices, service) {
			return &nul, nil
		}
		return &pair, nil
	}}}
	for i, serve := range []func(*tls.Conn){h.serve2, h.serve1} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		h.listen[i] = l
		config := h.config.Clone()
		config.NextProtos = [][]string{{"h2"}, {"http/1.1"}}[i]
		go func() {
			for {
				raw, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					conn := tls.Server(raw, config)
					_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
					if conn.Handshake() == nil {
						_ = conn.SetDeadline(time.Time{})
						serve(conn)
					}
					_ = raw.Close()
				}()
			}
		}()
	}
	return h, nil
}

func (h *hostile) ports() string {
	return fmt.Sprint(h.listen[0].Addr().(*net.TCPAddr).Port, " ", h.listen[1].Addr().(*net.TCPAddr).Port)
}

func (h *hostile) under(a *attackRun) { h.now.Store(a) }

// service returns the name of the Service that an attack needs, "" if none, and the index of its port.
func (a *attackRow) service() (string, int) {
	switch {
	case a.h2 != nil:
		return fmt.Sprintf("hostile-%d", a.number()), 0
	case a.h1 != nil:
		return fmt.Sprintf("hostile-%d", a.number()), 1
	case a.beside > 0:
		return fmt.Sprintf("mirror-%d", a.beside), a.beside % 2 // 2: HTTP/2, 1: HTTP/1.1
	}
	return "", 0
}

func (a *attackRow) number() int {
	for i, other := range rowsOfAll() {
		if other.name == a.name {
			return i
		}
	}
	return -1
}

// path returns the path of the collection behind that Service.
func (a *attackRow) path() string {
	service, _ := a.service()
	return "/apis/" + bench.GroupOf(service) + "/v1/namespaces/" + bench.Namespace + "/" + bench.Resource
}

// document returns a discovery document, or false if the path has none.
func document(service, path, accept string) ([]byte, string, bool) {
	group := bench.GroupOf(service)
	verbs := []string{"get", "create", "list", "watch"}
	var answer any
	kind := "application/json"
	switch {
	case path == "/apis/"+group+"/v1":
		answer = metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: group + "/v1",
			APIResources: []metav1.APIResource{{Name: bench.Resource, SingularName: "thing", Namespaced: true, Kind: "Thing", Verbs: verbs}},
		}
	case path == "/apis" && strings.Contains(accept, "APIGroupDiscoveryList"):
		kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
		answer = apidiscoveryv2.APIGroupDiscoveryList{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
			Items: []apidiscoveryv2.APIGroupDiscovery{{ObjectMeta: metav1.ObjectMeta{Name: group}, Versions: []apidiscoveryv2.APIVersionDiscovery{{
				Version: "v1", Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Resources: []apidiscoveryv2.APIResourceDiscovery{{
					Resource: bench.Resource, SingularResource: "thing", Scope: apidiscoveryv2.ScopeNamespace, Verbs: verbs,
					ResponseKind: &metav1.GroupVersionKind{Group: group, Version: "v1", Kind: "Thing"},
				}}}}}},
		}
	default:
		return nil, "", false
	}
	text, err := json.Marshal(answer)
	return text, kind, err == nil
}

// hostile2 is a connection of HTTP/2 from the front door.
type hostile2 struct {
	h       *hostile
	a       *attackRun
	conn    *tls.Conn
	service string

	mu      sync.Mutex // guards the following fields
	framer  *http2.Framer
	out     bytes.Buffer
	encoder *hpack.Encoder
	block   bytes.Buffer
	frames  int64
	gone    chan struct{}
	resets  atomic.Int64
}

func serviceOf(conn *tls.Conn) string {
	service, _, _ := strings.Cut(conn.ConnectionState().ServerName, ".")
	return service
}

func (h *hostile) serve2(conn *tls.Conn) {
	c := &hostile2{h: h, conn: conn, service: serviceOf(conn), gone: make(chan struct{})}
	c.framer = http2.NewFramer(&c.out, nil)
	c.framer.AllowIllegalWrites = true
	c.encoder = hpack.NewEncoder(&c.block)
	defer close(c.gone)
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(conn, preface); err != nil {
		return
	}
	_ = c.tell(func(f *http2.Framer) {
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 100})
	})
	in := http2.NewFramer(nil, conn)
	in.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	in.MaxHeaderListSize = 1 << 20
	for {
		frame, err := in.ReadFrame()
		if err != nil {
			break
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = c.tell(func(w *http2.Framer) { _ = w.WriteSettingsAck() })
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = c.tell(func(w *http2.Framer) { _ = w.WritePing(true, f.Data) })
			}
		case *http2.RSTStreamFrame:
			c.resets.Add(1)
		case *http2.GoAwayFrame:
			if a := h.now.Load(); a != nil && c.a == a && f.ErrCode != http2.ErrCodeNo {
				a.came("GOAWAY %s", f.ErrCode)
			}
		case *http2.DataFrame:
			if n := f.Header().Length; n > 0 {
				_ = c.tell(func(w *http2.Framer) { _ = w.WriteWindowUpdate(0, n) })
			}
		case *http2.MetaHeadersFrame:
			c.request(f)
		}
	}
}

func (c *hostile2) request(f *http2.MetaHeadersFrame) {
	path, _, _ := strings.Cut(f.PseudoValue("path"), "?")
	var accept, user string
	for _, field := range f.RegularFields() {
		switch field.Name {
		case "accept":
			accept = field.Value
		case "x-remote-user":
			user = field.Value
		}
	}
	if a := c.h.now.Load(); a != nil && strings.HasSuffix(path, "/"+attackedName) {
		if c.a == nil { // each attack has a separate extension server, so that this does not change
			c.a = a
		}
		switch {
		case a.row.h2 != nil:
			go a.row.h2(c, f.StreamID)
			if a.row.deaf {
				a.rest()
			}
		default:
			c.h.mirror(a, f.PseudoValue("method"), path, user)
			_ = c.answer(f.StreamID, "200", "application/json", "{}")
		}
		return
	}
	text, kind, ok := document(c.service, path, accept)
	if !ok {
		_ = c.answer(f.StreamID, "404", "text/plain", "no such thing")
		return
	}
	_ = c.answer(f.StreamID, "200", kind, string(text))
}

// mirror checks a request as an extension server does.
func (h *hostile) mirror(a *attackRun, method, path, user string) {
	if strings.Contains(path, "smuggled") || method == "SMUGGLED" {
		a.fault("the extension server was asked for %s %s, which nobody sent as a request", method, path)
	}
	if user != attackerName {
		a.fault("the extension server was told that %q asks for %s", user, path)
	}
}

// tell writes frames together.
func (c *hostile2) tell(do func(*http2.Framer)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	do(c.framer)
	n := 0
	for b := c.out.Bytes(); len(b) >= 9; n++ {
		b = b[min(len(b), 9+(int(b[0])<<16|int(b[1])<<8|int(b[2]))):]
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(time.Second))
	written, err := c.conn.Write(c.out.Bytes())
	c.out.Reset()
	if err == nil {
		c.frames += int64(n)
		if c.a != nil {
			c.a.sent(n, written)
			c.a.mostOf(c.frames)
		}
	}
	return err
}

// fields returns an encoded block of these fields; only within tell.
func (c *hostile2) fields(pairs ...string) []byte {
	c.block.Reset()
	for i := 0; i+1 < len(pairs); i += 2 {
		_ = c.encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return bytes.Clone(c.block.Bytes())
}

func (c *hostile2) headers(f *http2.Framer, id uint32, end bool, pairs ...string) {
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.fields(pairs...), EndHeaders: true, EndStream: end})
}

func (c *hostile2) answer(id uint32, status, kind, body string) error {
	return c.tell(func(f *http2.Framer) {
		c.headers(f, id, false, ":status", status, "content-type", kind)
		for rest := []byte(body); ; {
			part := rest[:min(len(rest), 16_000)]
			rest = rest[len(part):]
			_ = f.WriteData(id, len(rest) == 0, part)
			if len(rest) == 0 {
				return
			}
		}
	})
}

// flood writes frames until the time is over or the peer stops reading.
func (c *hostile2) flood(each func(f *http2.Framer)) {
	for !c.a.over() {
		err := c.tell(func(f *http2.Framer) {
			for c.out.Len() < pieces {
				each(f)
			}
		})
		if err != nil {
			return
		}
	}
}

// hostile1 is a request over HTTP/1.1 from the front door.
type hostile1 struct {
	*http.Request
	a    *attackRun
	conn *tls.Conn
	in   *bufio.Reader
	// keep reports whether further requests may follow on the connection, if the attack leaves it open.
	keep bool
}

// say writes bytes, and counts a message.
func (c *hostile1) say(text string) error {
	_ = c.conn.SetWriteDeadline(time.Now().Add(time.Second))
	n, err := io.WriteString(c.conn, text)
	if err == nil {
		c.a.sent(1, n)
	}
	return err
}

func (h *hostile) serve1(conn *tls.Conn) {
	in := bufio.NewReader(conn)
	service := serviceOf(conn)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		a := h.now.Load()
		if a != nil && strings.Contains(r.URL.Path, "smuggled") {
			a.fault("the extension server was asked for %s %s, which nobody sent as a request", r.Method, r.URL.Path)
		}
		if a != nil && strings.HasSuffix(r.URL.Path, "/"+attackedName) {
			if a.row.h1 != nil {
				c := &hostile1{Request: r, a: a, conn: conn, in: in}
				a.row.h1(c)
				if !c.keep {
					return
				}
				continue
			}
			_, _ = io.Copy(io.Discard, r.Body)
			h.mirror(a, r.Method, r.URL.Path, r.Header.Get("X-Remote-User"))
			for _, name := range sortedKeys(r.Header) {
				if folded := strings.NewReplacer("_", "-", ".", "-").Replace(name); folded != name && strings.HasPrefix(strings.ToLower(folded), "x-remote-") {
					a.fault("the extension server was sent %s", name)
				}
			}
			if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
				return
			}
			continue
		}
		_, _ = io.Copy(io.Discard, r.Body)
		text, kind, ok := document(service, r.URL.Path, r.Header.Get("Accept"))
		status := "200 OK"
		if !ok {
			status, kind, text = "404 Not Found", "text/plain", []byte("no such thing")
		}
		if _, err := fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", status, kind, len(text), text); err != nil {
			return
		}
	}
}

// victims are clients of the front door that request the extension server's resource: a few in parallel, each at most fifty
// times per second. They belong to the attacker, and their responses are the result of the attack.
func victims(method string) func(*attackRun) {
	return func(a *attackRun) {
		t := &http.Transport{TLSClientConfig: insecure(), ForceAttemptHTTP2: true, DisableCompression: true}
		defer t.CloseIdleConnections()
		client := &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for !a.over() {
					a.victim(client, method)
					<-time.After(each)
				}
			})
		}
		all.Wait()
	}
}

// victim sends one request.
func (a *attackRun) victim(client *http.Client, method string) {
	ctx, cancel := context.WithDeadline(context.Background(), a.until.Add(300*time.Millisecond))
	defer cancel()
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader(strings.Repeat("x", 1000))
	}
	serial := fmt.Sprint(a.serial.Add(1))
	r, err := http.NewRequestWithContext(ctx, method, "https://"+a.Front+a.row.path()+"/"+attackedName+"?serial="+serial, body)
	if err != nil {
		a.fault("%v", err)
		return
	}
	r.Header.Set("Authorization", "Bearer "+attackerToken)
	resp, err := client.Do(r)
	if err != nil {
		a.came("%s", told(err))
		return
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		if resp.StatusCode != http.StatusOK {
			a.fault("an answer %d of the front door itself was cut short: %v", resp.StatusCode, err)
		}
		a.came("answered: cut short")
		return
	}
	a.came("answered: %d", resp.StatusCode)
	if i := bytes.Index(got, []byte("serial=")); i >= 0 && string(got[i+7:]) != serial {
		a.fault("request %s was given the answer of another: %q", serial, got[i:])
	}
	if resp.Header.Get("X-Smuggled") != "" || bytes.Contains(got, []byte("smuggled")) {
		a.fault("a client got what no server said to it: %v %.100q", resp.Header, got)
	}
}

func told(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "unanswered"
	}
	if strings.Contains(err.Error(), "stream error") {
		return "answered: cut short"
	}
	return "failed: " + brief(err)
}
