package apiservice

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap/zaptest"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/routetable"
)

func verdictsOf(texts ...string) []replicaVerdict {
	var out []replicaVerdict
	for i, text := range texts {
		part := strings.SplitN(text+"||", "|", 3)
		names := map[string]replicaVerdict{"T": {status: "True", reason: reasonPassed, message: "all checks passed"}, "F": {status: "False"}, "U": {status: "Unknown"}}
		v := names[part[0]]
		v.replica = string(rune('a' + i))
		if part[1] != "" {
			v.reason, v.message = part[1], strings.TrimRight(part[2], "|")
		}
		out = append(out, v)
	}
	return out
}

func TestMergeReplicaVotes(t *testing.T) {
	for _, c := range []struct {
		name            string
		votes           []string // status|reason|message
		status, reason  string
		message         string
		everywhere      string
		everywhereWords string
	}{
		{"all well", []string{"T", "T", "T"}, "True", reasonPassed, "all checks passed", "True", "every replica"},
		{"one is enough", []string{"F|FailedDiscoveryCheck|refused", "F|FailedDiscoveryCheck|refused", "T"}, "True", reasonPassed, "all checks passed", "False", "do not reach the backend: a, b"},
		{"one that cannot know is no harm", []string{"T", "U|ServiceAccessError|x"}, "True", reasonPassed, "all checks passed", "False", "do not reach the backend: b"},
		{"none reaches it", []string{"F|FailedDiscoveryCheck|refused", "F|FailedDiscoveryCheck|refused"}, "False", reasonFailedDiscoveryCheck, "refused", "False", "no replica"},
		{"alone", []string{"F|ServiceNotFound|gone"}, "False", reasonServiceNotFound, "gone", "False", "no replica"},
		{"the majority's reason", []string{"F|A|1", "F|B|2", "F|B|3"}, "False", "B", "2", "False", "no replica"},
		{"the majority's message for it", []string{"F|A|timeout", "F|B|x", "F|B|y", "F|B|y", "F|A|timeout"}, "False", "B", "y", "False", "no replica"},
		{"a tie is for the first in the alphabet", []string{"F|B|2", "F|A|9"}, "False", "A", "9", "False", "no replica"},
		{"words before none", []string{"F|A|", "F|A|why"}, "False", "A", "why", "False", "no replica"},
		{"most know that it is down", []string{"F|A|1", "U|B|2", "F|A|1"}, "False", "A", "1", "False", "no replica"},
		{"most know nothing", []string{"U|A|1", "U|A|1", "F|B|2"}, "Unknown", "A", "1", "False", "no replica"},
		{"half know that it is down", []string{"U|A|1", "F|B|2"}, "False", "B", "2", "False", "no replica"},
	} {
		t.Run(c.name, func(t *testing.T) {
			votes := verdictsOf(c.votes...)
			for range 20 { // any replica folds, in any order
				got := fold(votes)
				if string(got.Status) != c.status || got.Reason != c.reason || got.Message != c.message {
					t.Fatalf("fold() = %s %s %q, want %s %s %q", got.Status, got.Reason, got.Message, c.status, c.reason, c.message)
				}
				all := allReplicasCondition(votes, func(string) bool { return false })
				if string(all.Status) != c.everywhere || !strings.Contains(all.Message, c.everywhereWords) || all.Type != AvailableOnAllReplicas {
					t.Fatalf("allReplicasCondition() = %s %q, want %s %q", all.Status, all.Message, c.everywhere, c.everywhereWords)
				}
				rand.Shuffle(len(votes), func(i, j int) { votes[i], votes[j] = votes[j], votes[i] })
			}
		})
	}
}

func TestLongReplicaListIsTruncated(t *testing.T) {
	votes := verdictsOf(append([]string{"T"}, strings.Split(strings.Repeat("F|A|x,", 24)+"F|A|x", ",")...)...)
	if got := allReplicasCondition(votes, func(string) bool { return false }).Message; !strings.HasSuffix(got, "b, c, d, e, f, g, h, i, j, k and 15 more") {
		t.Errorf("message = %q, want suffix %q", got, "b, c, d, e, f, g, h, i, j, k and 15 more")
	}
}

func TestConditionNamesForwardingReplicas(t *testing.T) {
	votes := verdictsOf("T", "F|A|x", "T")
	message := allReplicasCondition(votes, func(replica string) bool { return replica == votes[2].replica }).Message
	if want := "replicas that do not reach the backend: " + votes[1].replica + "; they hand its requests to replicas that do: " + votes[2].replica; message != want {
		t.Errorf("message = %q, want %q", message, want)
	}
}

// peerGroup is a group of replicas in one process. The first one to join leads.
type peerGroup struct {
	mu      sync.Mutex
	seats   []*peer
	changed chan struct{}
}

type peer struct {
	circle *peerGroup
	name   string
	said   []byte
	words  int // number of new values
}

func newPeerGroup() *peerGroup { return &peerGroup{changed: make(chan struct{})} }

func (c *peerGroup) join(name string) *peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &peer{circle: c, name: name}
	c.seats = append(c.seats, s)
	c.wake()
	return s
}

// wake is called with mu held.
func (c *peerGroup) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// die removes a replica, as when its lease runs out.
func (s *peer) die() {
	s.circle.mu.Lock()
	defer s.circle.mu.Unlock()
	s.circle.seats = slices.DeleteFunc(s.circle.seats, func(o *peer) bool { return o == s })
	s.circle.wake()
}

