package server

import (
	"context"
	"net"
	"net/http"

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/filters"
	"portico.dev/internal/logging"
	"portico.dev/internal/metrics"
	"portico.dev/internal/peers"
	"portico.dev/internal/proxy"
	"portico.dev/internal/request"
	"portico.dev/internal/respond"
	"portico.dev/internal/transport"
)

// Replicas hands requests to other replicas, and knows those that come from them: peers.Peers.
type Replicas interface {
	// Backend is how requests are handed to any of these replicas, which are sorted by name.
	Backend(names []string) (*transport.Backend, error)
	// Serving are the replicas that serve a group-version themselves because of their release.
	Serving(gv schema.GroupVersion) []string
	// State signs what another replica is told about a request, and Verify reads it.
	State(r *http.Request, u user.Info) (string, error)
	Verify(r *http.Request) (*peers.Statement, error)
}

// maxHandedOn bounds the requests of other replicas that are served at once. Those that run for long count too.
const maxHandedOn = 1000

// SplitPeers sends the requests of other replicas to one handler, and those of clients to another. Replicas are told whether
// this one is well (peers.EtcdCheck, peers.LiveCheck) without a proof of who they are: a replica without etcd may know no other any more.
func SplitPeers(fromPeers, fromClients, health http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.TLS == nil || r.TLS.ServerName != peers.ServerName:
			fromClients.ServeHTTP(w, r)
		case r.Method == http.MethodGet && (r.URL.Path == peers.EtcdCheck || r.URL.Path == peers.LiveCheck):
			health.ServeHTTP(w, r)
		default:
			fromPeers.ServeHTTP(w, r)
		}
	})
}

// NewPeerChain puts before next what requests of other replicas need. Those have been authenticated, audited, counted and admitted
// by the replica that hands them on; they are authorized again.
func NewPeerChain(c ChainConfig, replicas Replicas, m *metrics.Peers, next http.Handler) http.Handler {
	resolver := request.NewResolver()
	return filters.Chain(next, []filters.Filter{
		{Name: "recover", Wrap: recoverFilter(c.Logger, c.Metrics, newSlowClients(c.RequestTimeout, c.Memory.Share(slowBudget, 8)))},
		{Name: "canonicalPath", Wrap: canonicalPathFilter(c.Metrics)},
		{Name: "requestInfo", Wrap: filters.RequestInfo(resolver)},
		{Name: "auditInit", Wrap: auditInitFilter()},
		{Name: "ready", Wrap: readyFilter(c.Ready)},
		{Name: "drain", Wrap: c.Drainer.filter()},
		{Name: "deadline", Wrap: deadlineFilter(c.RequestTimeout, false)},
		{Name: "peerAuthentication", Wrap: peerFilter(replicas, m, c.Logger)},
		{Name: "authorization", Wrap: authorizationFilter(c.Authorizer, c.UpgradesNeedCreate, c.Logger)},
	})
}

// peerFilter gives a request the user of its statement. A request without one that holds is answered 503: its sender may be a
// replica that has just begun to live.
func peerFilter(replicas Replicas, m *metrics.Peers, log *zap.Logger) func(http.Handler) http.Handler {
	log = logging.Limited(log)
	slots := newSeatLimit(maxHandedOn)
	release := filters.StepFunc(func(any) { slots.Release() })
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			statement, err := replicas.Verify(r)
			if err != nil {
				m.Received("refused")
				log.Warn("request for other replicas refused", zap.String("remote", r.RemoteAddr), zap.String("path", filters.Bounded(r.URL.Path)), zap.Error(err))
				refusal := apierrors.NewServiceUnavailable("this replica takes no requests under the name " + peers.ServerName + " but those of other replicas: " + err.Error())
				refusal.ErrStatus.Details = retryAfter(1)
				respond.Error(w, r, refusal)
				return
			}
			select {
			case slots <- struct{}{}:
				filters.AtEnd(r.Context(), release)
			default:
				m.Received("limited")
				respond.Error(w, r, apierrors.NewTooManyRequests("this replica serves as many requests of other replicas as it may", 1))
				return
			}
			m.Received("served")
			s, r := requestContextOf(r)
			s.User = statement.User()
			r = r.WithContext(peers.WithStatement(r.Context(), statement))
			r.Header.Del(peers.Header)
			r.Host = statement.Host
			if statement.Client != "" {
				r.RemoteAddr = net.JoinHostPort(statement.Client, "0")
			}
			next.ServeHTTP(w, r)
		})
	}
}

// handOn is how a request is handed to one of these replicas. False: there is none, or the request comes from another replica
// already.
func (s *Router) handOn(ctx context.Context, apiService string, names []string) (proxy.Destination, bool) {
	if s.Replicas == nil || len(names) == 0 {
		return proxy.Destination{}, false
	}
	if _, already := peers.StatementFrom(ctx); already {
		return proxy.Destination{}, false
	}
	backend, err := s.Replicas.Backend(names)
	if err == nil {
		s.PeerMetrics.Sent(apiService)
	}
	return proxy.Destination{
		Backend: backend, APIService: apiService, Statement: proxy.Statement{Header: peers.Header, State: s.Replicas.State},
	}, err == nil
}

// handToEtcd is how a request for a local group is handed to a replica that has etcd. False: this one has it too, or none has.
func (s *Router) handToEtcd(r *filters.Request, gv schema.GroupVersion) (proxy.Destination, bool) {
	return s.handOn(r.Context(), gv.Version+"."+gv.Group, s.WithEtcd())
}

// needsEtcd reports whether a request for a local group is better served by a replica that has etcd. Reviews are made from caches: extension
// servers need them, and they are the same everywhere.
func needsEtcd(r *filters.Request, gv schema.GroupVersion) bool {
	return r.IsResource() && gv.Group != authenticationv1.GroupName && gv.Group != authorizationv1.GroupName
}

// Elsewhere implements proxy.Fallback: a request for a backend that this replica turns out not to reach goes to one that does.
func (s *Router) Elsewhere(r *http.Request, failed proxy.Destination) (proxy.Destination, bool) {
	gv, _ := groupVersionOf(r.URL.Path)
	route, ok := s.Routes().Lookup(gv)
	if !ok || s.ReachedBy == nil {
		return proxy.Destination{}, false
	}
	for _, part := range route.Parts {
		if part.Name == failed.APIService {
			route = part
		}
	}
	next, ok := s.handOn(r.Context(), failed.APIService, s.ReachedBy(route))
	next.LongRunning, next.Observer = failed.LongRunning, failed.Observer
	return next, ok
}

// servedElsewhere are the replicas that serve a group-version that this one does not know.
func (s *Router) servedElsewhere(gv schema.GroupVersion) []string {
	if s.Replicas == nil {
		return nil
	}
	return s.Replicas.Serving(gv)
}
