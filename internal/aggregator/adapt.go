package aggregator

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/auth/serviceaccount"
	"portico.dev/internal/coreapi"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/discovery"
	"portico.dev/internal/discovery/watchlist"
	"portico.dev/internal/lifecycle/namespaces"
	"portico.dev/internal/openapi"
	"portico.dev/internal/store"
)

// Packages of one layer do not import each other. This file converts the types of one into the types of another.

// remoteResources returns the known resources of a group-version of a backend.
func remoteResources(snapshot *discovery.Snapshot, gv schema.GroupVersion) []apidiscoveryv2.APIResourceDiscovery {
	if snapshot == nil {
		return nil
	}
	known, ok := snapshot.Lookup(gv)
	if !ok || known.Local {
		return nil
	}
	return known.Resources
}

// debugState is the content of /debug/aggregation.
type debugState struct {
	apiservice.DebugState
	// InitialEvents reports how the resources of extension servers treat watches with initial events. It omits the
	// resources of APIServices with an annotation about such watches.
	InitialEvents []watchlist.State `json:"initialEvents"`
}

func (h *parts) debugState() debugState {
	return debugState{DebugState: h.APIServices.DebugState(), InitialEvents: h.WatchLists.States()}
}

func (h *parts) localDiscovery() discovery.Local {
	d := h.core.Discovery()
	return discovery.Local{Core: h.shown(d.Core), Groups: h.shown(d.Groups)}
}

// shown omits the group-versions that clients do not see.
func (h *parts) shown(all []apidiscoveryv2.APIGroupDiscovery) []apidiscoveryv2.APIGroupDiscovery {
	if h.cfg.Embedded.Hidden == nil {
		return all
	}
	var kept []apidiscoveryv2.APIGroupDiscovery
	for _, g := range all {
		g.Versions = slices.DeleteFunc(slices.Clone(g.Versions), func(v apidiscoveryv2.APIVersionDiscovery) bool {
			return h.hidden(schema.GroupVersion{Group: g.Name, Version: v.Version})
		})
		if len(g.Versions) > 0 {
			kept = append(kept, g)
		}
	}
	return kept
}

// settleTimeout limits settleDiscovery. Merging takes milliseconds.
const settleTimeout = time.Second

