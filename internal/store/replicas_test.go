package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// joined runs a replica until the test ends, or stop is called.
func joined(t *testing.T, s *Store, name string, lease time.Duration) (r *Replicas, stop func()) {
	t.Helper()
	r = s.Replicas(name)
	r.lease = lease
	return r, runReplica(t, r)
}

func runReplica(t *testing.T, r *Replicas) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = func() {
		cancel()
		if err, first := <-done; first {
			close(done)
			if err != nil {
				t.Errorf("Run of %s failed: %v, want no error", r.name, err)
			}
		}
	}
	t.Cleanup(stop)
	select {
	case <-r.Ready():
	case <-time.After(time.Minute):
		t.Fatalf("%s did not join within a minute, want Ready closed", r.name)
	}
	return stop
}

// hears waits until r receives exactly these other replicas, as name=value, and leads or not.
func hears(t *testing.T, r *Replicas, leads bool, want ...string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		changed := r.Changed()
		others, leading := r.Section(VerdictSection).Received()
		matches := leading == leads && len(others) == len(want)
		for _, w := range want {
			found := false
			for name, value := range others {
				found = found || w == fmt.Sprintf("%s=%s", name, value)
			}
			matches = matches && found
		}
		if matches {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("%s receives %q and leads = %v, want %q and %v", r.name, others, leading, want, leads)
		}
	}
}

func TestOldestReplicaLeadsUntilItStops(t *testing.T) {
	s, _ := run(t, Config{DataDir: t.TempDir()})
	first, stopFirst := joined(t, s, "first", time.Hour) // no test waits until it expires
	first.Section(VerdictSection).Publish([]byte("1"))
	hears(t, first, true)
	second, _ := joined(t, s, "second", leaseTime)
	hears(t, second, false, "first=1")
	hears(t, first, true, "second=")
	third, stopThird := joined(t, s, "third", leaseTime)
	second.Section(VerdictSection).Publish([]byte("2"))
	hears(t, third, false, "first=1", "second=2")

	stopFirst()
	hears(t, second, true, "third=")
	hears(t, third, false, "second=2")
	if _, leads := first.Received(); leads {
		t.Error("the replica that ended still leads, want another leader")
	}
	stopThird()
	hears(t, second, true)
}

// Each section is published by a different part of the program, and does not affect the other sections.
func TestReplicaSectionsAreIndependent(t *testing.T) {
	s, _ := run(t, Config{DataDir: t.TempDir()})
	a, _ := joined(t, s, "a", leaseTime)
	b, _ := joined(t, s, "b", leaseTime)
	a.Section("one").Publish([]byte(`{"x":1}`))
	a.Section(VerdictSection).Publish([]byte("2"))
	hears(t, b, false, "a=2")
	a.Section("broken").Publish([]byte("{"))
	a.Section(VerdictSection).Publish([]byte("3"))
	hears(t, b, false, "a=3")
	if others, _ := b.Section("one").Received(); string(others["a"]) != `{"x":1}` {
		t.Errorf("section one of a = %s, want %s", others["a"], `{"x":1}`)
	}
	if others, _ := b.Section("broken").Received(); len(others["a"]) != 0 {
		t.Errorf("section broken of a = %s, want none: it is not JSON", others["a"])
	}
}

// An unreadable value counts as no value. A value from a release without sections is the section of verdicts.
func TestValuesOfOlderAndNewerReleasesAreParsed(t *testing.T) {
	for value, want := range map[string]string{
		"": "", "not JSON": "error", "[1]": "error", `{"sections":[]}`: "error", `{"v1.a":{"uid":"1"}}`: `{"v1.a":{"uid":"1"}}`, `{"sections":{}}`: "",
		`{"new":1,"sections":{"new":[1],"verdicts":{"v1.a":{}}}}`: `{"v1.a":{}}`,
	} {
		sections, err := decodeSections([]byte(value))
		got := string(sections[VerdictSection])
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("decodeSections(%s) = %q, error %v, want %q", value, got, err, want)
		}
	}
}

