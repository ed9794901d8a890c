package simulation

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/pki"
)

// requestHeader is the header with the number of a request. Front doors forward it.
const requestHeader = "Sim-Request"

// requestTimeout bounds a request of a client, in virtual time.
const requestTimeout = 75 * time.Second

// maxAnswer bounds the body of an answer.
const maxAnswer = 8 << 20

// client is a user's connections to one front door.
type client struct {
	world *world
	user  string
	front *front
	tls   *tls.Config
	http  *http.Client
}

// answer is the result of a request.
type answer struct {
	number  int64
	status  int // 0 if err is not nil and no header was received
	header  http.Header
	body    []byte
	err     error
	took    time.Duration
	began   time.Time
	request string // method and path
}

// ok reports whether the request succeeded.
func (a *answer) ok() bool { return a.err == nil && a.status >= 200 && a.status < 300 }

// failure describes the result of a request that has not succeeded.
func (a *answer) failure() error {
	switch {
	case a.err != nil:
		return fmt.Errorf("%s: %w", a.request, a.err)
	case !a.ok():
		return fmt.Errorf("%s: %d: %.300s", a.request, a.status, a.body)
	}
	return nil
}

// client returns the client of a user for a front door.
func (w *world) client(user string, f *front) *client {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := user + "@" + f.name
	if c := w.clients[key]; c != nil {
		return c
	}
	host, config := w.clientHost, w.clientTLS(user)
	transport := &http.Transport{
		DialContext:     func(ctx context.Context, _, address string) (net.Conn, error) { return host.Dial(ctx, address) },
		TLSClientConfig: config.Clone(), ForceAttemptHTTP2: true, DisableCompression: true,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second},
	}
	c := &client{world: w, user: user, front: f, tls: config, http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	w.clients[key] = c
	return c
}

// clientTLS returns the TLS configuration of a user. It is called with mu held.
func (w *world) clientTLS(user string) *tls.Config {
	group := "simulation"
	if user == admin {
		group = "system:masters"
	}
	certificate, key, err := w.keys.ClientKeyPair(user, []string{group}, 100*time.Hour)
	if err != nil {
		w.t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(certificate, key)
	if err != nil {
		w.t.Fatal(err)
	}
	config, err := pki.ClientConfig(pki.ClientOptions{Roots: w.keys.Cluster().PEM(), Certificate: pair})
	if err != nil {
		w.t.Fatal(err)
	}
	config.NextProtos = []string{"h2", "http/1.1"}
	return config
}

// do sends a request with an object as JSON, and reads the answer.
func (c *client) do(ctx context.Context, method, path string, object any) *answer {
	return c.request(ctx, method, path, object, nil)
}

// get sends a GET with a header, and reads the answer.
func (c *client) get(ctx context.Context, path string, header http.Header) *answer {
	return c.request(ctx, http.MethodGet, path, nil, header)
}

func (c *client) request(ctx context.Context, method, path string, object any, header http.Header) *answer {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	a := &answer{began: time.Now(), request: method + " " + path}
	response, number, err := c.send(ctx, method, path, object, header)
	a.number = number
	if err == nil {
		a.status, a.header = response.StatusCode, response.Header
		a.body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		_ = response.Body.Close()
	}
	a.err, a.took = err, time.Since(a.began)
	return a
}

// send sends a request. The caller closes the body of the response.
func (c *client) send(ctx context.Context, method, path string, object any, header http.Header) (*http.Response, int64, error) {
	var body io.Reader
	if object != nil {
		text, err := json.Marshal(object)
		if err != nil {
			return nil, 0, err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("https://%s:%d%s", c.front.host, frontPort, path), body)
	if err != nil {
		return nil, 0, err
	}
	for name, values := range header {
		r.Header[name] = values
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	number := c.world.ledger.open(c.user)
	r.Header.Set(requestHeader, fmt.Sprint(number))
	response, err := c.http.Do(r)
	return response, number, err
}

// ledger counts how often each request has arrived at a backend, and for which user.
type ledger struct {
	next     atomic.Int64
	mu       sync.Mutex // guards requests
	requests map[int64]*arrivals
}

type arrivals struct {
	user   string // who sent the request
	count  int
	others []string // users that a backend saw instead
	hops   []string // common names of the certificates with which it arrived
}

func newLedger() *ledger { return &ledger{requests: make(map[int64]*arrivals)} }

// open returns the number of a new request of a user.
func (l *ledger) open(user string) int64 {
	number := l.next.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests[number] = &arrivals{user: user}
	return number
}

// clear forgets all requests.
func (l *ledger) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.requests)
}

// arrived counts a request at a backend. Requests of the front doors themselves have no number.
func (l *ledger) arrived(r *http.Request) {
	var number int64
	if _, err := fmt.Sscan(r.Header.Get(requestHeader), &number); err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.requests[number]
	if known == nil {
		return
	}
	known.count++
	hop := "no client certificate"
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		hop = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	known.hops = append(known.hops, hop)
	if user := r.Header.Get("X-Remote-User"); user != known.user {
		known.others = append(known.others, user)
	}
}

// of returns a copy of the arrivals of a request.
func (l *ledger) of(number int64) arrivals {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.requests[number]; known != nil {
		return *known
	}
	return arrivals{}
}

// decode reads the JSON of a successful answer.
func (a *answer) decode(into any) error {
	if err := a.failure(); err != nil {
		return err
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("%s: read the answer: %w", a.request, err)
	}
	return nil
}