// settleDiscovery waits until the merged discovery documents contain a custom group-version as the local groups serve
// it now.
func (h *parts) settleDiscovery(ctx context.Context, gv schema.GroupVersion) {
	if slices.Contains(h.core.BuiltIn(), gv) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for {
		changed := h.Discovery.Changed()
		snapshot := h.Discovery.Current()
		if snapshot == nil || h.settled(snapshot, gv) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// settled compares the names of the resources in the merged documents and in the local groups.
func (h *parts) settled(snapshot *discovery.Snapshot, gv schema.GroupVersion) bool {
	merged, has := snapshot.Lookup(gv)
	united := false
	if has && !merged.Local {
		if route, ok := h.APIServices.Table().Lookup(gv); !ok || route.Routing == nil || route.Routing.CustomResources() < 0 {
			return true // served by a backend
		}
		united = true
	}
	for _, g := range h.core.Discovery().Groups {
		if g.Name != gv.Group {
			continue
		}
		for _, v := range g.Versions {
			if v.Version != gv.Version {
				continue
			}
			if united {
				return !slices.ContainsFunc(v.Resources, func(r apidiscoveryv2.APIResourceDiscovery) bool {
					return !slices.ContainsFunc(merged.Resources, func(m apidiscoveryv2.APIResourceDiscovery) bool { return m.Resource == r.Resource })
				})
			}
			return has && slices.EqualFunc(v.Resources, merged.Resources, func(a, b apidiscoveryv2.APIResourceDiscovery) bool { return a.Resource == b.Resource })
		}
	}
	return united || !has
}

func deletable(resources []apidiscoveryv2.APIResourceDiscovery) []namespaces.Resource {
	var out []namespaces.Resource
	for _, r := range resources {
		if r.Scope != apidiscoveryv2.ScopeNamespace || !slices.Contains(r.Verbs, "delete") {
			continue
		}
		out = append(out, namespaces.Resource{
			Name: r.Resource, List: slices.Contains(r.Verbs, "list"), DeleteCollection: slices.Contains(r.Verbs, "deletecollection"),
		})
	}
	return out
}

// documentStorage stores the latest documents of backends in etcd, for all replicas and the next start.
type documentStorage struct {
	store  *store.Store
	prefix string
}

func (l documentStorage) Load(ctx context.Context) (map[string][]byte, error) {
	values, err := l.store.List(ctx, l.prefix)
	if err != nil {
		return nil, err
	}
	out := make(map[string][]byte, len(values))
	for key, value := range values {
		out[strings.TrimPrefix(key, l.prefix)] = value
	}
	return out, nil
}

func (l documentStorage) Save(ctx context.Context, name string, value []byte) error {
	return l.store.Put(ctx, l.prefix+name, value)
}

func (l documentStorage) Delete(ctx context.Context, name string) error {
	return l.store.Delete(ctx, l.prefix+name)
}

// Follow calls saved with every document that a replica stores, so that all replicas soon serve the same documents.
func (l documentStorage) Follow(ctx context.Context, saved func(name string, value []byte)) {
	l.store.Follow(ctx, l.prefix, func(key string, value []byte) { saved(strings.TrimPrefix(key, l.prefix), value) })
}

func (h *parts) ownAddresses() []string {
	if h.listener == nil {
		return nil
	}
	return []string{h.address()}
}

// localDocuments returns the OpenAPI v3 documents of the local groups, prepared at build time, and of custom resources.
func (h *parts) localDocuments() []openapi.Document {
	var out []openapi.Document
	for _, d := range slices.Concat(h.core.PreparedDocuments(), h.core.Documents()) {
		if version, ok := coreapi.DocumentVersion(d.Path); ok && h.hidden(version) {
			continue
		}
		out = append(out, openapi.Document(d))
	}
	return out
}

// localSwagger returns the OpenAPI v2 documents of the local groups. The documents of custom resources are built when
// they are read.
func (h *parts) localSwagger() []openapi.Source {
	var sources []openapi.Source
	if h.cfg.Embedded.Hidden == nil {
		sources = append(sources, openapi.Prepared(openapi.Document(h.core.PreparedSwagger())))
	} else {
		sources = append(sources, openapi.Prepared(openapi.Document(h.core.TrimmedSwagger(h.hidden))))
	}
	for _, added := range h.core.AddedSwagger() {
		sources = append(sources, openapi.Prepared(openapi.Document(added)))
	}
	custom, err := h.core.Swagger()
	if err != nil {
		h.log.Error("leaving custom resources out of the OpenAPI v2 document", zap.Error(err))
	}
	for _, c := range custom {
		sources = append(sources, openapi.Source{Hash: c.Hash, Document: func() (openapi.Document, error) {
			body, err := c.Build()
			if err != nil {
				return openapi.Document{}, err
			}
			return openapi.NewDocument("", body)
		}})
	}
	return sources
}

// issuer signs tokens for the local groups.
type issuer struct{ tokens *serviceaccount.Tokens }

func (i issuer) IssueToken(ctx context.Context, namespace, name string, uid types.UID, spec authenticationv1.TokenRequestSpec) (registry.IssuedToken, error) {
	issued, err := i.tokens.Issue(ctx, serviceaccount.IssueRequest{Namespace: namespace, Name: name, UID: uid, Spec: spec})
	if err != nil {
		return registry.IssuedToken{}, err
	}
	audiences := spec.Audiences
	if len(audiences) == 0 {
		audiences = i.tokens.Audiences()
	}
	return registry.IssuedToken{
		Status:    authenticationv1.TokenRequestStatus{Token: issued.Token, ExpirationTimestamp: metav1.NewTime(issued.Expires)},
		Audiences: audiences, CredentialID: issued.CredentialID,
	}, nil
}
