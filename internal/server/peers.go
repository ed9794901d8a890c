package server

import (
	"net"
	"net/http"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico.dev/internal/filters"
	"portico.dev/internal/logging"
	"portico.dev/internal/metrics"
	"portico.dev/internal/replicas/peers"
	"portico.dev/internal/request"
	"portico.dev/internal/respond"
)

// Replicas verifies requests from other replicas. peers.Peers implements it.
type Replicas interface {
	// Verify returns the sender's statement about a request.
	Verify(r *http.Request) (*peers.Statement, error)
}

// maxHandedOn limits the concurrent requests from other replicas, including long-running ones.
const maxHandedOn = 1000

// SplitPeers routes the requests of other replicas to fromPeers, and the requests of clients to fromClients. Checks
// of this replica's health (peers.EtcdCheck, peers.LiveCheck) do not require a proof of identity: a replica without
// etcd may not be able to identify any other replica.
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

// NewPeerChain returns next behind the filters for requests from other replicas. The forwarding replica has
// authenticated, audited, counted and admitted them. This chain authorizes them again.
func NewPeerChain(c ChainConfig, replicas Replicas, m *metrics.Peers, next http.Handler) http.Handler {
	resolver := request.NewResolver()
	return filters.Chain(next, []filters.Filter{
		{Name: "recover", Wrap: recoverFilter(c.Logger, c.Metrics, c.slowClientsOfChain())},
		{Name: "canonicalPath", Wrap: canonicalPathFilter(c.Metrics)},
		{Name: "requestInfo", Wrap: filters.RequestInfo(resolver)},
		{Name: "auditInit", Wrap: auditInitFilter()},
		{Name: "ready", Wrap: readyFilter(c.Ready)},
		{Name: "drain", Wrap: c.Drainer.filter()},
		{Name: "deadline", Wrap: deadlineFilter(c.RequestTimeout, nil)},
		{Name: "peerAuthentication", Wrap: peerFilter(replicas, m, c.Logger)},
		{Name: "authorization", Wrap: authorizationFilter(c.Authorizer, c.UpgradesNeedCreate, c.Logger)},
	})
}

// peerFilter sets the user of a request from its statement. A request without a valid statement gets a 503: its
// sender may be a replica that has just started.
func peerFilter(replicas Replicas, m *metrics.Peers, log *zap.Logger) func(http.Handler) http.Handler {
	log = logging.Limited(log)
	slots := newSeatLimit(maxHandedOn)
	release := filters.StepFunc(func(any) { slots.Release(); m.Serving(-1) })
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			statement, err := replicas.Verify(r)
			if err != nil {
				m.Received("refused")
				log.Warn("rejected a peer request", zap.String("remote", r.RemoteAddr), zap.String("path", filters.Bounded(r.URL.Path)), zap.Error(err))
				refusal := apierrors.NewServiceUnavailable("this replica takes no requests under the name " + peers.ServerName + " but those of other replicas: " + err.Error())
				refusal.ErrStatus.Details = retryAfter(1)
				respond.Error(w, r, refusal)
				return
			}
			select {
			case slots <- struct{}{}:
				m.Serving(1)
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