// A replica with an unreadable value counts as alive, and the error is logged once for each value.
func TestReplicaWithUnreadableValueCountsAsAlive(t *testing.T) {
	core, logged := observer.New(zap.WarnLevel)
	s, _ := run(t, Config{DataDir: t.TempDir(), Logger: zap.New(core)})
	own, _ := joined(t, s, "own", leaseTime)
	ctx := t.Context()
	for _, value := range []string{"{}{", "{}{", "[2]"} {
		if err := s.Put(ctx, liveKeys+"newer", []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	other, _ := joined(t, s, "other", leaseTime)
	other.Section(VerdictSection).Publish([]byte("1"))
	hears(t, own, true, "newer=", "other=1")
	if n := logged.FilterMessageSnippet("ignoring the unreadable data of a replica").FilterField(zap.String("replica", "newer")).Len(); n < 1 || n > 4 { // two replicas, two values
		t.Errorf("ignored values are logged %d times, want 1 to 4", n)
	}
}

func TestDeadReplicaIsRemovedWhenItsLeaseExpires(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Store) {
		lease, err := s.Client().Grant(within(t), 40)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Client().KV.Put(within(t), ownPrefix+liveKeys+"dead", `{"v1.of.before":{}}`, clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
		r, _ := joined(t, s, "alive", leaseTime)
		hears(t, r, false, `dead={"v1.of.before":{}}`)
		hears(t, r, true)
	})
}

func TestReplicaWithDeletedKeyRejoinsAsYoungest(t *testing.T) {
	t.Parallel()
	s, _ := run(t, Config{DataDir: t.TempDir()})
	first, _ := joined(t, s, "first", leaseTime)
	first.Section(VerdictSection).Publish([]byte("1"))
	second, _ := joined(t, s, "second", leaseTime)
	hears(t, second, false, "first=1")
	if err := s.Delete(within(t), "live/first"); err != nil {
		t.Fatal(err)
	}
	hears(t, second, true, "first=1")
	hears(t, first, false, "second=")
}

func TestReplicaLeaseIsRenewed(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Store) {
		r, _ := joined(t, s, "alone", leaseTime)
		hears(t, r, true)
		select {
		case <-r.Changed():
			t.Error("Changed() fired with a single replica, want no change")
		case <-time.After(10 * leaseTime):
		}
		if _, leads := r.Received(); !leads {
			t.Error("the replica does not lead after ten lease times, want its lease renewed")
		}
	})
}

func TestRapidPublishesAreCoalesced(t *testing.T) {
	s, _ := run(t, Config{DataDir: t.TempDir()})
	a, _ := joined(t, s, "a", leaseTime)
	b, _ := joined(t, s, "b", leaseTime)
	for i := range 1000 {
		a.Section(VerdictSection).Publish(fmt.Append(nil, i))
	}
	hears(t, b, false, "a=999")
	key, err := s.Client().KV.Get(within(t), ownPrefix+liveKeys+"a")
	if err != nil {
		t.Fatal(err)
	}
	version := key.Kvs[0].Version
	if version > 10 {
		t.Errorf("%d writes for 1000 published values, want at most 10", version)
	}
	a.Section(VerdictSection).Publish([]byte("999"))
	a.Section(VerdictSection).Publish([]byte(`"over"`))
	hears(t, b, false, `a="over"`)
	if key, err = s.Client().KV.Get(within(t), ownPrefix+liveKeys+"a"); err != nil || key.Kvs[0].Version != version+1 {
		t.Errorf("key after the same value was published again = %v, error %v, want version %d", key, err, version+1)
	}
}

func TestEmbeddedEtcdStartsWithoutEarlierReplicas(t *testing.T) {
	dir := t.TempDir()
	s, stop := run(t, Config{DataDir: dir})
	// As after a kill: a lease with a long lifetime.
	lease, err := s.Client().Grant(within(t), 3600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client().KV.Put(within(t), ownPrefix+liveKeys+"killed", "", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	again, _ := run(t, Config{DataDir: dir})
	r, _ := joined(t, again, "new", leaseTime)
	if others, leads := r.Received(); len(others) != 0 || !leads {
		t.Errorf("Received() = %v, leads %v, want no other replicas and true", others, leads)
	}
}

func TestReplicaStopsLeadingWhenEtcdStops(t *testing.T) {
	s, stopStore := run(t, Config{DataDir: t.TempDir()})
	r, _ := joined(t, s, "alone", leaseTime)
	hears(t, r, true)
	if err := stopStore(); err != nil {
		t.Fatal(err)
	}
	hears(t, r, false)
}
