package clusters

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// balancer is a TCP load balancer: it forwards each new connection to the next backend that accepts one.
type balancer struct {
	listener  net.Listener
	backends  []string
	forwarded sync.WaitGroup
	life      context.Context // ends with close
	end       context.CancelFunc
}

// dialLimit bounds the time for a connection to a backend.
const dialLimit = time.Second

func newBalancer(backends []string) (*balancer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &balancer{listener: l, backends: backends}
	b.life, b.end = context.WithCancel(context.Background())
	b.forwarded.Go(b.serve)
	return b, nil
}

func (b *balancer) address() string { return b.listener.Addr().String() }

// close closes all connections.
func (b *balancer) close() {
	_ = b.listener.Close() // ends serve
	b.end()
	b.forwarded.Wait()
}

func (b *balancer) serve() {
	for n := 0; ; n++ {
		client, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.forwarded.Go(func() { b.forward(client, n) })
	}
}

// forward copies between a client and the nth backend, or one of the next ones, until one of them closes the connection.
func (b *balancer) forward(client net.Conn, n int) {
	defer client.Close()
	for i := range b.backends {
		server, err := net.DialTimeout("tcp", b.backends[(n+i)%len(b.backends)], dialLimit)
		if err != nil {
			continue
		}
		defer server.Close()
		defer context.AfterFunc(b.life, func() {
			_ = client.Close()
			_ = server.Close()
		})()
		var copying sync.WaitGroup
		copying.Go(func() {
			_, _ = io.Copy(server, client) // either end may fail: the connection has ended
			_ = server.Close()
		})
		_, _ = io.Copy(client, server)
		_ = client.Close()
		copying.Wait()
		return
	}
}
