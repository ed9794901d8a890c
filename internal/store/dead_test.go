package store

import (
	"context"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// presences are what replicas are told when they ask.
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

// leaveKey leaves the key of a replica behind that does not renew its lease, which lasts for longer than the test.
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

// A dead replica is replaced before its lease ends, whether it led or not; one that answers, or cannot be asked, is not.
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
	third := join("renews") // whoever asks is told that it is gone
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
	p.set("late", Gone) // not before it has been heard of: it would be asked soon, and removed
	hears(t, second, true, "renews=", "unknown=")
	if _, leads := third.Received(); leads {
		t.Error("one that renews its lease was removed")
	}
}

// Who asks whom: each replica is asked by exactly one, which leads when that one is gone, or leads already.
func TestWhoAsksWhom(t *testing.T) {
	members := map[string]replicaKey{"a": {created: 1}, "b": {created: 2}, "c": {created: 3}, "d": {created: 4}}
	asked := map[string]string{}
	for name := range members {
		a := &session{Replicas: &Replicas{name: name, members: members}}
		for _, other := range a.watched() {
			if by := asked[other]; by != "" {
				t.Errorf("%s is asked by %s and %s", other, by, name)
			}
			asked[other] = name
		}
	}
	for name, by := range map[string]string{"a": "b", "b": "a", "c": "a", "d": "a"} {
		if asked[name] != by {
			t.Errorf("%s is asked by %q, want %q", name, asked[name], by)
		}
	}
	if got := (&session{Replicas: &Replicas{name: "new", members: members}}).watched(); got != nil {
		t.Errorf("one without a key asks %q", got)
	}
}
