package aggregator

import (
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/aggregation"
	"portico.dev/internal/discovery"
	"portico.dev/internal/dispatch"
	"portico.dev/internal/fleet"
	fleetclient "portico.dev/internal/fleet/client"
	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/metrics"
	"portico.dev/internal/nodes/egress"
	"portico.dev/internal/openapi"
	"portico.dev/internal/server"
	"portico.dev/internal/transport"
)

// wireClusters leaves h.clusters nil if the API of Clusters is off.
func (h *parts) wireClusters(config *rest.Config) (err error) {
	if h.cfg.runtimeConfig().Serves(v1alpha1.GroupVersion.WithResource("clusters")) {
		h.clusters, err = fleetclient.New(config)
	}
	return err
}

// signsWith reports whether service account tokens of this front door are signed with a key.
func (h *parts) signsWith(keyID string) bool {
	_, verifying := h.tokens.KeyIDs()
	return slices.Contains(verifying, keyID)
}

// clusterTunnel reads the configuration of a tunnel to the API servers of Clusters. A name is a DNS label.
func (h *parts) clusterTunnel(name string) (*egress.Selector, error) {
	if h.cfg.ClusterTunnelsDir == "" {
		return nil, errors.New("this front door has no --cluster-tunnels-dir")
	}
	return egress.LoadTunnel(filepath.Join(h.cfg.ClusterTunnelsDir, name+".yaml"), name, h.Metrics.Egress)
}

// wireFleet returns the handler of the requests for Clusters and, with next, of all others.
func (h *parts) wireFleet(config server.ChainConfig, next http.Handler) (http.Handler, error) {
	if h.clusters == nil {
		return next, nil
	}
	secrets := h.informers.Secrets()
	clusters := h.informers.InformerFor(&v1alpha1.Cluster{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		return fleetclient.NewInformer(h.clusters)
	})
	h.fleet = fleet.New(fleet.Config{
		Client: h.clusters, Clusters: clusters, Secrets: secrets.Informer(), SecretLister: secrets.Lister(),
		Chain: config, APIs: extensionAPIs{h.Aggregation}, OwnNames: h.serving.DNSNames, OwnKey: h.signsWith,
		Transport: transport.Options{
			Engine: h.cfg.BackendEngine, Parent: h.Transport, OwnAddresses: h.ownAddresses, Tunnel: h.Egress.ControlPlane(), Metrics: h.Metrics.Backends, Logger: h.log.Named("transport"),
		},
		Tunnel: h.clusterTunnel, Proxy: h.Proxy, SharedReads: h.SharedReads, SharedWatches: h.SharedWatches, Election: h.election,
		Metrics: h.Metrics.Clusters, Logger: h.log.Named("clusters"),
	})
	metrics.NewClusterStates(h.Registry, h.fleet.States)
	return h.fleet.Handler(next)
}

// extensionAPIs implements fleet.APIs.
type extensionAPIs struct{ *aggregation.Aggregation }

// Proxied implements fleet.APIs.
func (a extensionAPIs) Proxied(gv schema.GroupVersion) (dispatch.Handler, bool) {
	return a.Groups.Proxied(gv)
}

// Overlay implements fleet.APIs.
func (a extensionAPIs) Overlay(gvs []schema.GroupVersion) *discovery.Overlay {
	return discovery.NewOverlay(a.Discovery.Current(), gvs, func(gv schema.GroupVersion) bool {
		_, ok := a.Groups.Proxied(gv)
		return ok
	})
}

// Document implements fleet.APIs.
func (a extensionAPIs) Document(gv schema.GroupVersion) (openapi.Document, bool) {
	if _, ok := a.Groups.Proxied(gv); !ok {
		return openapi.Document{}, false
	}
	return a.Aggregation.OpenAPI.Lookup(gv)
}

// OpenAPI implements fleet.APIs.
func (a extensionAPIs) OpenAPI() http.Handler { return a.Aggregation.OpenAPI }