func (s *peer) Publish(value []byte) {
	s.circle.mu.Lock()
	defer s.circle.mu.Unlock()
	if string(value) != string(s.said) {
		s.said = value
		s.words++
		s.circle.wake()
	}
}

func (s *peer) Received() (map[string][]byte, bool) {
	s.circle.mu.Lock()
	defer s.circle.mu.Unlock()
	others := make(map[string][]byte)
	for _, o := range s.circle.seats {
		if o != s {
			others[o.name] = o.said
		}
	}
	return others, len(s.circle.seats) > 0 && s.circle.seats[0] == s
}

func (s *peer) Changed() <-chan struct{} {
	s.circle.mu.Lock()
	defer s.circle.mu.Unlock()
	return s.circle.changed
}

func (s *peer) spoke() int {
	s.circle.mu.Lock()
	defer s.circle.mu.Unlock()
	return s.words
}

// routed returns a remote route with a verdict.
func routed(i int, status, reason, message string) *routetable.Route {
	gv := schema.GroupVersion{Group: fmt.Sprintf("g%d.io", i), Version: "v1"}
	return &routetable.Route{
		GroupVersion: gv, Name: apiServiceName(gv), UID: types.UID(fmt.Sprint("uid-", i)),
		Service:   &apiregistrationv1.ServiceReference{Namespace: "test", Name: "server"},
		Condition: available(condition(apiregistrationv1.ConditionStatus(status), reason, message)),
	}
}

func TestVerdictsAreDecodedAsEncoded(t *testing.T) {
	up, down := routed(1, "True", reasonPassed, "all checks passed"), routed(2, "False", "A", "why")
	here, unborn, unheard := routed(3, "True", reasonLocal, ""), routed(4, "True", reasonPassed, ""), routed(5, "Unknown", routetable.ReasonNotChecked, "")
	here.Local, unborn.UID = true, ""
	text, err := encodeVerdicts(routetable.NewTable([]*routetable.Route{up, down, here, unborn, unheard}, true))
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeVerdicts(text)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]sharedVerdict{
		up.Name:   {UID: up.UID, Service: "test/server:443", Status: "True"},
		down.Name: {UID: down.UID, Service: "test/server:443", Status: "False", Reason: "A", Message: "why"},
	}
	if !maps.Equal(got, want) {
		t.Errorf("decodeVerdicts() = %+v, want %+v", got, want)
	}
	if !got[up.Name].matches(up) {
		t.Errorf("the decoded verdict on %s does not match its route, want a match", up.Name)
	}
	moved, anew := *up, *up
	moved.Service, anew.UID = &apiregistrationv1.ServiceReference{Namespace: "test", Name: "other"}, "another"
	if got[up.Name].matches(&moved) || got[up.Name].matches(&anew) {
		t.Errorf("the verdict on %s matches a route with another Service or UID, want no match", up.Name)
	}
}

func TestExcessVerdictsAreEncodedWithoutMessages(t *testing.T) {
	var routes []*routetable.Route
	for i := range 3000 {
		routes = append(routes, routed(i, "False", reasonFailedDiscoveryCheck, strings.Repeat("x", maxErrorMessage)))
	}
	text, err := encodeVerdicts(routetable.NewTable(routes, true))
	if err != nil || len(text) > maxEncodedVerdicts {
		t.Fatalf("encodeVerdicts() = %d bytes, error %v, want at most %d bytes and no error", len(text), err, maxEncodedVerdicts)
	}
	if got, err := decodeVerdicts(text); err != nil || len(got) != 3000 || got[routes[0].Name].Reason != reasonFailedDiscoveryCheck {
		t.Errorf("decodeVerdicts() = %d verdicts, error %v, want 3000 with reason %s", len(got), err, reasonFailedDiscoveryCheck)
	}
}

func TestUpdateReturnsPeerChangesSinceLastUpdate(t *testing.T) {
	c := newPeerGroup()
	own := newReplicas(c.join("a"), "a", nil, zaptest.NewLogger(t))
	other := c.join("b")
	say := func(routes ...*routetable.Route) {
		text, err := encodeVerdicts(routetable.NewTable(routes, true))
		if err != nil {
			t.Fatal(err)
		}
		other.Publish(text)
	}
	if n := own.update(); !n.all {
		t.Errorf("first update = %+v, want all: a replica is new and leads", n)
	}
	say(routed(1, "True", reasonPassed, ""), routed(2, "True", reasonPassed, ""))
	if n := own.update(); n.all || n.names.Len() != 2 {
		t.Errorf("update after two new verdicts = %+v, want 2 names", n)
	}
	say(routed(1, "False", "A", ""), routed(2, "True", reasonPassed, ""))
	if n := own.update(); n.all || n.names.Len() != 1 || !n.names.Has("v1.g1.io") || !own.disagrees(routed(1, "True", reasonPassed, "")) {
		t.Errorf("update after one changed verdict = %+v, want v1.g1.io and disagreement", n)
	}
	if n := own.update(); n.all || n.names.Len() != 0 {
		t.Errorf("update without changes = %+v, want none", n)
	}
	other.Publish([]byte("{nonsense"))
	if n := own.update(); !n.names.Has("v1.g1.io") || len(own.verdicts(routed(1, "True", reasonPassed, ""))) != 1 || own.size() != 2 {
		t.Errorf("update after an unreadable value = %+v, want v1.g1.io changed, one verdict left and 2 replicas", n)
	}
	other.die()
	if n := own.update(); !n.all || own.size() != 1 {
		t.Errorf("update after the other replica left = %+v, want all and 1 replica", n)
	}
}
