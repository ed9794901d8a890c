package apiservice

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/routetable"
	"portico.dev/internal/run"
)

// replicas holds the verdicts of the other replicas. A replica sends requests to all backends that it reaches, regardless
// of these verdicts. It forwards requests for other backends to a replica that reaches them. The shared status depends on
// all verdicts.
type replicas struct {
	peers Peers // nil if there are no other replicas
	name  string
	hops  func(replica string) bool // Config.Hops
	log   *zap.Logger

	mu sync.Mutex // guards the fields below
	// received contains the published values of the other replicas, by replica, and decoded the decoded values.
	received map[string][]byte
	decoded  map[string]map[string]sharedVerdict
	led      bool // whether this replica led at the last update
}

func newReplicas(peers Peers, name string, hops func(replica string) bool, log *zap.Logger) *replicas {
	return &replicas{peers: peers, name: name, hops: hops, log: log, decoded: make(map[string]map[string]sharedVerdict)}
}

// peerChanges contains the changes between two updates.
type peerChanges struct {
	// all is set if every APIService is affected: a replica joined or left, or the leader changed.
	all bool
	// names are the APIServices on which another replica's verdict changed.
	names sets.Set[string]
}

// update reads the published values of the other replicas.
func (c *replicas) update() peerChanges {
	received, leads := c.peers.Received()
	c.mu.Lock()
	defer c.mu.Unlock()
	n := peerChanges{names: sets.New[string]()}
	n.all = leads != c.led || len(received) != len(c.received)
	for replica, text := range received {
		before, known := c.received[replica]
		n.all = n.all || !known
		if known && bytes.Equal(before, text) {
			continue
		}
		verdicts, err := decodeVerdicts(text)
		if err != nil {
			// The replica may run a different version. Its verdicts are ignored.
			c.log.Warn("ignoring the unreadable verdicts of a replica", zap.String("replica", replica), zap.Error(err))
		}
		n.names = n.names.Union(differences(c.decoded[replica], verdicts))
		c.decoded[replica] = verdicts
	}
	maps.DeleteFunc(c.decoded, func(replica string, _ map[string]sharedVerdict) bool {
		_, alive := received[replica]
		return !alive
	})
	c.received, c.led = received, leads
	return n
}

func differences(a, b map[string]sharedVerdict) sets.Set[string] {
	out := sets.New[string]()
	for name, o := range a {
		if b[name] != o {
			out.Insert(name)
		}
	}
	for name := range b {
		if _, both := a[name]; !both {
			out.Insert(name)
		}
	}
	return out
}

// leads reports whether this replica writes the status.
func (c *replicas) leads() bool {
	if c.peers == nil {
		return true
	}
	_, leads := c.peers.Received()
	return leads
}

// size returns the number of replicas.
func (c *replicas) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.decoded) + 1
}

// verdictsOf returns the verdicts of the other replicas on a route, by replica.
func (c *replicas) verdictsOf(r *routetable.Route) map[string]sharedVerdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]sharedVerdict)
	for replica, verdicts := range c.decoded {
		if o, ok := verdicts[r.Name]; ok && o.matches(r) {
			out[replica] = o
		}
	}
	return out
}

// verdicts returns this replica's verdict, then the verdicts of the other replicas by name. Only this replica's verdict is
// current.
func (c *replicas) verdicts(r *routetable.Route) []replicaVerdict {
	verdicts := []replicaVerdict{{replica: c.name, status: r.Condition.Status, reason: r.Condition.Reason, message: r.Condition.Message}}
	others := c.verdictsOf(r)
	for _, replica := range slices.Sorted(maps.Keys(others)) {
		o := others[replica]
		verdicts = append(verdicts, replicaVerdict{replica: replica, status: o.Status, reason: o.Reason, message: o.Message})
	}
	return verdicts
}

// disagrees reports whether a backend is available to another replica and not to this one, or the reverse.
func (c *replicas) disagrees(r *routetable.Route) bool {
	for _, o := range c.verdictsOf(r) {
		if (o.Status == apiregistrationv1.ConditionTrue) != r.Available() {
			return true
		}
	}
	return false
}

