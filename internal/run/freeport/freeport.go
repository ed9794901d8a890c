// Package freeport finds ports for test servers that must know their port before they listen, or keep it across restarts.
package freeport

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are allocated from firstPort to lastPort. The ephemeral ports of kernels are above that range (Linux from 32768, IANA
// from 49152), so that no other process gets one of these ports while its server is down.
const (
	firstPort = 20_000
	lastPort  = 32_000
)

// Ports returns each port once. The zero value is ready to use, and safe for concurrent use.
type Ports struct {
	// Host is the IP address to listen on. Default 127.0.0.1.
	Host string

	mu   sync.Mutex
	next int // 0 before the first port
}

// Free returns a port on which no process listens.
func (p *Ports) Free() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == 0 {
		p.next = firstPort + rand.IntN(lastPort-firstPort) // other test processes run on this machine, too
	}
	var err error
	for range 1000 {
		port := p.next
		if p.next++; p.next == lastPort {
			p.next = firstPort
		}
		var listener net.Listener
		if listener, err = net.Listen("tcp", net.JoinHostPort(cmp.Or(p.Host, "127.0.0.1"), strconv.Itoa(port))); err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}
