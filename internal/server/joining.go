package server

import (
	"net/http"

	"portico.dev/internal/filters"
	"portico.dev/internal/replicas/cluster"
	"portico.dev/internal/request"
)

// SplitJoining routes the requests of replicas that join the cluster to joining, and all other requests to others.
func SplitJoining(joining, others http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil && r.TLS.ServerName == cluster.ServerName {
			joining.ServeHTTP(w, r)
			return
		}
		others.ServeHTTP(w, r)
	})
}

// NewJoinChain returns next behind the filters for requests of joining replicas. next authenticates them by their
// tokens.
func NewJoinChain(c ChainConfig, next http.Handler) http.Handler {
	return filters.Chain(next, []filters.Filter{
		{Name: "recover", Wrap: recoverFilter(c.Logger, c.Metrics, c.slowClientsOfChain())},
		{Name: "canonicalPath", Wrap: canonicalPathFilter(c.Metrics)},
		{Name: "requestInfo", Wrap: filters.RequestInfo(request.NewResolver())},
		{Name: "auditInit", Wrap: auditInitFilter()},
		{Name: "drain", Wrap: c.Drainer.filter()},
		{Name: "deadline", Wrap: deadlineFilter(c.RequestTimeout, nil)},
	})
}
