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

	"portico.dev/internal/run"
)

// replicas is the replicas of this server and what they think. Routing never asks it: a replica sends requests where it
// can reach a backend itself, and only what is written for all to read is decided together.
type replicas struct {
	peers Peers // nil: this replica is alone
	name  string
	log   *zap.Logger

	mu sync.Mutex // guards what follows
	// received is what the others said, by replica, and heard is the same read; both without this replica.
	received map[string][]byte
	decoded  map[string]map[string]sharedVerdict
	led      bool // what the last listen heard of leading
}

func newReplicas(peers Peers, name string, log *zap.Logger) *replicas {
	return &replicas{peers: peers, name: name, log: log, decoded: make(map[string]map[string]sharedVerdict)}
}

// peerChanges is what changed from one listen to the next.
type peerChanges struct {
	// all is set when it concerns every APIService: a replica came or went, or another one writes now.
	all bool
	// names are the APIServices of which another replica thinks differently than before.
	names sets.Set[string]
}

// update takes in what the others say by now.
func (c *replicas) update() peerChanges {
	said, leads := c.peers.Hear()
	c.mu.Lock()
	defer c.mu.Unlock()
	n := peerChanges{names: sets.New[string]()}
	n.all = leads != c.led || len(said) != len(c.received)
	for replica, text := range said {
		before, known := c.received[replica]
		n.all = n.all || !known
		if known && bytes.Equal(before, text) {
			continue
		}
		opinions, err := decodeVerdicts(text)
		if err != nil {
			// A replica of another version, perhaps. It has no vote, and the others go on.
			c.log.Warn("a replica is not understood", zap.String("replica", replica), zap.Error(err))
		}
		n.names = n.names.Union(differences(c.decoded[replica], opinions))
		c.decoded[replica] = opinions
	}
	maps.DeleteFunc(c.decoded, func(replica string, _ map[string]sharedVerdict) bool {
		_, alive := said[replica]
		return !alive
	})
	c.received, c.led = said, leads
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

// leads reports whether this replica is the one that writes.
func (c *replicas) leads() bool {
	if c.peers == nil {
		return true
	}
	_, leads := c.peers.Hear()
	return leads
}

// size is how many replicas there are.
func (c *replicas) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.decoded) + 1
}

// others is what the other replicas think of a route, by replica.
func (c *replicas) others(r *Route) map[string]sharedVerdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]sharedVerdict)
	for replica, opinions := range c.decoded {
		if o, ok := opinions[r.Name]; ok && o.matches(r) {
			out[replica] = o
		}
	}
	return out
}

// verdicts is this replica's verdict, and then the others' by name. Only this replica's is of this very moment.
func (c *replicas) verdicts(r *Route) []replicaVerdict {
	votes := []replicaVerdict{{replica: c.name, status: r.Condition.Status, reason: r.Condition.Reason, message: r.Condition.Message}}
	others := c.others(r)
	for _, replica := range slices.Sorted(maps.Keys(others)) {
		o := others[replica]
		votes = append(votes, replicaVerdict{replica: replica, status: o.Status, reason: o.Reason, message: o.Message})
	}
	return votes
}

// disagrees reports whether another replica finds a backend well and this one does not, or the reverse.
func (c *replicas) disagrees(r *Route) bool {
	for _, o := range c.others(r) {
		if (o.Status == apiregistrationv1.ConditionTrue) != r.Available() {
			return true
		}
	}
	return false
}

// conditions is the conditions of an APIService as they should stand, given those that stand now.
func (c *replicas) conditions(r *Route, stored []apiregistrationv1.APIServiceCondition, now metav1.Time) []apiregistrationv1.APIServiceCondition {
	votes := c.verdicts(r)
	if r.Local || len(votes) == 1 {
		return c.conditionsAlone(r, votes, stored, now)
	}
	verdict, all := fold(votes), allReplicasCondition(votes)
	verdict.LastTransitionTime, all.LastTransitionTime = now, now
	return append([]apiregistrationv1.APIServiceCondition{verdict, all}, r.extra...)
}

// conditionsAlone is conclude with one vote: the verdict stands as it is, and the condition of all replicas is kept true where
// there are others, who have not made up their minds, or were.
func (c *replicas) conditionsAlone(r *Route, votes []replicaVerdict, stored []apiregistrationv1.APIServiceCondition, now metav1.Time) []apiregistrationv1.APIServiceCondition {
	out := []apiregistrationv1.APIServiceCondition{r.Condition}
	if _, there := findCondition(stored, availableOnAllReplicas); !r.Local && (there || c.size() > 1) {
		all := allReplicasCondition(votes)
		all.LastTransitionTime = now
		out = append(out, all)
	}
	return append(out, r.extra...)
}