// conditions returns the conditions that an APIService should have, given the stored ones.
func (c *replicas) conditions(r *routetable.Route, stored []apiregistrationv1.APIServiceCondition, now metav1.Time) []apiregistrationv1.APIServiceCondition {
	verdicts := c.verdicts(r)
	if r.Local || len(verdicts) == 1 {
		return c.conditionsAlone(r, verdicts, stored, now)
	}
	verdict, all := fold(verdicts), c.onAllReplicas(verdicts)
	verdict.LastTransitionTime, all.LastTransitionTime = now, now
	return append([]apiregistrationv1.APIServiceCondition{verdict, all}, r.Extra...)
}

// conditionsAlone returns the conditions for a single verdict. It updates AvailableOnAllReplicas only if that exists, or if
// there are other replicas, which have no verdict yet.
func (c *replicas) conditionsAlone(r *routetable.Route, verdicts []replicaVerdict, stored []apiregistrationv1.APIServiceCondition, now metav1.Time) []apiregistrationv1.APIServiceCondition {
	out := []apiregistrationv1.APIServiceCondition{r.Condition}
	if _, there := findCondition(stored, AvailableOnAllReplicas); !r.Local && (there || c.size() > 1) {
		all := c.onAllReplicas(verdicts)
		all.LastTransitionTime = now
		out = append(out, all)
	}
	return append(out, r.Extra...)
}

func findCondition(conditions []apiregistrationv1.APIServiceCondition, t apiregistrationv1.APIServiceConditionType) (apiregistrationv1.APIServiceCondition, bool) {
	i := slices.IndexFunc(conditions, func(c apiregistrationv1.APIServiceCondition) bool { return c.Type == t })
	if i < 0 {
		return apiregistrationv1.APIServiceCondition{}, false
	}
	return conditions[i], true
}

// Peers exchanges values between the replicas of this server.
type Peers interface {
	// Publish publishes this replica's value while the replica is alive. It must not block, and must not write a value that
	// is already published.
	Publish(value []byte)
	// Received returns the values of the other live replicas, empty for replicas that have not published yet, and whether
	// this replica leads. Two replicas may act as leader for a moment, so every write needs a resourceVersion as
	// precondition.
	Received() (others map[string][]byte, leads bool)
	// Changed returns a channel that is closed when the result of Received may have changed.
	Changed() <-chan struct{}
}

