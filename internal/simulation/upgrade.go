package simulation

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	// A proxy copies the bytes of an upgraded connection without understanding them. Nothing else notices a byte that is lost,
	// repeated, reordered, or of another connection.
	ruleTunnel = "what returns on an upgraded connection is a prefix of what was sent on it"
	// A console or a port-forward has no means to resume.
	ruleUncut = "an upgraded connection is not cut, and everything returns, without a fault of its connections"
	// A side that waits for one that is gone waits forever, and holds both connections.
	ruleTunnelEnd = "the end of one side of an upgraded connection ends the other side"
	// A repeated upgrade executes a command twice.
	ruleUpgradeOnce = "an upgrade reaches a backend at most once, and once if it succeeded"
)

const (
	// maxMessages bounds the messages of an upgraded connection, messagePause the time between two of them, and 2^maxMessage
	// their sizes, which are mostly small.
	maxMessages  = 8
	messagePause = 2 * time.Second
	maxMessage   = 16
	// greeting is the number of bytes that a backend sends at once, as a program does that begins with a prompt.
	greeting = 20
	// longPause is longer than any limit of requests that are not upgraded. One of longPauses pauses is, because time without
	// faults finds little.
	longPause, longPauses = 70 * time.Second, 100
	// tunnelBound bounds the time from the last fault until everything has returned, or the end is noticed.
	tunnelBound = 30 * time.Second
)

// ending is how an upgraded connection ends.
type ending int

const (
	// halfClose: the client closes its direction when everything has returned, and waits for the other one.
	halfClose ending = iota
	// fullClose: the client closes the connection when everything has returned.
	fullClose
	// abandon: the client resets the connection after its last message.
	abandon
	// serverClose: the backend closes the connection when everything has returned.
	serverClose
	endings
)

// upgrades are upgraded connections, as of kubectl exec.
func upgrades() []action { return []action{{name: "upgrade", weight: 6, begin: upgrade}} }

// upgradesAtRest awaits the end of connections that clients have left.
var upgradesAtRest = []condition{{ruleTunnelEnd, (*history).checkUpgraded}}

// checkUpgraded returns an error while a backend has an upgraded connection.
func (h *history) checkUpgraded(context.Context) error {
	for _, b := range h.backends {
		if n := b.server.Upgraded(); n > 0 {
			return fmt.Errorf("%s has %d upgraded connections, want none: their clients have closed them", b.name, n)
		}
	}
	return nil
}

