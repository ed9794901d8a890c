package durability

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

const (
	// probeInterval is the interval of the load balancer's readiness probes, and shutdownDelay the front door's delay that
	// matches it.
	probeInterval = 200 * time.Millisecond
	shutdownDelay = 2 * time.Second
	// probeTimeout is how long an answer may take, and a connection: longer than a busy machine needs.
	probeTimeout = 5 * time.Second
)

// loadBalancer opens each connection to the next front door that is ready, and leaves connections that are open alone, as one that works on
// TCP does.
type loadBalancer struct {
	fronts   []*frontDoor
	listener net.Listener
	ctx      context.Context
	running  sync.WaitGroup

	mu    sync.Mutex // guards the following fields
	ready []bool     // by front door
	asked []int      // number of probes of each front door
	next  int
}

func newLoadBalancer(t testing.TB, fronts []*frontDoor) *loadBalancer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &loadBalancer{fronts: fronts, listener: listener, ctx: ctx, ready: make([]bool, len(fronts)), asked: make([]int, len(fronts))}
	t.Cleanup(func() { cancel(); b.running.Wait() })
	for i := range fronts {
		b.probe(i)
		b.running.Go(func() { // concurrently, so that a probe without a response delays no other probe
			for pause(ctx, probeInterval) {
				b.probe(i)
			}
		})
	}
	b.running.Go(b.accept)
	b.running.Go(func() {
		<-ctx.Done()
		_ = listener.Close()
	})
	return b
}

func (b *loadBalancer) address() string { return b.listener.Addr().String() }

// probe requests a front door's readiness over a new connection.
func (b *loadBalancer) probe(i int) {
	client := &http.Client{
		Timeout:   probeTimeout,
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, // as probes do
	}
	ready := false
	if resp, err := client.Get("https://" + b.fronts[i].address() + "/readyz"); err == nil {
		_ = resp.Body.Close()
		ready = resp.StatusCode == http.StatusOK
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready[i] = ready
	b.asked[i]++
}

// awaitReady waits until a front door has passed a readiness probe that starts from now on.
func (b *loadBalancer) awaitReady(d *frontDoor) {
	d.t.Helper()
	i := slices.Index(b.fronts, d)
	b.mu.Lock()
	enough := b.asked[i] + 2 // one may be under way
	b.mu.Unlock()
	d.await("known to the load balancer", func(context.Context) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.asked[i] < enough || !b.ready[i] {
			return fmt.Errorf("asked %d times of %d, and ready: %t", b.asked[i], enough, b.ready[i])
		}
		return nil
	})
}

// pick returns the address of the front door for the next connection, empty when none is ready.
func (b *loadBalancer) pick() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range b.fronts {
		b.next++
		if i := b.next % len(b.fronts); b.ready[i] {
			return b.fronts[i].address()
		}
	}
	return ""
}

func (b *loadBalancer) accept() {
	for {
		in, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.running.Go(func() { b.forward(in) })
	}
}

// forward copies both ways until both ends have closed. Without a front door the client's connection is closed.
func (b *loadBalancer) forward(in net.Conn) {
	defer in.Close()
	out, err := net.DialTimeout("tcp", b.pick(), probeTimeout)
	if err != nil {
		return
	}
	defer out.Close()
	stop := context.AfterFunc(b.ctx, func() { _, _ = in.Close(), out.Close() })
	defer stop()
	var directions sync.WaitGroup
	for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
		directions.Go(func() {
			_, err := io.Copy(pair[0], pair[1])
			if err != nil {
				_, _ = in.Close(), out.Close() // a reset of one side ends both
				return
			}
			_ = pair[0].(*net.TCPConn).CloseWrite()
		})
	}
	directions.Wait()
}
