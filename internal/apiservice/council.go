package apiservice

import (
	"bytes"
	"maps"
	"slices"
	"sync"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// council is the replicas of this server and what they think. Routing never asks it: a replica sends requests where it
// can reach a backend itself, and only what is written for all to read is decided together.
type council struct {
	peers Peers // nil: this replica is alone
	name  string
	log   *zap.Logger

	mu sync.Mutex // guards what follows
	// said is what the others said, by replica, and heard is the same read; both without this replica.
	said  map[string][]byte
	heard map[string]map[string]opinion
	led   bool // what the last listen heard of leading
}

func newCouncil(peers Peers, name string, log *zap.Logger) *council {
	return &council{peers: peers, name: name, log: log, heard: make(map[string]map[string]opinion)}
}

// news is what changed from one listen to the next.
type news struct {
	// all is set when it concerns every APIService: a replica came or went, or another one writes now.
	all bool
	// names are the APIServices of which another replica thinks differently than before.
	names sets.Set[string]
}

// listen takes in what the others say by now.
func (c *council) listen() news {
	said, leads := c.peers.Hear()
	c.mu.Lock()
	defer c.mu.Unlock()
	n := news{names: sets.New[string]()}
	n.all = leads != c.led || len(said) != len(c.said)
	for replica, text := range said {
		before, known := c.said[replica]
		n.all = n.all || !known
		if known && bytes.Equal(before, text) {
			continue
		}
		opinions, err := understand(text)
		if err != nil {
			// A replica of another version, perhaps. It has no vote, and the others go on.
			c.log.Warn("a replica is not understood", zap.String("replica", replica), zap.Error(err))
		}
		n.names = n.names.Union(differences(c.heard[replica], opinions))
		c.heard[replica] = opinions
	}
	maps.DeleteFunc(c.heard, func(replica string, _ map[string]opinion) bool {
		_, alive := said[replica]
		return !alive
	})
	c.said, c.led = said, leads
	return n
}

func differences(a, b map[string]opinion) sets.Set[string] {
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
func (c *council) leads() bool {
	if c.peers == nil {
		return true
	}
	_, leads := c.peers.Hear()
	return leads
}

// size is how many replicas there are.
func (c *council) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.heard) + 1
}

// others is what the other replicas think of a route, by replica.
func (c *council) others(r *Route) map[string]opinion {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]opinion)
	for replica, opinions := range c.heard {
		if o, ok := opinions[r.Name]; ok && o.isOf(r) {
			out[replica] = o
		}
	}
	return out
}

// votes is this replica's verdict, and then the others' by name. Only this replica's is of this very moment.
func (c *council) votes(r *Route) []vote {
	votes := []vote{{replica: c.name, status: r.Condition.Status, reason: r.Condition.Reason, message: r.Condition.Message}}
	others := c.others(r)
	for _, replica := range slices.Sorted(maps.Keys(others)) {
		o := others[replica]
		votes = append(votes, vote{replica: replica, status: o.Status, reason: o.Reason, message: o.Message})
	}
	return votes
}

// disagrees reports whether another replica finds a backend well and this one does not, or the reverse.
func (c *council) disagrees(r *Route) bool {
	for _, o := range c.others(r) {
		if (o.Status == apiregistrationv1.ConditionTrue) != r.Available() {
			return true
		}
	}
	return false
}

// conclude is the conditions of an APIService as they should stand, given those that stand now.
func (c *council) conclude(r *Route, stored []apiregistrationv1.APIServiceCondition, now metav1.Time) []apiregistrationv1.APIServiceCondition {
	votes := c.votes(r)
	if r.Local || len(votes) == 1 {
		return c.alone(r, votes, stored, now)
	}
	verdict, all := fold(votes), everywhere(votes)
	verdict.LastTransitionTime, all.LastTransitionTime = now, now
	return append([]apiregistrationv1.APIServiceCondition{verdict, all}, r.extra...)
}

// alone is conclude with one vote: the verdict stands as it is, and the condition of all replicas is kept true where
// there are others, who have not made up their minds, or were.
func (c *council) alone(r *Route, votes []vote, stored []apiregistrationv1.APIServiceCondition, now metav1.Time) []apiregistrationv1.APIServiceCondition {
	out := []apiregistrationv1.APIServiceCondition{r.Condition}
	if _, there := find(stored, availableOnAllReplicas); !r.Local && (there || c.size() > 1) {
		all := everywhere(votes)
		all.LastTransitionTime = now
		out = append(out, all)
	}
	return append(out, r.extra...)
}

func find(conditions []apiregistrationv1.APIServiceCondition, t apiregistrationv1.APIServiceConditionType) (apiregistrationv1.APIServiceCondition, bool) {
	i := slices.IndexFunc(conditions, func(c apiregistrationv1.APIServiceCondition) bool { return c.Type == t })
	if i < 0 {
		return apiregistrationv1.APIServiceCondition{}, false
	}
	return conditions[i], true
}
