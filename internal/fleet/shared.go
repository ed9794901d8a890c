package fleet

import (
	"crypto/sha256"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/dispatch"
	"portico.dev/internal/filters"
	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/proxy"
	"portico.dev/internal/routes/sharedreads"
)

// serveShared serves a read from a shared response or watch, after the cluster has authorized the user. It returns false, without a
// response, if the request must be sent to the API servers as its user.
func (f *Fleet) serveShared(w http.ResponseWriter, r *filters.Request, s *selection) bool {
	rule := s.member.sharing(r)
	if rule == nil {
		return false
	}
	r.Request = proxy.WithoutNominated(r.Request)
	if r.Info.Verb == "watch" {
		return rule.Watches && f.shareWatch(w, r, s)
	}
	return dispatch.MayShareRead(r, nil) && s.member.authorize(r) == nil && f.shareRead(w, r, s, rule)
}

// sharing returns the rule that shares the responses to a request, or nil.
func (m *member) sharing(r *filters.Request) *v1alpha1.SharedResources {
	if !r.Info.IsResourceRequest || r.Info.Subresource != "" {
		return nil
	}
	name := schema.GroupResource{Group: r.Info.APIGroup, Resource: r.Info.Resource}.String()
	for i := range m.object.Spec.Shared {
		if rule := &m.object.Spec.Shared[i]; slices.Contains(rule.Resources, name) {
			return rule
		}
	}
	return nil
}

// version changes with the Cluster and with its Secret, so that responses from before are not served.
func (m *member) version() []string {
	return []string{"cluster", m.name, string(m.object.UID), strconv.FormatInt(m.object.Generation, 10), m.credentials}
}

func (f *Fleet) shareRead(w http.ResponseWriter, r *filters.Request, s *selection, rule *v1alpha1.SharedResources) bool {
	m, permitted := s.member, true
	r.Record.ServedBy = "cluster"
	policy := sharedreads.Policy{MaxAge: rule.MaxAge.Duration}
	if rule.StaleIfError != nil {
		policy.StaleIfError = rule.StaleIfError.Duration
	}
	f.config.SharedReads.Serve(w, r.Request, sharedreads.Request{
		Key: dispatch.ReadKey(r, f.config.Proxy, m.version()...), User: s.payer(r), Of: "cluster/" + m.name,
		Policy: policy, Unkeyed: dispatch.IsUnkeyed,
		Send: func(w http.ResponseWriter) { permitted = m.link.ServeOwn(w, r) },
	})
	return permitted
}

func (f *Fleet) shareWatch(w http.ResponseWriter, r *filters.Request, s *selection) bool {
	q, ok := dispatch.SharedWatchOf(r)
	if !ok || s.member.authorize(r) != nil {
		return false
	}
	version := s.member.version()
	key := sha256.Sum256([]byte(strings.Join(append(slices.Clip(version), q.Path, q.Query), "\x00")))
	q.Key = string(key[:])
	q.User, q.Of, q.Backend = s.payer(r), "cluster/"+s.name, ownWatches{s.member.link}
	q.Current = func() bool {
		now := f.members.Load().byName[s.name]
		return now != nil && slices.Equal(now.version(), version)
	}
	return dispatch.ServeSharedWatch(w, r, f.config.SharedWatches, &q, "cluster")
}

// payer returns the user to whom the memory of shared responses is charged.
func (s *selection) payer(r *filters.Request) string {
	if s.token {
		return userOfCluster(r.Context(), r.User).GetName()
	}
	return r.UserName
}

// ownWatches sends the requests of shared watches as the front door. Their header names the user for extension servers.
type ownWatches struct{ link *link }

// RoundTrip implements http.RoundTripper.
func (o ownWatches) RoundTrip(r *http.Request) (*http.Response, error) {
	out := *r
	out.Header = http.Header{"Accept": r.Header["Accept"], "User-Agent": r.Header["User-Agent"]}
	return o.link.RoundTrip(&out)
}
