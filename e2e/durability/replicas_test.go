package durability

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/client-go/kubernetes"

	"portico.dev/e2e/durability/history"
)

var (
	faultSeed  = flag.Uint64("fault-seed", 0, "seed of the faults and of what clients do; 0 for a new one")
	faultCount = flag.Int("faults", 14, "how many faults several front doors and their etcd have")
)

// place is three front doors over three members of etcd, with a hop between each two of them.
type place struct {
	t      testing.TB
	random *rand.Rand
	etcd   *cluster
	client *clientv3.Client // of all members, without hops
	fronts []*frontDoor
	hops   [][]*relay // by front door and member
	told   *collector
	work   *recorder
}

const (
	frontDoors = 3
	members    = 3
)

// Three front doors over three members of etcd have one fault after another, while clients go from front door to front door with every
// request: nothing that was acknowledged is lost, nobody reads what is older than was asked for, and no watch misses or repeats anything,
// wherever it goes on.
func TestReplicasUnderFaults(t *testing.T) {
	seed := *faultSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with: go test -run TestReplicasUnderFaults ./e2e/durability -args -fault-seed %d -faults %d", seed, *faultCount)
	p := newPlace(t, seed)
	p.work.until(40)
	for i := range *faultCount {
		f := p.next(i)
		began := time.Now()
		f.do(p)
		t.Logf("%s %s: %s", began.Format("15:04:05.0"), f.name, time.Since(began).Round(time.Millisecond))
		p.work.until(15)
	}
	p.work.until(40)
	p.work.stop()
	p.work.judge(p.told.all(p.client))
	for answer, n := range p.work.answers {
		if strings.HasPrefix(answer, "500 ") {
			t.Errorf("%d times %q", n, answer)
		}
	}
	legal := 0
	for _, s := range readStates {
		if s.legal() {
			legal++
		}
	}
	t.Logf("reads were answered in %d of %d states in which they may be", len(p.work.states), legal)
}

func newPlace(t testing.TB, seed uint64) *place {
	p := &place{t: t, random: rand.New(rand.NewPCG(seed, 0))}
	p.etcd = newCluster(t, members, func(c *embed.Config) {
		c.SnapshotCount, c.SnapshotCatchUpEntries = 50, 10 // who was away is sent a snapshot
	})
	p.client = etcdClient(t, p.etcd.endpoints()...)
	p.told = collect(t, p.client)
	var clients []kubernetes.Interface
	for range frontDoors {
		var hops []*relay
		var servers []string
		for _, c := range p.etcd.configs {
			hop := newRelay(t, c.ListenClientUrls[0].Host)
			hops, servers = append(hops, hop), append(servers, "http://"+hop.address())
		}
		d := newFrontDoor(t, "--etcd-compaction-interval", "0", "--bind-address", "127.0.0.1", "--shutdown-delay-duration", "1s", "--etcd-servers", strings.Join(servers, ","))
		if len(p.fronts) > 0 {
			d.beside(p.fronts[0])
		}
		d.start()
		p.fronts, p.hops, clients = append(p.fronts, d), append(p.hops, hops), append(clients, d.client())
	}
	p.work = recordAt(t, clients, seed, 5, 4, 4)
	return p
}

// fault is something that goes wrong, and is over when do returns.
type fault struct {
	name string
	do   func(p *place)
}

// faults come in an order that the seed decides, each once before one comes again.
var faults = []fault{
	{"a front door is killed", func(p *place) {
		d := p.front()
		d.kill()
		p.work.until(10)
		d.start()
	}},
	{"a front door is frozen", func(p *place) {
		d := p.front()
		d.signal(syscall.SIGSTOP)
		p.last(8 * time.Second)
		d.signal(syscall.SIGCONT)
	}},
	{"a front door is restarted", func(p *place) {
		d := p.front()
		d.stop()
		d.start()
	}},
	{"a front door is cut off from etcd", func(p *place) { p.hold(p.oneFront(), refuses) }},
	{"a front door hears nothing of etcd", func(p *place) { p.hold(p.oneFront(), deaf) }},
	{"a front door reaches one member of etcd only", func(p *place) {
		hops := p.oneFront()
		i := p.random.IntN(len(hops))
		p.hold(append(append([]*relay(nil), hops[:i]...), hops[i+1:]...), silent)
	}},
	{"nobody reaches one member of etcd", func(p *place) {
		i := p.random.IntN(members)
		var hops []*relay
		for _, of := range p.hops {
			hops = append(hops, of[i])
		}
		p.hold(hops, silent)
	}},
	{"etcd is slow", func(p *place) {
		for _, hops := range p.hops {
			for _, h := range hops {
				h.delay.Store(int64(time.Duration(p.random.IntN(100)) * time.Millisecond))
				defer h.delay.Store(0)
			}
		}
		p.last(5 * time.Second)
	}},
	{"a member of etcd is away, and is sent a snapshot", func(p *place) {
		i := p.random.IntN(members)
		p.etcd.stop(i, i+1)
		p.work.until(80)
		p.etcd.start(i, i+1)
	}},
	{"etcd has no quorum", func(p *place) {
		i := p.random.IntN(members - 1)
		p.etcd.stop(i, i+2)
		p.last(6 * time.Second)
		p.etcd.start(i, i+2)
	}},
	{"another member of etcd leads", func(p *place) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		leader := p.etcd.running[0].Server.Leader()
		for i, m := range p.etcd.running {
			if m.Server.MemberID() == leader {
				next := p.etcd.running[(i+1)%members].Server.MemberID()
				if err := m.Server.MoveLeader(ctx, uint64(leader), uint64(next)); err != nil {
					p.t.Logf("the leader stays: %v", err)
				}
			}
		}
	}},
	{"etcd is compacted", func(p *place) { p.compact(p.told.revision() - 20) }},
	{"etcd is compacted up to now, and defragmented", func(p *place) {
		p.compact(p.told.revision())
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for _, endpoint := range p.etcd.endpoints() {
			if _, err := p.client.Defragment(ctx, endpoint); err != nil {
				p.t.Error(err)
			}
		}
	}},
	{"a member of etcd is replaced", func(p *place) { p.etcd.replace(p.client, p.random.IntN(members)) }},
}