// upgrade opens an upgraded connection, sends messages, and compares what the backend returns with them.
func upgrade(h *history, s step) {
	c, b := h.pick(s)
	if c == nil {
		return
	}
	t := newTunnel(h, s, c, b)
	defer t.close()
	if !t.open(h.ctx) {
		return
	}
	go t.receive()
	if !t.send() || t.ending != abandon {
		t.finish()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	h.log.addf("%s of %s through %s: sent %d bytes of %d, %d returned: %v", t.answer.request, c.user, c.front.name, len(t.sent), t.total, t.returned, t.err)
}

// tunnel is an upgraded connection of a user.
type tunnel struct {
	history *history
	client  *client
	backend *backend
	ending  ending
	sizes   []int // of the messages
	early   bool  // the first message is sent with the request
	total   int   // bytes that return, with the greeting
	random  *rand.Rand
	answer  answer

	conn     *tls.Conn
	reader   *bufio.Reader
	complete chan struct{} // closed when everything has returned
	ended    chan struct{} // closed when nothing can return any more

	mu       sync.Mutex // guards the fields below
	sent     []byte
	returned int
	err      error // why nothing can return any more
}

func newTunnel(h *history, s step, c *client, b *backend) *tunnel {
	t := &tunnel{
		history: h, client: c, backend: b, ending: ending(s.choice >> 8 % uint64(endings)), random: rand.New(rand.NewPCG(s.choice, 2)),
		complete: make(chan struct{}), ended: make(chan struct{}),
	}
	t.early, t.total = t.random.IntN(4) == 0, greeting
	for range 1 + t.random.IntN(maxMessages) {
		size := 1 + t.random.IntN(1<<t.random.IntN(maxMessage+1))
		t.sizes = append(t.sizes, size)
		t.total += size
	}
	return t
}

// open connects and upgrades the connection, and reports whether the backend has accepted that.
func (t *tunnel) open(ctx context.Context) bool {
	method, protocol := http.MethodGet, "websocket"
	if t.random.IntN(2) == 0 {
		method, protocol = http.MethodPost, "SPDY/3.1"
	}
	t.answer = answer{began: time.Now(), number: t.client.world.ledger.open(t.client.user)}
	path := t.backend.path("default") + "/tunnel/connect?greeting=" + url.QueryEscape(string(t.message(greeting)))
	if t.ending == serverClose {
		path += "&limit=" + strconv.Itoa(t.total-greeting)
	}
	t.answer.request = method + " " + path
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	t.answer.err = t.exchange(ctx, method, path, protocol)
	t.answer.took = time.Since(t.answer.began)
	h, arrived := t.history, t.history.ledger.of(t.answer.number)
	if arrived.count > 1 || t.answer.status == http.StatusSwitchingProtocols && arrived.count != 1 {
		h.violate(ruleUpgradeOnce, "%s by %s: answer %d, and it arrived %d times, want at most once", t.answer.request, t.client.user, t.answer.status, arrived.count)
	}
	if t.answer.err != nil || t.answer.status != http.StatusSwitchingProtocols {
		h.judge(t.client, t.backend, &t.answer)
		return false
	}
	if len(arrived.others) > 0 {
		h.violate(ruleIdentity, "%s by %s arrived as a request of %v", t.answer.request, t.client.user, arrived.others)
	}
	return true
}

// exchange sends the request and reads the header of the response.
func (t *tunnel) exchange(ctx context.Context, method, path, protocol string) error {
	at := net.JoinHostPort(t.client.front.host.String(), strconv.Itoa(frontPort))
	raw, err := t.history.clientHost.Dial(ctx, at)
	if err != nil {
		return err
	}
	config := t.client.tls.Clone()
	config.NextProtos, config.ServerName = []string{"http/1.1"}, t.client.front.host.String()
	t.conn = tls.Client(raw, config)
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	r, err := http.NewRequestWithContext(ctx, method, "https://"+at+path, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", protocol)
	r.Header.Set(requestHeader, strconv.FormatInt(t.answer.number, 10))
	var out bytes.Buffer
	if err := r.Write(&out); err != nil {
		return err
	}
	if t.early {
		out.Write(t.message(t.sizes[0]))
		t.sizes = t.sizes[1:]
	}
	if _, err := t.conn.Write(out.Bytes()); err != nil {
		return err
	}
	t.reader = bufio.NewReader(t.conn)
	response, err := http.ReadResponse(t.reader, r)
	if err != nil {
		return err
	}
	t.answer.status, t.answer.header = response.StatusCode, response.Header
	if response.StatusCode != http.StatusSwitchingProtocols {
		t.answer.body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	}
	return err
}

// receive compares what returns with what was sent, until the end.
func (t *tunnel) receive() {
	defer close(t.ended)
	data := make([]byte, 32<<10)
	for {
		n, err := t.reader.Read(data)
		if !t.compare(data[:n]) {
			return
		}
		if err != nil {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.err = err
			return
		}
	}
}

// compare reports whether data is what was sent after what has returned so far.
func (t *tunnel) compare(data []byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	want := t.sent[t.returned:min(t.returned+len(data), len(t.sent))]
	if !bytes.Equal(data, want) {
		t.history.violate(ruleTunnel, "%s by %s, number %d: the bytes from %d of %d sent ones: got and want %s",
			t.answer.request, t.client.user, t.answer.number, t.returned, len(t.sent), firstDifference(data, want))
		return false
	}
	t.returned += len(data)
	if len(data) > 0 && t.returned == t.total {
		close(t.complete)
	}
	return true
}

// send sends the messages, until the connection ends, and reports whether it has sent all.
func (t *tunnel) send() bool {
	for i, size := range t.sizes {
		wait := time.Duration(t.random.Int64N(int64(messagePause)))
		if t.random.IntN(longPauses) == 0 {
			wait += longPause
		}
		if i > 0 && !t.pause(wait) {
			return false
		}
		if _, err := t.conn.Write(t.message(size)); err != nil {
			return false // receive has the error, too
		}
	}
	return true
}

// pause waits, and reports whether the connection continues.
func (t *tunnel) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.ended:
	case <-t.history.ctx.Done():
	}
	return false
}

