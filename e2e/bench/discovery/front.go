package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"portico.dev/internal/discovery"
	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/openapi"
	"portico.dev/internal/pki"
)

// plan is the configuration of the front door.
type plan struct {
	Count             int
	Alive, Hung, Dead string // addresses
	Roots             []byte // of the backends
	Certificate, Key  []byte // of the front door
}

// mood is the behavior of a backend.
type mood int32

const (
	alive mood = iota
	hung
	dead
)

// backend implements remote.Backend. It dials the address for its mood.
type backend struct {
	group     string
	plan      *plan
	mood      atomic.Int32
	transport *http.Transport
}

func newBackend(p *plan, group string) (*backend, error) {
	b := &backend{group: group, plan: p}
	config, err := pki.ClientConfig(pki.ClientOptions{ServerName: "backend.example.com", Roots: p.Roots})
	if err != nil {
		return nil, err
	}
	b.transport = &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, b.address())
	}}
	return b, nil
}

func (b *backend) Name() string             { return "bench/" + b.group + ":443" }
func (b *backend) Probe() http.RoundTripper { return b }

// RenewProbes implements remote.Backend. It has no connections to renew.
func (b *backend) RenewProbes() {}

func (b *backend) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host, r.Host = b.group, b.group
	return b.transport.RoundTrip(r)
}

func (b *backend) address() string {
	switch mood(b.mood.Load()) {
	case hung:
		return b.plan.Hung
	case dead:
		return b.plan.Dead
	}
	return b.plan.Alive
}

func (b *backend) become(m mood) {
	b.mood.Store(int32(m))
	b.transport.CloseIdleConnections()
}

// front contains the components under test. The benchmark controls their routing table.
type front struct {
	plan    *plan
	merger  *discovery.Merger
	library *openapi.Publisher

	mu       sync.Mutex
	backends []*backend
	routes   []remote.Route
	changed  chan struct{}
}

func newFront(p *plan) (*front, error) {
	f := &front{plan: p, changed: make(chan struct{})}
	for range p.Count {
		if err := f.append(); err != nil {
			return nil, err
		}
	}
	var err error
	if f.merger, err = discovery.New(discovery.Config{
		Local: func() discovery.Local { return discovery.Local{} }, LocalChanged: func() <-chan struct{} { return nil },
		Routes: f.table, Changed: f.change, Storage: discardStore{}, Logger: zap.NewNop(),
	}); err != nil {
		return nil, err
	}
	f.library, err = openapi.New(openapi.Config{
		Local: func() []openapi.Document { return nil }, LocalChanged: func() <-chan struct{} { return nil },
		Routes: f.table, Changed: f.change, Logger: zap.NewNop(),
	})
	return f, err
}

// discardStore stores nothing, because the benchmark measures only this process.
type discardStore struct{}

func (discardStore) Load(context.Context) (map[string][]byte, error) { return nil, nil }
func (discardStore) Save(context.Context, string, []byte) error      { return nil }
func (discardStore) Delete(context.Context, string) error            { return nil }
func (f *front) table() remote.Table {
	f.mu.Lock()
	defer f.mu.Unlock()
	return remote.Table{Routes: f.routes, Synced: true}
}
func (f *front) change() <-chan struct{} { f.mu.Lock(); defer f.mu.Unlock(); return f.changed }
func (f *front) append() error {
	group := groupName(len(f.backends))
	b, err := newBackend(f.plan, group)
	if err != nil {
		return err
	}
	f.backends = append(f.backends, b)
	f.routes = append(f.routes, remote.Route{
		GroupVersion: schema.GroupVersion{Group: group, Version: "v1"}, APIService: "v1." + group, UID: types.UID(group),
		Backend: b, Available: true, GroupPriority: 1000, VersionPriority: 100,
	})
	return nil
}

// edit changes the table and notifies the components.
func (f *front) edit(change func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.routes = append([]remote.Route(nil), f.routes...)
	err := change()
	close(f.changed)
	f.changed = make(chan struct{})
	return err
}

// run serves until standard input ends. It first prints its addresses.
func (f *front) run(ctx context.Context) error {
	pair, err := pki.StaticKeyPair(f.plan.Certificate, f.plan.Key)
	if err != nil {
		return err
	}
	listeners := make([]net.Listener, 2)
	for i := range listeners {
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
	}
	public := &http.Server{Handler: f.public(), TLSConfig: pki.ServerConfig(pair), ReadHeaderTimeout: time.Minute}
	control := &http.Server{Handler: f.control(), ReadHeaderTimeout: time.Minute}

	ctx, cancel := context.WithCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.merger.Run(ctx) })
	g.Go(func() error { return f.library.Run(ctx) })
	g.Go(func() error { return ended(public.ServeTLS(listeners[0], "", "")) })
	g.Go(func() error { return ended(control.Serve(listeners[1])) })
	g.Go(func() error {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = public.Close()
		return control.Close()
	})
	if err := json.NewEncoder(os.Stdout).Encode(frontsOf(listeners)); err != nil {
		return err
	}
	return g.Wait()
}

type addresses struct{ Public, Control string }

func frontsOf(l []net.Listener) addresses {
	return addresses{Public: l[0].Addr().String(), Control: l[1].Addr().String()}
}

func ended(err error) error {
	if err == http.ErrServerClosed {
		return nil
	}
	return err
}

// public returns the handler for clients. /bytes/... serves the recorded response of a path without further work, so
// that the difference is the cost of computing the response.
func (f *front) public() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/openapi/", f.library)
	mux.Handle("/bytes/", newBytes(mux))
	mux.Handle("/", f.merger)
	return mux
}

func runFront() error {
	var p plan
	if err := json.NewDecoder(io.LimitReader(os.Stdin, 1<<20)).Decode(&p); err != nil {
		return fmt.Errorf("read the plan: %w", err)
	}
	f, err := newFront(&p)
	if err != nil {
		return err
	}
	return f.run(context.Background())
}