// sharedVerdict is the published verdict of one replica on one APIService.
type sharedVerdict struct {
	// UID and Service identify the registration: an APIService that was recreated or changed its Service is a different
	// one.
	UID     types.UID                         `json:"uid"`
	Service string                            `json:"service"`
	Status  apiregistrationv1.ConditionStatus `json:"status"`
	// Reason and Message describe why it is not available.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// sharedVerdictOf returns the published form of a verdict, or false if it is not published: local routes are local on every
// replica, and a backend without probes may be available.
func sharedVerdictOf(r *routetable.Route) (sharedVerdict, bool) {
	if r.Local || r.UID == "" || r.Condition.Reason == routetable.ReasonNotChecked {
		return sharedVerdict{}, false
	}
	o := sharedVerdict{UID: r.UID, Service: serviceAddress(r.Service), Status: r.Condition.Status}
	if !r.Available() {
		o.Reason, o.Message = r.Condition.Reason, r.Condition.Message
	}
	return o, true
}

// matches reports whether a verdict refers to the registration of a route.
func (o sharedVerdict) matches(r *routetable.Route) bool {
	return o.UID == r.UID && o.Service == serviceAddress(r.Service)
}

func serviceAddress(ref *apiregistrationv1.ServiceReference) string {
	if ref == nil {
		return ""
	}
	return fmt.Sprintf("%s/%s:%d", ref.Namespace, ref.Name, portOf(ref))
}

// maxEncodedVerdicts is the maximum size of the published value. etcd accepts slightly more in one request.
const maxEncodedVerdicts = 1 << 20

// encodeVerdicts encodes a replica's verdicts by APIService. If so many are unavailable that they do not fit, messages are
// omitted.
func encodeVerdicts(t *routetable.Table) ([]byte, error) {
	verdicts := make(map[string]sharedVerdict)
	for _, r := range t.All() {
		if o, ok := sharedVerdictOf(r); ok {
			verdicts[r.Name] = o
		}
	}
	text, err := json.Marshal(verdicts) // sorted by name, so that equal verdicts have equal bytes
	if err != nil || len(text) <= maxEncodedVerdicts {
		return text, err
	}
	for name, o := range verdicts {
		o.Message = ""
		verdicts[name] = o
	}
	return json.Marshal(verdicts)
}

// decodeVerdicts is the reverse of encodeVerdicts. A replica that has not published yet has no verdicts.
func decodeVerdicts(text []byte) (map[string]sharedVerdict, error) {
	verdicts := make(map[string]sharedVerdict)
	if len(text) == 0 {
		return verdicts, nil
	}
	if err := json.Unmarshal(text, &verdicts); err != nil {
		return nil, fmt.Errorf("decode verdicts of another replica: %w", err)
	}
	return verdicts, nil
}

// exchangeInterval is the minimum time between two exchanges with the other replicas. The first change after a pause is not
// delayed.
const exchangeInterval = 100 * time.Millisecond

// exchangeVerdicts publishes this replica's verdicts, and processes the verdicts of the other replicas, until ctx ends.
func (c *Controller) exchangeVerdicts(ctx context.Context) {
	if c.replicas.peers == nil {
		return
	}
	var published *routetable.Table
	for ctx.Err() == nil {
		table, peers := c.Changed(), c.replicas.peers.Changed() // before either is read
		if t := c.Table(); t != published {
			c.publishVerdicts(t)
			published = t
		}
		c.handlePeerChanges(c.replicas.update())
		if !run.Pause(ctx, exchangeInterval) {
			return
		}
		select {
		case <-ctx.Done():
		case <-table:
		case <-peers:
		}
	}
}

func (c *Controller) publishVerdicts(t *routetable.Table) {
	text, err := encodeVerdicts(t)
	if err != nil {
		c.log.Error("failed to encode verdicts for other replicas", zap.Error(err))
		return
	}
	c.replicas.peers.Publish(text)
}

// handlePeerChanges queues the status of APIServices with a changed verdict on another replica, and probes the backend if
// this replica disagrees. A replica that was not due to probe for half a minute, or is backing off, thus immediately
// detects that a backend went down or returned. Only a changed verdict causes a probe, so that replicas which keep
// disagreeing do not keep probing.
func (c *Controller) handlePeerChanges(n peerChanges) {
	for _, r := range c.Table().All() {
		if !n.all && !n.names.Has(r.Name) {
			continue
		}
		if r.Of != "" {
			c.routeStatus.queue.Add(r.Of)
		} else {
			c.status.queue.Add(r.Name)
		}
		if !r.Available() {
			c.queue.Add(queueItem{apiService: r.Name}) // updates Route.Replicas
		}
		if m, ok := c.monitors.lookup(r.Backend); ok && n.names.Has(r.Name) && c.replicas.disagrees(r) {
			m.probeSoon()
		}
	}
}

// ReachedBy returns the names of the other replicas that reach the backend of a route and accept forwarded requests.
func (c *Controller) ReachedBy(r *routetable.Route) []string {
	if c.cfg.Hops == nil || c.replicas.peers == nil || r.Local {
		return nil
	}
	var names []string
	for name, verdict := range c.replicas.verdictsOf(r) {
		if verdict.Status == apiregistrationv1.ConditionTrue && c.cfg.Hops(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// HopsChanged notifies the controller that the result of Hops may have changed. It does not block.
func (c *Controller) HopsChanged() {
	for _, r := range c.Table().All() {
		if !r.Available() {
			c.queue.Add(queueItem{apiService: r.Name})
		}
	}
}

// replicaVerdict is one replica's verdict with the replica's name.
type replicaVerdict struct {
	replica string
	status  apiregistrationv1.ConditionStatus
	reason  string
	message string
}

func (v replicaVerdict) available() bool { return v.status == apiregistrationv1.ConditionTrue }

// fold combines at least one verdict into one Available condition. It is True if at least one replica reaches the backend:
// each replica answers its clients by its local verdict. If no replica reaches it, the condition has the most frequent
// reason, and the most frequent message for it. A tie is resolved identically on every replica.
//
// The condition has no time: see mergeConditions.
func fold(verdicts []replicaVerdict) apiregistrationv1.APIServiceCondition {
	for _, v := range verdicts {
		if v.available() {
			return available(condition(v.status, reasonPassed, "all checks passed"))
		}
	}
	status := mostFrequent(verdicts, func(v replicaVerdict) string { return string(v.status) })
	verdicts = filterVerdicts(verdicts, func(v replicaVerdict) bool { return string(v.status) == status })
	reason := mostFrequent(verdicts, func(v replicaVerdict) string { return v.reason })
	verdicts = filterVerdicts(verdicts, func(v replicaVerdict) bool { return v.reason == reason })
	message := mostFrequent(verdicts, func(v replicaVerdict) string { return v.message })
	return available(condition(apiregistrationv1.ConditionStatus(status), reason, message))
}

func available(c apiregistrationv1.APIServiceCondition) apiregistrationv1.APIServiceCondition {
	c.Type = apiregistrationv1.Available
	return c
}

func filterVerdicts(verdicts []replicaVerdict, that func(replicaVerdict) bool) []replicaVerdict {
	return slices.DeleteFunc(slices.Clone(verdicts), func(v replicaVerdict) bool { return !that(v) })
}

// mostFrequent returns the most frequent value among the verdicts. In a tie, a non-empty value wins, then the first in
// alphabetical order.
func mostFrequent(verdicts []replicaVerdict, value func(replicaVerdict) string) string {
	count := make(map[string]int)
	for _, v := range verdicts {
		count[value(v)]++
	}
	best := value(verdicts[0])
	for w, n := range count {
		if cmp.Or(cmp.Compare(count[best], n), preference(w, best)) < 0 {
			best = w
		}
	}
	return best
}

// preference is negative if a wins a tie against b.
func preference(a, b string) int {
	if (a == "") != (b == "") {
		return cmp.Compare(len(b), len(a))
	}
	return cmp.Compare(a, b)
}

// someReplicas is the reason of AvailableOnAllReplicas if replicas disagree.
const someReplicas = "SomeReplicas"

// namedReplicas limits the number of replicas in a message.
const namedReplicas = 10

// onAllReplicas returns allReplicasCondition with the replicas that accept forwarded requests.
func (c *replicas) onAllReplicas(verdicts []replicaVerdict) apiregistrationv1.APIServiceCondition {
	return allReplicasCondition(verdicts, func(replica string) bool {
		return c.hops != nil && (replica == c.name || c.hops(replica))
	})
}

// allReplicasCondition returns the AvailableOnAllReplicas condition for at least one verdict.
func allReplicasCondition(verdicts []replicaVerdict, hops func(replica string) bool) apiregistrationv1.APIServiceCondition {
	var unreachable, takers []string
	for _, v := range verdicts {
		switch {
		case !v.available():
			unreachable = append(unreachable, v.replica)
		case hops(v.replica):
			takers = append(takers, v.replica)
		}
	}
	var c apiregistrationv1.APIServiceCondition
	switch {
	case len(unreachable) == 0:
		c = condition(apiregistrationv1.ConditionTrue, "AllReplicas", "every replica reaches the backend")
	case len(unreachable) == len(verdicts):
		c = condition(apiregistrationv1.ConditionFalse, "NoReplica", "no replica reaches the backend")
	default:
		message := "replicas that do not reach the backend: " + joinNames(unreachable)
		if len(takers) > 0 {
			message += "; they hand its requests to replicas that do: " + joinNames(takers)
		}
		c = condition(apiregistrationv1.ConditionFalse, someReplicas, message)
	}
	c.Type = AvailableOnAllReplicas
	return c
}

func joinNames(names []string) string {
	slices.Sort(names)
	if rest := len(names) - namedReplicas; rest > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namedReplicas], ", "), rest)
	}
	return strings.Join(names, ", ")
}
