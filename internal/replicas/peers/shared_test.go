package peers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"portico.dev/internal/metrics"
)

func TestKeysMatch(t *testing.T) {
	keys := func(uses, accepts string) Keys { return Keys{strings.Fields(uses), strings.Fields(accepts)} }
	for _, c := range []struct {
		situation string
		a, b      Keys
		want      bool
	}{
		{"the same", keys("a", "a"), keys("a", "a"), true},
		{"others", keys("a", "a"), keys("b", "b"), false},
		{"a rotation: both are accepted by both", keys("a", "a b"), keys("b", "a b"), true},
		{"a rotation: the new one is not accepted by all yet", keys("b", "a b"), keys("a", "a"), false},
		{"a rotation: the new one is accepted by one and used by none", keys("a", "a b"), keys("a", "a"), true},
		{"a rotation: the old one is accepted by one and used by none", keys("b", "b"), keys("b", "a b"), true},
		{"nothing of its own: bundles overlap", keys("", "a b"), keys("", "b c"), true},
		{"nothing of its own: bundles do not overlap", keys("", "a"), keys("", "b"), false},
		{"verifies only", keys("", "a"), keys("a", "a"), true},
		{"nothing is known", keys("", ""), keys("", "a"), true},
	} {
		if got := c.a.match(c.b); got != c.want || c.b.match(c.a) != got {
			t.Errorf("%s: %t, and the other way round %t, want %t", c.situation, got, c.b.match(c.a), c.want)
		}
	}
}

// group is replicas that publish keys, in the order in which they began.
type group struct {
	*etcd
	mu    sync.Mutex // guards the following fields
	order []string
	keys  map[string]string // the client CA of each
	// logger is that of replicas that are started from now on.
	logger *zap.Logger
}

func (g *group) oldest() []string { g.mu.Lock(); defer g.mu.Unlock(); return slices.Clone(g.order) }

func (g *group) give(name, key string) { g.mu.Lock(); defer g.mu.Unlock(); g.keys[name] = key }

// start begins a replica with a key. ended has how it ended, once.
func (g *group) start(ctx context.Context, name, key string) (s *SharedKeys, ended chan error) {
	g.give(name, key)
	g.mu.Lock()
	g.order = append(g.order, name)
	g.mu.Unlock()
	s = NewSharedKeys(SharedKeysConfig{
		Section: section{g.etcd, name}, Name: name, Oldest: g.oldest, Logger: g.logger,
		Keys: func() map[Purpose]Keys {
			g.mu.Lock()
			defer g.mu.Unlock()
			return map[Purpose]Keys{ClientCA: {Uses: []string{g.keys[name]}, Accepts: []string{g.keys[name]}}}
		},
	})
	ended = make(chan error, 1)
	go func() {
		err := s.Run(ctx)
		g.set(name, nil) // as its lease ends
		ended <- err
	}()
	return s, ended
}

func isReady(s *SharedKeys) bool {
	select {
	case <-s.Ready():
		return true
	default:
		return false
	}
}

func inGroup(t *testing.T, test func(t *testing.T, ctx context.Context, g *group)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		test(t, ctx, &group{etcd: newEtcd(), keys: map[string]string{}, logger: zap.NewNop()})
		cancel()
		synctest.Wait()
	})
}

func TestReplicaWithDifferentKeysDoesNotStart(t *testing.T) {
	inGroup(t, func(t *testing.T, ctx context.Context, g *group) {
		one, _ := g.start(ctx, "one", "right")
		synctest.Wait()
		two, ended := g.start(ctx, "two", "wrong")
		three, _ := g.start(ctx, "three", "wrong")
		synctest.Wait()
		if !isReady(one) || isReady(two) || isReady(three) {
			t.Errorf("ready: one %t, two %t, three %t; want only one", isReady(one), isReady(two), isReady(three))
		}
		time.Sleep(startPatience + time.Second)
		synctest.Wait()
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), "the client CA of this replica and of one differ") || !strings.Contains(err.Error(), "--client-ca-file") {
				t.Errorf("start with other keys: error = %v, want one with the client CA and its flag", err)
			}
		default:
			t.Error("the replica with other keys has not ended, want an error")
		}
		if err := one.Check(ctx); err != nil {
			t.Errorf("Check of the replica with the right keys = %v, want no error", err)
		}
		four, _ := g.start(ctx, "four", "right")
		synctest.Wait()
		if !isReady(four) {
			t.Error("the new replica with the right keys is not ready, want ready")
		}
	})
}

// A replica waits until the lease of a dead replica with other keys has expired. The dead one may have been the same replica
// before it got these keys.
func TestStartWaitsForLeaseOfDeadReplicaWithDifferentKeys(t *testing.T) {
	inGroup(t, func(t *testing.T, ctx context.Context, g *group) {
		text, err := json.Marshal(sharedKeys{Serves: true, Keys: map[Purpose]Keys{ClientCA: {Uses: []string{"old"}, Accepts: []string{"old"}}}})
		if err != nil {
			t.Fatal(err)
		}
		g.set("dead", text)
		g.order = []string{"dead"}
		s, _ := g.start(ctx, "new", "new")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if isReady(s) {
			t.Error("the replica is ready while another one has other keys, want not ready")
		}
		g.set("dead", nil)
		synctest.Wait()
		if !isReady(s) {
			t.Error("the replica is not ready after the other one ended, want ready")
		}
	})
}

