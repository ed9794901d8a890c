package peers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Paths at which replicas ask each other whether etcd answers them, and whether they live.
const (
	EtcdCheck = "/readyz/etcd"
	LiveCheck = "/livez"
)

// askTimeout bounds a question to another replica.
const askTimeout = time.Second

// Others are the names of the other replicas, in order.
func (p *Peers) Others() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.replicas))
}

// Answering asks all other replicas at a path, and returns the names of those that answer 200 within a second, in order.
func (p *Peers) Answering(ctx context.Context, path string) []string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	others := p.Others()
	well := make([]bool, len(others))
	var wg sync.WaitGroup
	for i, name := range others {
		wg.Go(func() { well[i] = p.ask(ctx, name, path) == nil })
	}
	wg.Wait()
	var names []string
	for i, name := range others {
		if well[i] {
			names = append(names, name)
		}
	}
	return names
}

// Lives asks a replica whether it lives. refused is when its machine answers that nobody listens at its address, and
// ErrNotReachable when it has none.
func (p *Peers) Lives(ctx context.Context, name string) (refused bool, err error) {
	if !p.Reachable(name) {
		return false, ErrNotReachable
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err = p.ask(ctx, name, LiveCheck)
	return errors.Is(err, syscall.ECONNREFUSED), err
}

// ErrNotReachable is when a replica takes no requests of others.
var ErrNotReachable = errors.New("the replica takes no requests of other replicas")

// ask is nil if a replica answers 200.
func (p *Peers) ask(ctx context.Context, name, path string) error {
	b, err := p.Backend([]string{name})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+ServerName+path, nil)
	if err != nil {
		return err
	}
	endpoints := b.Endpoints()
	if len(endpoints) == 0 {
		return errNoneLeft
	}
	asked := p.now()
	resp, err := b.ProbeEndpoint(endpoints[0].Address).RoundTrip(r)
	if err != nil {
		return err
	}
	_ = resp.Body.Close() // the status is all that counts
	p.compareClocks(name, resp.Header.Get("Date"), asked, p.now())
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("replica %s answers %s at %s", name, resp.Status, path)
	}
	return nil
}
