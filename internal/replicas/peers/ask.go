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

// Paths at which replicas check each other's connection to etcd, and whether they are alive.
const (
	EtcdCheck = "/readyz/etcd"
	LiveCheck = "/livez"
)

// askTimeout limits a request to another replica.
const askTimeout = time.Second

// Names returns the names of the other replicas, sorted.
func (p *Peers) Names() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.replicas))
}

// Answering sends a request for a path to all other replicas, and returns the sorted names of the replicas with a
// response of 200 within a second.
func (p *Peers) Answering(ctx context.Context, path string) []string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	others := p.Names()
	well := make([]bool, len(others))
	var wg sync.WaitGroup
	for i, name := range others {
		wg.Go(func() { well[i] = p.get(ctx, name, path) == nil })
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

// Lives checks whether a replica is alive. refused is true if its machine refuses the connection because no process
// listens at its address. The error is ErrNotReachable if it does not have an address.
func (p *Peers) Lives(ctx context.Context, name string) (refused bool, err error) {
	if !p.Reachable(name) {
		return false, ErrNotReachable
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err = p.get(ctx, name, LiveCheck)
	return errors.Is(err, syscall.ECONNREFUSED), err
}

// ErrNotReachable is returned for a replica that does not accept requests of other replicas.
var ErrNotReachable = errors.New("the replica takes no requests of other replicas")

// get returns nil if a replica responds with 200.
func (p *Peers) get(ctx context.Context, name, path string) error {
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
	_ = resp.Body.Close() // only the status matters
	p.compareClocks(name, resp.Header.Get("Date"), asked, p.now())
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("replica %s answers %s at %s", name, resp.Status, path)
	}
	return nil
}