// When keys differ later, the minority or the younger replicas are not ready.
func TestMinorityWithDifferentKeysIsNotReady(t *testing.T) {
	for _, c := range []struct{ keys, ready string }{
		{"aa", "++"}, {"ab", "+-"}, {"baa", "-++"}, {"aba", "+-+"}, {"aab", "++-"}, {"abc", "+--"}, {"aabb", "++--"}, {"abbb", "-+++"},
	} {
		t.Run(c.keys, func(t *testing.T) {
			inGroup(t, func(t *testing.T, ctx context.Context, g *group) {
				var replicas []*SharedKeys
				for i := range c.keys {
					s, _ := g.start(ctx, fmt.Sprint(i), "a")
					synctest.Wait()
					replicas = append(replicas, s)
				}
				check := func(want string) {
					time.Sleep(2 * keysInterval)
					synctest.Wait()
					for i, s := range replicas {
						if err := s.Check(ctx); (err == nil) != (want[i] == '+') {
							t.Errorf("replica %d of %s: %v, want %s", i, c.keys, err, want)
						}
					}
				}
				for i, key := range c.keys {
					g.give(fmt.Sprint(i), string(key))
				}
				check(c.ready)
				for i := range c.keys {
					g.give(fmt.Sprint(i), "c")
				}
				check(strings.Repeat("+", len(c.keys)))
			})
		})
	}
}

func TestClockSkewIsComputedFromDate(t *testing.T) {
	at := func(s float64) time.Time { return time.Unix(0, int64(s*1e9)) }
	for _, c := range []struct {
		theirs          int64
		asked, answered float64
		want            time.Duration
	}{
		{100, 100.2, 100.3, 0}, {100, 100.9, 101.1, 0}, {100, 99.8, 100.1, 0}, {100, 100.99, 102, 0},
		{107, 100.2, 100.5, 6500 * time.Millisecond}, {93, 100.5, 100.6, -6500 * time.Millisecond},
	} {
		if got := skewOf(time.Unix(c.theirs, 0), at(c.asked), at(c.answered)); (got - c.want).Abs() > time.Millisecond {
			t.Errorf("%d between %v and %v: %s, want %s", c.theirs, c.asked, c.answered, got, c.want)
		}
	}
}

func TestClockSkewBetweenReplicasIsReported(t *testing.T) {
	e, gauges := newEtcd(), prometheus.NewRegistry()
	core, logs := observer.New(zap.InfoLevel)
	p, err := New(Config{Section: section{e, "one"}, Name: "one", Metrics: metrics.NewPeers(gauges), Logger: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.set.Close)
	e.set("two", []byte(`{"address":"192.0.2.2:6443","certificate":"x"}`))
	p.update()
	now := time.Now()
	says := func(ahead time.Duration) {
		p.compareClocks("two", now.Add(ahead).UTC().Format(http.TimeFormat), now, now)
	}
	series := func() int {
		n, err := testutil.GatherAndCount(gauges, "portico_replica_clock_skew_seconds")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, c := range []struct {
		ahead time.Duration
		lines int
	}{{0, 0}, {time.Minute, 1}, {time.Minute, 1}, {0, 2}, {-time.Minute, 3}, {-time.Minute, 3}} {
		says(c.ahead)
		if logs.Len() != c.lines || series() != 1 {
			t.Errorf("%s ahead: %d lines in the log, want %d; %d series", c.ahead, logs.Len(), c.lines, series())
		}
	}
	e.set("two", nil)
	p.update()
	says(time.Minute) // by an answer that was under way
	if series() != 0 || logs.Len() != 3 {
		t.Errorf("after the other replica ended: %d series, %d log lines; want 0 and 3", series(), logs.Len())
	}
}

// Keys that a newer release writes in another format are not compared, which is logged once. Unknown fields are ignored.
func TestUnreadableKeysAreNotCompared(t *testing.T) {
	inGroup(t, func(t *testing.T, ctx context.Context, g *group) {
		core, logged := observer.New(zap.WarnLevel)
		g.logger = zap.New(core)
		g.set("newer", []byte(`{"serves":true,"keys":{"client CA":["a list"]}}`))
		g.set("added", []byte(`{"serves":true,"since":1,"keys":{"client CA":{"uses":["right"],"accepts":["right"],"until":1},"new purpose":{"uses":["x"]}}}`))
		g.order = []string{"newer", "added"}
		s, _ := g.start(ctx, "own", "right")
		time.Sleep(5 * keysInterval)
		synctest.Wait()
		if err := s.Check(ctx); err != nil || !isReady(s) {
			t.Errorf("Check = %v, want no error and ready", err)
		}
		if all := logged.All(); len(all) != 1 || all[0].ContextMap()["replica"] != "newer" {
			t.Errorf("log lines = %v, want one about the replica newer", all)
		}
	})
}
