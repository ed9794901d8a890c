package faults

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// hop forwards connections until it is deaf. Then the kernel still accepts connections, and hop forwards no data.
type hop struct {
	address string
	deaf    atomic.Bool
}

func newHop(t testing.TB, to string) *hop {
	t.Helper()
	h := &hop{}
	h.address = tcp(t, func(c net.Conn) {
		up, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		gone, cancel := context.WithCancel(context.Background())
		defer context.AfterFunc(gone, func() { _ = up.Close(); _ = c.Close() })()
		var wg sync.WaitGroup
		wg.Go(func() { h.pass(up, c); cancel() })
		wg.Go(func() { h.pass(c, up); cancel() })
		wg.Wait()
		_ = up.Close()
	})
	return h
}

func (h *hop) pass(to, from net.Conn) {
	b := make([]byte, 16<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if h.deaf.Load() {
			continue
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}
