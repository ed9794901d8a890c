package limits

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/filters"
	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/metrics"
)

// Limits are the limits in one version of a Cluster. They are safe for concurrent use.
type Limits struct {
	cluster     string
	maintenance *v1alpha1.ClusterMaintenance
	rules       []*rule
	refused     *metrics.Cluster

	mu *sync.Mutex // guards the limiters of rules, which Limits of other versions may share
}

// New returns the limits in c. Users keep the allowance that they have in previous, which may be nil, under rules that did not change.
func New(c *v1alpha1.Cluster, previous *Limits, m *metrics.Clusters) *Limits {
	l := &Limits{cluster: c.Name, maintenance: c.Spec.Maintenance, refused: m.For(c.Name), mu: &sync.Mutex{}}
	if previous != nil {
		l.mu = previous.mu
	}
	for i := range c.Spec.Limits.Rates {
		l.rules = append(l.rules, newRule(&c.Spec.Limits.Rates[i], previous))
	}
	return l
}

// Check returns the error with which a request is refused, or nil. It takes a request from the allowance of its user under every rule
// that matches, unless it returns an error.
func (l *Limits) Check(r *filters.Request) error {
	if m := l.maintenance; m != nil && !isExempt(m, r) && (m.Mode != v1alpha1.ReadOnly || !changesNothing(r)) {
		l.refused.InMaintenance()
		return l.inMaintenance()
	}
	if exceeded := l.take(r); exceeded != nil {
		l.refused.OverRate()
		return l.overRate(exceeded)
	}
	return nil
}

// take returns the rule that a request would exceed, or nil.
func (l *Limits) take(r *filters.Request) *rule {
	var matching []*rule
	for _, rule := range l.rules {
		if rule.matches(r) {
			matching = append(matching, rule)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, rule := range matching {
		if rule.limiter(r.UserName).TokensAt(now) < 1 {
			return rule
		}
	}
	for _, rule := range matching {
		rule.limiter(r.UserName).AllowN(now, 1)
	}
	return nil
}

// retryAfter is the Retry-After of refusals, in seconds. A rate is at least one request per second. During maintenance it is as short,
// because kubectl repeats a request ten times before it prints the message.
const retryAfter = 1

func (l *Limits) overRate(exceeded *rule) error {
	return apierrors.NewTooManyRequests(fmt.Sprintf("you make more requests to cluster %s than its limit %q allows, which is %d per second for each user: try again in a second",
		l.cluster, exceeded.Name, exceeded.RequestsPerSecond), retryAfter)
}

func (l *Limits) inMaintenance() error {
	state := "is closed for maintenance"
	if l.maintenance.Mode == v1alpha1.ReadOnly {
		state = "is in maintenance: it serves only reads"
	}
	message := fmt.Sprintf("cluster %s %s", l.cluster, state)
	if text := l.maintenance.Message; text != "" {
		message += ": " + text
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
		Message: message, Details: &metav1.StatusDetails{RetryAfterSeconds: retryAfter},
	}}
}

func isExempt(m *v1alpha1.ClusterMaintenance, r *filters.Request) bool {
	return len(m.ExemptGroups) > 0 && isMember(r, m.ExemptGroups)
}

// isMember reports whether the user is in one of groups.
func isMember(r *filters.Request, groups []string) bool {
	return r.User != nil && slices.ContainsFunc(r.User.GetGroups(), func(g string) bool { return slices.Contains(groups, g) })
}

// changesNothing reports whether a request is a read or a review. An upgraded connection can carry anything.
func changesNothing(r *filters.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return !isUpgrade(r.Header)
	case http.MethodPost:
		return isReview(r)
	}
	return false
}

func isUpgrade(h http.Header) bool {
	return len(h["Upgrade"]) > 0 || slices.ContainsFunc(h["Connection"], func(v string) bool { return strings.Contains(strings.ToLower(v), "upgrade") })
}

// reviews are resources whose create requests store nothing. kubectl auth uses them.
var reviews = map[schema.GroupResource]bool{
	{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}:       true,
	{Group: "authentication.k8s.io", Resource: "tokenreviews"}:             true,
	{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}:  true,
	{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}:   true,
	{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}: true,
	{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}:      true,
}

func isReview(r *filters.Request) bool {
	return r.Info.IsResourceRequest && r.Info.Verb == "create" && r.Info.Subresource == "" &&
		reviews[schema.GroupResource{Group: r.Info.APIGroup, Resource: r.Info.Resource}]
}