func findCondition(conditions []apiregistrationv1.APIServiceCondition, t apiregistrationv1.APIServiceConditionType) (apiregistrationv1.APIServiceCondition, bool) {
	i := slices.IndexFunc(conditions, func(c apiregistrationv1.APIServiceCondition) bool { return c.Type == t })
	if i < 0 {
		return apiregistrationv1.APIServiceCondition{}, false
	}
	return conditions[i], true
}

// Peers is how the replicas of this server tell each other what they see.
type Peers interface {
	// Say publishes a value in place of what this replica said before, for as long as it lives. It must not block, and
	// must not write what was said already.
	Say(value []byte)
	// Hear returns what each of the other replicas that are alive said last, empty for those that said nothing yet, and
	// whether this replica is the one that writes for all. No two think so of themselves for long, but for a moment they
	// may: every write has a resourceVersion for a precondition.
	Hear() (others map[string][]byte, leads bool)
	// Changed returns a channel that is closed when Hear next returns something else.
	Changed() <-chan struct{}
}

// sharedVerdict is what one replica thinks of one APIService.
type sharedVerdict struct {
	// UID and Service are what it thinks so of. An APIService that was made anew or points elsewhere by now is not it.
	UID     types.UID                         `json:"uid"`
	Service string                            `json:"service"`
	Status  apiregistrationv1.ConditionStatus `json:"status"`
	// Reason and Message say why it is not available.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// sharedVerdictOf is what a route says to other replicas; false when it says nothing: what is local is so everywhere, and a
// backend that was not heard of yet may be well.
func sharedVerdictOf(r *Route) (sharedVerdict, bool) {
	if r.Local || r.UID == "" || r.Condition.Reason == reasonNotChecked {
		return sharedVerdict{}, false
	}
	o := sharedVerdict{UID: r.UID, Service: serviceAddress(r.Service), Status: r.Condition.Status}
	if !r.Available() {
		o.Reason, o.Message = r.Condition.Reason, r.Condition.Message
	}
	return o, true
}

// matches reports whether an opinion is of what a route is about.
func (o sharedVerdict) matches(r *Route) bool {
	return o.UID == r.UID && o.Service == serviceAddress(r.Service)
}

func serviceAddress(ref *apiregistrationv1.ServiceReference) string {
	if ref == nil {
		return ""
	}
	return fmt.Sprintf("%s/%s:%d", ref.Namespace, ref.Name, portOf(ref))
}

// maxEncodedVerdicts is the most that is said. etcd takes a little more in one request.
const maxEncodedVerdicts = 1 << 20

// encodeVerdicts is a replica's opinions as others read them, by APIService. With so many unavailable that it does not fit,
// reasons have to do without messages.
func encodeVerdicts(t *Table) ([]byte, error) {
	opinions := make(map[string]sharedVerdict)
	for _, r := range t.Routes() {
		if o, ok := sharedVerdictOf(r); ok {
			opinions[r.Name] = o
		}
	}
	text, err := json.Marshal(opinions) // sorts by name: the same opinions are the same bytes
	if err != nil || len(text) <= maxEncodedVerdicts {
		return text, err
	}
	for name, o := range opinions {
		o.Message = ""
		opinions[name] = o
	}
	return json.Marshal(opinions)
}

// decodeVerdicts is the reverse of saying. A replica that said nothing yet has no opinions.
func decodeVerdicts(text []byte) (map[string]sharedVerdict, error) {
	opinions := make(map[string]sharedVerdict)
	if len(text) == 0 {
		return opinions, nil
	}
	if err := json.Unmarshal(text, &opinions); err != nil {
		return nil, fmt.Errorf("what another replica says does not parse: %w", err)
	}
	return opinions, nil
}

// exchangeInterval is the least time between two rounds of talk with the other replicas. The first word after a silence is not
// delayed.
const exchangeInterval = 100 * time.Millisecond

// exchangeVerdicts tells the other replicas what this one sees, and acts on what they see, until ctx ends.
func (c *Controller) exchangeVerdicts(ctx context.Context) {
	if c.replicas.peers == nil {
		return
	}
	var spoken *Table
	for ctx.Err() == nil {
		table, peers := c.Changed(), c.replicas.peers.Changed() // before either is read
		if t := c.Table(); t != spoken {
			c.publishVerdicts(t)
			spoken = t
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

func (c *Controller) publishVerdicts(t *Table) {
	text, err := encodeVerdicts(t)
	if err != nil {
		c.log.Error("tell the other replicas", zap.Error(err))
		return
	}
	c.replicas.peers.Say(text)
}

// handlePeerChanges looks again at what other replicas see differently than before: at the status, and, where this replica disagrees,
// at the backend. A replica that had no reason to look for half a minute so learns in a moment that a backend went, and
// one that is backing off that it is back. Only a change of mind of another replica leads to a probe, so that replicas
// that go on disagreeing do not go on asking.
func (c *Controller) handlePeerChanges(n peerChanges) {
	for _, r := range c.Table().Routes() {
		if !n.all && !n.names.Has(r.Name) {
			continue
		}
		c.status.queue.Add(r.Name)
		if m, ok := c.monitors.lookup(r.Backend); ok && n.names.Has(r.Name) && c.replicas.disagrees(r) {
			m.probeSoon()
		}
	}
}

// availableOnAllReplicas says whether it matters which replica a client meets.
const availableOnAllReplicas apiregistrationv1.APIServiceConditionType = "AvailableOnAllReplicas"

// replicaVerdict is one replica's verdict.
type replicaVerdict struct {
	replica string
	status  apiregistrationv1.ConditionStatus
	reason  string
	message string
}

func (v replicaVerdict) available() bool { return v.status == apiregistrationv1.ConditionTrue }

// fold makes one Available condition of at least one vote. One replica that reaches the backend is enough: a client that
// meets another is told so by that one. When none does, the most frequent reason counts, and the most frequent message
// for it; among equals the choice does not depend on who folds.
//
// It has no time: see mergeConditions.
func fold(votes []replicaVerdict) apiregistrationv1.APIServiceCondition {
	for _, v := range votes {
		if v.available() {
			return available(condition(v.status, reasonPassed, "all checks passed"))
		}
	}
	status := mostFrequent(votes, func(v replicaVerdict) string { return string(v.status) })
	votes = filterVerdicts(votes, func(v replicaVerdict) bool { return string(v.status) == status })
	reason := mostFrequent(votes, func(v replicaVerdict) string { return v.reason })
	votes = filterVerdicts(votes, func(v replicaVerdict) bool { return v.reason == reason })
	message := mostFrequent(votes, func(v replicaVerdict) string { return v.message })
	return available(condition(apiregistrationv1.ConditionStatus(status), reason, message))
}

func available(c apiregistrationv1.APIServiceCondition) apiregistrationv1.APIServiceCondition {
	c.Type = apiregistrationv1.Available
	return c
}

func filterVerdicts(votes []replicaVerdict, that func(replicaVerdict) bool) []replicaVerdict {
	return slices.DeleteFunc(slices.Clone(votes), func(v replicaVerdict) bool { return !that(v) })
}

// mostFrequent is the word that most votes have; of those that equally many have, the one with something to say, then
// the first in the alphabet.
func mostFrequent(votes []replicaVerdict, word func(replicaVerdict) string) string {
	count := make(map[string]int)
	for _, v := range votes {
		count[word(v)]++
	}
	best := word(votes[0])
	for w, n := range count {
		if cmp.Or(cmp.Compare(count[best], n), preference(w, best)) < 0 {
			best = w
		}
	}
	return best
}

// preference is negative when a is the better word of two that are equally frequent.
func preference(a, b string) int {
	if (a == "") != (b == "") {
		return cmp.Compare(len(b), len(a))
	}
	return cmp.Compare(a, b)
}

// namedReplicas bounds the list in a message.
const namedReplicas = 10

// allReplicasCondition makes the AvailableOnAllReplicas condition of at least one vote.
func allReplicasCondition(votes []replicaVerdict) apiregistrationv1.APIServiceCondition {
	var blind []string
	for _, v := range votes {
		if !v.available() {
			blind = append(blind, v.replica)
		}
	}
	var c apiregistrationv1.APIServiceCondition
	switch {
	case len(blind) == 0:
		c = condition(apiregistrationv1.ConditionTrue, "AllReplicas", "every replica reaches the backend")
	case len(blind) == len(votes):
		c = condition(apiregistrationv1.ConditionFalse, "NoReplica", "no replica reaches the backend")
	default:
		c = condition(apiregistrationv1.ConditionFalse, "SomeReplicas", "replicas that do not reach the backend: "+joinNames(blind))
	}
	c.Type = availableOnAllReplicas
	return c
}

func joinNames(names []string) string {
	slices.Sort(names)
	if rest := len(names) - namedReplicas; rest > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namedReplicas], ", "), rest)
	}
	return strings.Join(names, ", ")
}