// message returns the next bytes, and adds them to sent. They contain the user, the number of the request and their offset.
func (t *tunnel) message(size int) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	from := len(t.sent)
	text := slices.Clone(t.sent)
	for len(text) < from+size {
		text = fmt.Appendf(text, "%s/%d/%d;", t.client.user, t.answer.number, len(text))
	}
	t.sent = text[:from+size]
	return t.sent[from:]
}

// finish waits until everything has returned, and for the end if the client does not close the connection.
func (t *tunnel) finish() {
	if !t.await(t.complete) || t.ending == fullClose {
		return
	}
	if t.ending == halfClose && t.conn.CloseWrite() != nil {
		return // it has ended
	}
	t.await(t.ended)
}

// await waits until a channel is closed, and reports whether it is before the end of the connection.
func (t *tunnel) await(wanted <-chan struct{}) bool {
	h := t.history
	for {
		timer := time.NewTimer(tunnelBound)
		select {
		case <-wanted:
		case <-t.ended:
		case <-h.ctx.Done():
		case <-timer.C:
			if h.calm(time.Now().Add(-tunnelBound), append(t.hosts(), t.backend.name)...) {
				h.violate(ruleTunnelEnd, "%s of %s through %s: %d bytes sent, and neither all of them have returned nor the connection has ended within %s without a fault",
					t.answer.request, t.client.user, t.client.front.name, t.total, tunnelBound)
				return false
			}
			continue
		}
		timer.Stop()
		return isClosed(wanted) || isClosed(t.ended) && t.checkEnd()
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// hosts returns the names of the hosts whose connections may transfer the messages: any front door and any gateway may forward the
// request.
func (t *tunnel) hosts() []string {
	names := []string{connectionsOf(t.backend.name)}
	for _, f := range t.history.fronts {
		names = append(names, connectionsOf(f.name))
	}
	for _, name := range t.history.gatewayNames() {
		names = append(names, connectionsOf(name))
	}
	return names
}

// checkEnd requires everything to have returned if no connection has had a fault, and reports whether it has.
func (t *tunnel) checkEnd() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.returned == t.total && errors.Is(t.err, io.EOF) {
		return true
	}
	if h := t.history; h.ctx.Err() == nil && h.calm(t.answer.began, t.hosts()...) {
		h.violate(ruleUncut, "%s of %s through %s: %d of %d bytes returned before %v, want all before EOF: none of its connections has had a fault",
			t.answer.request, t.client.user, t.client.front.name, t.returned, t.total, t.err)
	}
	return false
}

// close closes the connection, and returns when receive has returned.
func (t *tunnel) close() {
	if t.conn == nil {
		return
	}
	if raw, ok := t.conn.NetConn().(interface{ SetLinger(int) error }); ok && t.ending == abandon {
		_ = raw.SetLinger(0)
		_ = t.conn.NetConn().Close()
	}
	_ = t.conn.Close()
	if t.reader != nil && t.answer.status == http.StatusSwitchingProtocols {
		<-t.ended
	}
}
