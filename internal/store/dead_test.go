package store

import (
	"context"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// presences are the answers to the presence checks of replicas.
type presences struct {
	mu sync.Mutex // guards of
	of map[string]Presence
}

func (p *presences) set(name string, is Presence) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[name] = is
}

func (p *presences) ask(_ context.Context, name string) Presence {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[name]
}

// leaveKey leaves the key of a replica that does not renew its lease, which lasts longer than the test.
func leaveKey(t *testing.T, s *Store, name string) {
	t.Helper()
	lease, err := s.Client().Grant(within(t), 3600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client().KV.Put(within(t), ownPrefix+liveKeys+name, "", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
}

// A dead replica is replaced before its lease ends, whether it led or not. A replica that answers, or that cannot be checked,
// is not.
func TestDeadReplicasAreRemoved(t *testing.T) {
	inBubble(t, testDeadReplicasAreRemoved)
}

func testDeadReplicasAreRemoved(t *testing.T, s *Store) {
	p := &presences{of: map[string]Presence{"leader": Present, "renews": Gone}}
	leaveKey(t, s, "leader")
	join := func(name string) *Replicas {
		r := s.Replicas(name)
		r.UsePresence(p.ask)
		runReplica(t, r)
		return r
	}
	second := join("second")
	third := join("renews") // every check reports that it is gone
	leaveKey(t, s, "another")
	hears(t, second, false, "leader=", "renews=", "another=")
	hears(t, third, false, "leader=", "second=", "another=")

	p.set("leader", Silent)
	hears(t, second, true, "renews=", "another=")
	p.set("another", Gone)
	hears(t, second, true, "renews=")
	hears(t, third, false, "second=")
	leaveKey(t, s, "unknown")
	leaveKey(t, s, "late")
	hears(t, second, true, "renews=", "unknown=", "late=")
	p.set("late", Gone) // not before it was reported: it would be checked soon, and removed
	hears(t, second, true, "renews=", "unknown=")
	if _, leads := third.Received(); leads {
		t.Error("a replica that renews its lease was removed, want it kept")
	}
}

// Each replica is checked by exactly one other, which leads when the checked one is gone, or leads already.
func TestEachReplicaIsCheckedByExactlyOneReplica(t *testing.T) {
	members := map[string]replicaKey{"a": {created: 1}, "b": {created: 2}, "c": {created: 3}, "d": {created: 4}}
	asked := map[string]string{}
	for name := range members {
		a := &session{Replicas: &Replicas{name: name, members: members}}
		for _, other := range a.watched() {
			if by := asked[other]; by != "" {
				t.Errorf("%s is checked by %s and %s, want one of them", other, by, name)
			}
			asked[other] = name
		}
	}
	for name, by := range map[string]string{"a": "b", "b": "a", "c": "a", "d": "a"} {
		if asked[name] != by {
			t.Errorf("%s is checked by %q, want %q", name, asked[name], by)
		}
	}
	if got := (&session{Replicas: &Replicas{name: "new", members: members}}).watched(); got != nil {
		t.Errorf("watched() of a replica without a key = %q, want nil", got)
	}
}
