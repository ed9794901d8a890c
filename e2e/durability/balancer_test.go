package durability

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

const (
	// probeInterval is how often the load balancer asks whether a front door is ready, and shutdownDelay what a front door gives it.
	probeInterval = 200 * time.Millisecond
	shutdownDelay = 2 * time.Second
)

// loadBalancer opens each connection to the next front door that is ready, and leaves connections that are open alone, as one that works on
// TCP does.
type loadBalancer struct {
	fronts   []*frontDoor
	listener net.Listener
	ctx      context.Context
	running  sync.WaitGroup

	mu    sync.Mutex // guards what follows
	ready []string   // addresses
	next  int
}

func newLoadBalancer(t testing.TB, fronts []*frontDoor) *loadBalancer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &loadBalancer{fronts: fronts, listener: listener, ctx: ctx}
	t.Cleanup(func() { cancel(); b.running.Wait() })
	b.probe()
	b.running.Go(func() {
		for pause(ctx, probeInterval) {
			b.probe()
		}
	})
	b.running.Go(b.accept)
	b.running.Go(func() {
		<-ctx.Done()
		_ = listener.Close()
	})
	return b
}

func (b *loadBalancer) address() string { return b.listener.Addr().String() }

// probe asks every front door whether it is ready, by a connection of its own.
func (b *loadBalancer) probe() {
	client := &http.Client{
		Timeout:   time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, // as probes do
	}
	ready := make([]string, len(b.fronts))
	var probes sync.WaitGroup
	for i, d := range b.fronts {
		probes.Go(func() {
			resp, err := client.Get("https://" + d.address() + "/readyz")
			if err != nil {
				return
			}
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				ready[i] = d.address()
			}
		})
	}
	probes.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready = b.ready[:0]
	for _, address := range ready {
		if address != "" {
			b.ready = append(b.ready, address)
		}
	}
}

// pick returns the front door for the next connection, empty when none is ready.
func (b *loadBalancer) pick() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ready) == 0 {
		return ""
	}
	b.next++
	return b.ready[b.next%len(b.ready)]
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
	out, err := net.DialTimeout("tcp", b.pick(), time.Second)
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
				_, _ = in.Close(), out.Close() // a reset of one end is the end of the other
				return
			}
			_ = pair[0].(*net.TCPConn).CloseWrite()
		})
	}
	directions.Wait()
}