// next is the i-th fault.
func (p *place) next(i int) fault {
	if i%len(faults) == 0 {
		p.random.Shuffle(len(faults), func(a, b int) { faults[a], faults[b] = faults[b], faults[a] })
	}
	return faults[i%len(faults)]
}

func (p *place) front() *frontDoor { return p.fronts[p.random.IntN(frontDoors)] }

func (p *place) oneFront() []*relay { return p.hops[p.random.IntN(frontDoors)] }

// hold lets hops be in a mode for a while.
func (p *place) hold(hops []*relay, mode int32) {
	for _, h := range hops {
		h.become(mode)
	}
	p.last(8 * time.Second)
	for _, h := range hops {
		h.become(passes)
	}
}

func (p *place) compact(revision int64) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := p.client.Compact(ctx, revision); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		p.t.Error(err)
	}
}

// last waits for some part of a time.
func (p *place) last(most time.Duration) {
	pause(context.Background(), time.Second+time.Duration(p.random.Int64N(int64(most-time.Second))))
}

// replace removes a member and has a new one, without data, at its address: first as a learner.
func (c *cluster) replace(client *clientv3.Client, i int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	config := c.configs[i]
	id := uint64(c.running[i].Server.MemberID())
	c.stop(i, i+1)
	c.retry(ctx, "remove a member", func() error { _, err := client.MemberRemove(ctx, id); return err })
	if err := os.RemoveAll(config.Dir); err != nil {
		c.t.Fatal(err)
	}
	peer := config.AdvertisePeerUrls[0].String()
	var added *clientv3.MemberAddResponse
	c.retry(ctx, "add a learner", func() (err error) {
		added, err = client.MemberAddAsLearner(ctx, []string{peer})
		return err
	})
	// The name must be new: others may still know the old one.
	config.Name += "+"
	config.ClusterState = embed.ClusterStateFlagExisting
	config.InitialCluster = initialCluster(added.Members, config)
	c.begin(i)
	c.retry(ctx, "promote the learner", func() error { _, err := client.MemberPromote(ctx, added.Member.ID); return err })
	c.ready(i)
}

func initialCluster(all []*pb.Member, own *embed.Config) string {
	var names []string
	for _, m := range all {
		name := m.Name
		if name == "" {
			name = own.Name
		}
		for _, u := range m.PeerURLs {
			names = append(names, name+"="+u)
		}
	}
	return strings.Join(names, ",")
}

func (c *cluster) retry(ctx context.Context, what string, try func() error) {
	c.t.Helper()
	for err := try(); err != nil; err = try() {
		if !pause(ctx, 10*lookAgain) {
			c.t.Fatalf("%s: %v", what, err)
		}
	}
}

// collector keeps every change that etcd makes to our objects, so that etcd may forget it.
type collector struct {
	t      testing.TB
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex // guards what follows
	events []history.Event
	at     int64
	failed error
}

func collect(t testing.TB, client *clientv3.Client) *collector {
	ctx, cancel := context.WithCancel(context.Background())
	c := &collector{t: t, cancel: cancel}
	changes := client.Watch(ctx, directory, clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithPrevKV(), clientv3.WithProgressNotify())
	c.work.Go(func() {
		for answer := range changes {
			c.take(answer)
		}
	})
	t.Cleanup(func() { c.cancel(); c.work.Wait() })
	return c
}

func (c *collector) take(answer clientv3.WatchResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := answer.Err(); err != nil {
		c.failed = err
		return
	}
	for _, e := range answer.Events {
		if strings.HasPrefix(string(e.Kv.Key), directory+"k-") {
			c.events = append(c.events, decode(c.t, e))
		}
		c.at = e.Kv.ModRevision
	}
	if answer.IsProgressNotify() {
		c.at = max(c.at, answer.Header.Revision)
	}
}

// revision is one up to which everything was told.
func (c *collector) revision() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// all waits until everything was told.
func (c *collector) all(client *clientv3.Client) []history.Event {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	now, err := client.Get(ctx, directory, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		c.t.Fatal(err)
	}
	for c.revision() < now.Header.Revision {
		if err := client.RequestProgress(ctx); err != nil {
			c.t.Fatal(err)
		}
		if !pause(ctx, lookAgain) {
			c.t.Fatalf("etcd did not tell all of its history: %v", c.failed)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		c.t.Fatal(c.failed)
	}
	return c.events
}
