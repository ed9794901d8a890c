package programs

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are taken from here. The kernel gives none of them to whoever asks for any port, so that nobody takes one while
// its server is down: systems' own ranges begin above (Linux at 32768, IANA at 49152).
const (
	firstPort = 20_000
	lastPort  = 32_000
)

// Ports gives out ports to servers that keep theirs: over restarts, or because somebody must know it before. The zero
// value is ready, and gives none twice.
type Ports struct {
	mu   sync.Mutex
	next int // 0: none was given yet
}

// Free is a port of 127.0.0.1 that nobody listens on.
func (p *Ports) Free() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == 0 {
		p.next = firstPort + rand.IntN(lastPort-firstPort) // other tests run on this machine, too
	}
	var err error
	for range 1000 {
		port := p.next
		if p.next++; p.next == lastPort {
			p.next = firstPort
		}
		var listener net.Listener
		if listener, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}
