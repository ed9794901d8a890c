package attacks

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	bench "portico.dev/e2e/environment"
)

// attackerRole is the role of the child that attacks.
const attackerRole = "attacker"

// orders is the attacker's configuration.
type orders struct {
	Front            string // the address of the front door
	Certificate, Key []byte // of the attacker's extension servers
	NULCertificate   []byte // of a server with a NUL suffix in its name
	NULKey           []byte
	NULServices      []string // the Services with the NUL certificate
}

// order is one attack.
type order struct {
	Attack string
	Lasts  time.Duration
	// Hold makes the attacker keep its connections open until the next order, so that the memory of the front door can be
	// measured.
	Hold bool
}

// report is the result for the attacker.
type report struct {
	CPU         time.Duration
	Frames      int64 // of HTTP/2; over HTTP/1.1 messages, and in handshakes records
	Bytes       int64
	Connections int64
	MostFrames  int64            // of one connection
	Outcomes    map[string]int64 // the responses of the front door
	Faults      []string         // responses that must not occur
}

// attack is the main function of the attacker's process.
func attack() error {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	var o orders
	if err := json.Unmarshal(line, &o); err != nil {
		return err
	}
	h, err := newHostile(o)
	if err != nil {
		return err
	}
	fmt.Println(h.ports())
	rows := map[string]*attackRow{}
	for _, a := range rowsOfAll() {
		rows[a.name] = a
	}
	var held *attackRun
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var next order
		if err := json.Unmarshal(line, &next); err != nil {
			return err
		}
		if held != nil {
			held.release()
			held = nil
		}
		var r report
		if next.Attack != "" {
			a := rows[next.Attack]
			if a == nil {
				return fmt.Errorf("no attack %q", next.Attack)
			}
			held = newAttackRun(o, h, a, next.Lasts)
			r = held.run()
			if !next.Hold {
				held.release()
				held = nil
			}
		}
		answer, err := json.Marshal(r)
		if err != nil {
			return err
		}
		fmt.Println(string(answer))
	}
}

// attackRun is one attack under way.
type attackRun struct {
	orders
	row     *attackRow
	hostile *hostile
	began   time.Time
	until   time.Time
	frames  atomic.Int64
	bytes   atomic.Int64
	conns   atomic.Int64
	most    atomic.Int64
	serial  atomic.Int64

	mu       sync.Mutex // guards the following fields
	outcomes map[string]int64
	faults   []string
	open     map[net.Conn]struct{}
}

func newAttackRun(o orders, h *hostile, row *attackRow, lasts time.Duration) *attackRun {
	now := time.Now()
	return &attackRun{orders: o, row: row, hostile: h, began: now, until: now.Add(lasts), outcomes: map[string]int64{}, open: map[net.Conn]struct{}{}}
}

func (a *attackRun) run() report {
	before := ownCPU()
	if a.row.backend() {
		a.hostile.under(a)
	}
	a.row.do(a)
	r := report{
		CPU: ownCPU() - before, Frames: a.frames.Load(), Bytes: a.bytes.Load(), Connections: a.conns.Load(), MostFrames: a.most.Load(),
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r.Outcomes, r.Faults = maps.Clone(a.outcomes), slices.Clone(a.faults)
	return r
}

// release closes the open connections.
func (a *attackRun) release() {
	a.hostile.under(nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.open {
		_ = c.Close()
	}
	clear(a.open)
}

// ownCPU returns the CPU time of this process.
func ownCPU() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (a *attackRun) over() bool { return !time.Now().Before(a.until) }

// insecure accepts every server certificate.
func insecure() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// rest waits until the attack is over.
func (a *attackRun) rest() { <-time.After(time.Until(a.until)) }

// came records a response of the front door.
func (a *attackRun) came(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.outcomes[what]; !ok && len(a.outcomes) >= 20 {
		what = "something else"
	}
	a.outcomes[what]++
}

// fault records a response that must not occur.
func (a *attackRun) fault(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.faults) < 10 {
		a.faults = append(a.faults, fmt.Sprintf(format, args...))
	}
}

// sent counts sent frames and bytes.
func (a *attackRun) sent(frames, bytes int) {
	a.frames.Add(int64(frames))
	a.bytes.Add(int64(bytes))
}

// mostOf records the number of frames on one connection if it is the maximum.
func (a *attackRun) mostOf(n int64) {
	for m := a.most.Load(); n > m && !a.most.CompareAndSwap(m, n); m = a.most.Load() {
	}
}

// raw opens a TCP connection with a small buffer, so that unread data is not counted as sent.
func (a *attackRun) raw() (net.Conn, error) {
	c, err := net.DialTimeout("tcp", a.Front, 5*time.Second)
	if err != nil {
		return nil, err
	}
	_ = c.(*net.TCPConn).SetWriteBuffer(32 << 10)
	a.conns.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open[c] = struct{}{}
	return c, nil
}

func (a *attackRun) close(c net.Conn) {
	a.mu.Lock()
	delete(a.open, c)
	a.mu.Unlock()
	_ = c.Close()
}

// dial connects over TLS. Attackers verify no certificate.
func (a *attackRun) dial(protocol string) (*tls.Conn, error) { return a.dialWith(protocol, nil) }

func (a *attackRun) dialWith(protocol string, change func(*tls.Config)) (*tls.Conn, error) {
	c, err := a.raw()
	if err != nil {
		return nil, err
	}
	config := insecure()
	config.NextProtos = []string{protocol}
	if change != nil {
		change(config)
	}
	t := tls.Client(c, config)
	_ = t.SetDeadline(time.Now().Add(10 * time.Second))
	if err := t.Handshake(); err != nil {
		a.close(c)
		return nil, err
	}
	_ = t.SetDeadline(time.Time{})
	return t, nil
}

// again runs f in parallel, each instance repeatedly until the time is over.
func (a *attackRun) again(many int, f func() error) {
	var all sync.WaitGroup
	for range many {
		all.Go(func() {
			failed := 0
			for !a.over() {
				if err := f(); err != nil {
					if failed++; failed > 1000 {
						return
					}
					a.came("no connection: %s", brief(err))
					<-time.After(5 * time.Millisecond)
				}
			}
		})
	}
	all.Wait()
}

// brief returns the message of an error without addresses.
func brief(err error) string {
	var alert tls.AlertError
	switch {
	case errors.As(err, &alert):
		return alert.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE), errors.Is(err, net.ErrClosed):
		return "closed"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "nothing"
	}
	text := err.Error()
	if i := strings.LastIndex(text, ": "); i >= 0 {
		text = text[i+2:]
	}
	return text
}

// things returns the path of a collection of 100 KB with an object named small.
func things() string { return bench.Path(0) }
