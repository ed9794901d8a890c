package fleet

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/fleet/cluster"
	"portico.dev/internal/fleet/identity"
	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/lifecycle/reconcile"
)

// statusWriter writes the status of Clusters, on the leading replica.
type statusWriter struct {
	fleet   *Fleet
	records sync.Map // of *record, by the name of a cluster

	mu      sync.Mutex // guards the fields below
	changed chan struct{}
	pending map[string]bool // names of clusters whose state has changed
}

// record is what is known of a cluster. One worker has it at a time.
type record struct {
	rights rights
	writes *rate.Limiter
}

// rights are the rights of the front door in a cluster, as found at a time.
type rights struct {
	link        *link
	generation  int64
	credentials string
	at          time.Time
	condition   metav1.Condition
}

const (
	writeTimeout = 10 * time.Second
	// rightsInterval is how often the rights of credentials are checked, rightsRetry how often those that were missing.
	rightsInterval, rightsRetry = 5 * time.Minute, 30 * time.Second
	rightsTimeout               = 10 * time.Second
	statusWorkers               = 4 // a cluster that does not respond keeps one busy for rightsTimeout
	// writeInterval and writeBurst limit the writes for a cluster whose API servers change their state all the time.
	writeInterval, writeBurst = 5 * time.Second, 5
)

func (s *statusWriter) run(ctx context.Context) error {
	l := &reconcile.Loop{
		Name: "cluster-status", Workers: statusWorkers, Delay: settle, Reconcile: s.reconcile, Election: s.fleet.config.Election, Log: s.fleet.log,
		Changed: []func() <-chan struct{}{s.nextChange}, Waiting: s.takePending,
	}
	return l.Run(ctx, reconcile.Source{Informer: s.fleet.config.Clusters, Key: reconcile.NameOf})
}

// follow notes the changes of the state of a cluster until ctx ends.
func (s *statusWriter) follow(ctx context.Context, name string, l *link) {
	for {
		changed := l.Changed()
		s.note(name)
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (s *statusWriter) note(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[name] = true
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *statusWriter) nextChange() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *statusWriter) takePending() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.Collect(maps.Keys(s.pending))
	clear(s.pending)
	return names
}

// reconcile writes the status of a Cluster if it is not current.
func (s *statusWriter) reconcile(ctx context.Context, name string) (time.Duration, error) {
	m := s.fleet.members.Load().byName[name]
	latest, exists, err := s.fleet.config.Clusters.GetStore().GetByKey(name)
	if err != nil || !exists || m == nil {
		s.records.Delete(name)
		return 0, err
	}
	given := latest.(*v1alpha1.Cluster) // may be newer than the one of m
	wanted := given.DeepCopy()
	found, _ := s.records.LoadOrStore(name, &record{writes: rate.NewLimiter(rate.Every(writeInterval), writeBurst)})
	known := found.(*record)
	next := known.observe(ctx, m, &wanted.Status)
	if equality.Semantic.DeepEqual(given.Status, wanted.Status) {
		return next, nil
	}
	if wait := known.turn(); wait > 0 {
		return wait, nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err = s.fleet.config.Client.UpdateStatus(ctx, wanted, metav1.UpdateOptions{})
	return next, reconcile.Ignoring(err, reconcile.IsOutdated)
}

// turn returns the time until the status may be written, or 0, which takes the turn.
func (r *record) turn() time.Duration {
	turn := r.writes.Reserve()
	wait := turn.Delay()
	if wait > 0 {
		turn.Cancel()
	}
	return wait
}

// observe sets the status of a cluster, and returns the time until its rights must be checked again.
func (r *record) observe(ctx context.Context, m *member, status *v1alpha1.ClusterStatus) time.Duration {
	state := m.state()
	status.Endpoints = nil
	for _, e := range state.Endpoints {
		status.Endpoints = append(status.Endpoints, v1alpha1.EndpointStatus{Address: e.Address, Ready: e.Ready, Message: e.Message})
	}
	if state.Version != "" {
		status.Version = state.Version
	}
	available := metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: state.Reason, Message: state.Message}
	switch {
	case m.invalid != nil:
		available.Status, available.Reason, available.Message = metav1.ConditionFalse, v1alpha1.ReasonInvalidServer, m.invalid.Error()
	case m.problem != nil:
		available.Status, available.Reason, available.Message = metav1.ConditionFalse, v1alpha1.ReasonInvalidCredentials, m.problem.Error()
	case !state.Ready:
		available.Status = metav1.ConditionFalse
	}
	r.updateRights(ctx, m, available.Status == metav1.ConditionTrue)
	for _, c := range []metav1.Condition{available, r.rights.condition} {
		c.ObservedGeneration = m.object.Generation
		meta.SetStatusCondition(&status.Conditions, c)
	}
	return max(time.Second, r.rights.interval()-time.Since(r.rights.at))
}

// state returns the state of the API servers.
func (m *member) state() cluster.State {
	if m.link == nil {
		return cluster.State{}
	}
	return m.link.State()
}

// interval returns the time after which rights are checked again.
func (r *rights) interval() time.Duration {
	if r.condition.Status == metav1.ConditionTrue {
		return rightsInterval
	}
	return rightsRetry
}

// updateRights requests the rights of the front door in a cluster when the object or the credentials have changed, and at intervals.
func (r *record) updateRights(ctx context.Context, m *member, reachable bool) {
	known := &r.rights
	current := known.link == m.link && known.generation == m.object.Generation && known.credentials == m.credentials
	if current && time.Since(known.at) < known.interval() && (known.condition.Reason != v1alpha1.ReasonClusterUnavailable || !reachable) {
		return
	}
	found := rights{link: m.link, generation: m.object.Generation, credentials: m.credentials, at: time.Now(), condition: metav1.Condition{
		Type: v1alpha1.ConditionPermitted, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonClusterUnavailable, Message: "no API server is available",
	}}
	if reachable {
		found.condition.Status, found.condition.Reason, found.condition.Message = m.checkRights(ctx)
	}
	r.rights = found
}

// checkRights asks the cluster for the rights that the credentials lack.
func (m *member) checkRights(ctx context.Context) (metav1.ConditionStatus, string, string) {
	ctx, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	spec := &m.object.Spec.Identity
	switch missing, err := identity.Missing(ctx, m.link, identity.Needs{Mode: spec.Mode, Tokens: spec.Tokens, Access: needsAccess(m.object), Shared: m.object.Spec.Shared}); {
	case err != nil:
		return metav1.ConditionUnknown, v1alpha1.ReasonCheckFailed, "the rights of the credentials are unknown: " + err.Error()
	case len(missing) > 0:
		return metav1.ConditionFalse, v1alpha1.ReasonMissingRights, identity.Message(missing)
	}
	return metav1.ConditionTrue, v1alpha1.ReasonRightsGranted, "the credentials have the required rights"
}
