package limits

import (
	"reflect"
	"slices"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"portico.dev/internal/filters"
	"portico.dev/internal/fleet/v1alpha1"
)

// maxUsers limits the users that a rule remembers. A user who has made no request for the longest time has the full allowance again.
const maxUsers = 4096

// rule is one limit, with the allowances of its users.
type rule struct {
	*v1alpha1.RateLimit
	resources []resource
	limiters  *lru.Cache[string, *rate.Limiter]
}

type resource struct{ group, name, subresource string }

// newRule returns the rule in previous if it is the same.
func newRule(l *v1alpha1.RateLimit, previous *Limits) *rule {
	if previous != nil {
		for _, p := range previous.rules {
			if reflect.DeepEqual(p.RateLimit, l) {
				return p
			}
		}
	}
	limiters, err := lru.New[string, *rate.Limiter](maxUsers)
	if err != nil {
		panic(err) // it fails only for a size that is not positive
	}
	r := &rule{RateLimit: l, limiters: limiters}
	for _, name := range l.Resources {
		r.resources = append(r.resources, parseResource(name))
	}
	return r
}

// parseResource reads names such as pods, pods/exec and deployments.apps/scale.
func parseResource(name string) resource {
	groupResource, subresource, _ := strings.Cut(name, "/")
	resourceName, group, _ := strings.Cut(groupResource, ".")
	return resource{group, resourceName, subresource}
}

// matches reports whether a request fulfils all conditions. An empty condition is fulfilled.
func (r *rule) matches(request *filters.Request) bool {
	info := request.Info
	return includes(r.Users, request.UserName) && includes(r.Verbs, info.Verb) && includes(r.Namespaces, info.Namespace) &&
		(len(r.Groups) == 0 || isMember(request, r.Groups)) &&
		(len(r.resources) == 0 || info.IsResourceRequest && slices.Contains(r.resources, resource{info.APIGroup, info.Resource, info.Subresource}))
}

func includes(values []string, value string) bool {
	return len(values) == 0 || slices.Contains(values, value)
}

// limiter returns the allowance of a user. The caller must hold the mutex of the Limits.
func (r *rule) limiter(user string) *rate.Limiter {
	if limiter, ok := r.limiters.Get(user); ok {
		return limiter
	}
	burst := r.RequestsPerSecond
	if r.Burst != nil {
		burst = *r.Burst
	}
	limiter := rate.NewLimiter(rate.Limit(r.RequestsPerSecond), int(burst))
	r.limiters.Add(user, limiter)
	return limiter
}
