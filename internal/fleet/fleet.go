package fleet

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/fleet/client"
	"portico.dev/internal/lifecycle/reconcile"
	"portico.dev/internal/metrics"
	"portico.dev/internal/nodes/egress"
	"portico.dev/internal/proxy"
	"portico.dev/internal/routes/sharedreads"
	"portico.dev/internal/routes/sharedwatch"
	"portico.dev/internal/server"
	"portico.dev/internal/transport"
)

// Config is the configuration of a Fleet. Every field is required.
type Config struct {
	// Client and Clusters access the objects of kind Cluster.
	Client   *client.Clusters
	Clusters cache.SharedIndexInformer
	// Secrets and SecretLister access the credentials of the clusters.
	Secrets      cache.SharedIndexInformer
	SecretLister corelisters.SecretLister
	// Chain is the chain of the front door. The chains of clusters are made of copies.
	Chain server.ChainConfig
	// OwnNames are the host names of the front door itself, which no Cluster can have.
	OwnNames []string
	// OwnKey reports whether the front door signs service account tokens with the key of an ID.
	OwnKey func(id string) bool
	// APIs are those of the front door's extension servers.
	APIs APIs
	// Transport configures the connections to API servers. Its Parent is closed after Run has returned.
	Transport transport.Options
	// Tunnel reads the configuration of a tunnel. Its network "cluster" has the API servers.
	Tunnel func(name string) (*egress.Selector, error)
	Proxy  *proxy.Proxy
	// SharedReads and SharedWatches implement spec.shared. Their memory is that of the shared reads and watches of APIRoutes.
	SharedReads   *sharedreads.Cache
	SharedWatches *sharedwatch.Watches
	// Election decides which replica writes the status of Clusters.
	Election reconcile.Election
	Metrics  *metrics.Clusters
	Logger   *zap.Logger
}

// Fleet serves clusters. It is safe for concurrent use.
type Fleet struct {
	config  Config
	log     *zap.Logger
	members atomic.Pointer[members]
	secrets atomic.Pointer[sets.Set[string]] // "namespace/name" of the credentials
	ready   chan struct{}

	links    sync.WaitGroup // goroutines of connections
	statuses statusWriter
}

// New returns a Fleet without clusters. It starts nothing.
func New(c Config) *Fleet {
	f := &Fleet{config: c, log: c.Logger, ready: make(chan struct{})}
	f.members.Store(&members{})
	f.secrets.Store(&sets.Set[string]{})
	f.statuses = statusWriter{fleet: f, changed: make(chan struct{}), pending: map[string]bool{}}
	return f
}

// Ready returns a channel that is closed when all clusters that exist are served.
func (f *Fleet) Ready() <-chan struct{} { return f.ready }

// settle is the time in which changes of objects are collected, so that many Clusters are not compared for each of them.
const settle = 50 * time.Millisecond

// Run follows the Clusters until ctx ends, and then closes the connections to them. The informers have synced before.
func (f *Fleet) Run(ctx context.Context) error {
	defer f.links.Wait()
	g, ctx := errgroup.WithContext(ctx)
	f.sync(ctx)
	close(f.ready)
	g.Go(func() error {
		l := &reconcile.Loop{Name: "clusters", Workers: 1, Delay: settle, Log: f.log, Reconcile: func(context.Context, string) (time.Duration, error) {
			return f.sync(ctx), nil
		}}
		all := func(any) string { return "all" }
		return l.Run(ctx, reconcile.Source{Informer: f.config.Clusters, Key: all}, reconcile.Source{Informer: f.config.Secrets, Key: f.credentialsKey})
	})
	g.Go(func() error { return f.statuses.run(ctx) })
	return g.Wait()
}

// credentialsKey is a reconcile.Source.Key: it returns "" for Secrets that no cluster refers to.
func (f *Fleet) credentialsKey(secret any) string {
	key, err := cache.MetaNamespaceKeyFunc(secret)
	if err != nil || !f.secrets.Load().Has(key) {
		return ""
	}
	return "all"
}
