package durability

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"slices"
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

	"portico.dev/internal/simulation/consistency"
)

var (
	faultSeed  = flag.Uint64("fault-seed", 0, "seed of the faults and of what clients do; 0 for a new one")
	faultCount = flag.Int("faults", 16, "how many faults several front doors and their etcd have")
)

// replicatedCluster is three front doors over three members of etcd, with a relay between each two of them.
type replicatedCluster struct {
	t      testing.TB
	random *rand.Rand
	etcd   *cluster
	client *clientv3.Client // of all members, without relays
	fronts []*frontDoor
	relays [][]*relay // by front door and member
	// memberRelays carry the traffic between members: through a member's relay come its responses, and the entries of the raft
	// leader.
	memberRelays []*relay
	changes      *changeLog
	ofIngresses  *changeLog
	recorder     *recorder
}

const (
	frontDoors = 3
	members    = 3
)

// Three front doors over three members of etcd have one fault after another, while clients switch between front doors with
// every request. No acknowledged write is lost, no read is older than requested, and no watch misses or repeats an event at any
// front door.
func TestReplicasUnderFaults(t *testing.T) {
	seed := *faultSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with: go test -run TestReplicasUnderFaults ./e2e/durability -args -fault-seed %d -faults %d", seed, *faultCount)
	p := newReplicatedCluster(t, newPortico)
	p.random = rand.New(rand.NewPCG(seed, 0))
	p.changes = followChanges(t, p.client, directory, readConfigMap)
	p.ofIngresses = followChanges(t, p.client, ingressDirectory, readIngress)
	var clients []kubernetes.Interface
	for _, d := range p.fronts {
		clients = append(clients, d.client())
	}
	p.recorder = recordAt(t, clients, seed, 5, 4, 4)
	statuses := p.recorder.recordStatuses(seed, 2)
	p.recorder.until(40)
	for i := range *faultCount {
		f := p.next(i)
		began := time.Now()
		f.do(p)
		t.Logf("%s %s: %s", began.Format("15:04:05.0"), f.name, time.Since(began).Round(time.Millisecond))
		p.recorder.until(15)
	}
	p.recorder.until(40)
	p.recorder.stop()
	p.recorder.judge(p.changes.all(p.client))
	statuses.judge(p.ofIngresses.all(p.client))
	for answer, n := range p.recorder.answers {
		if strings.HasPrefix(answer, "500 ") {
			t.Errorf("%d responses with %q, want none", n, answer)
		}
	}
	legal := 0
	for _, s := range readStates {
		if s.legal() {
			legal++
		}
	}
	t.Logf("reads were answered in %d of %d states in which they may be", len(p.recorder.states), legal)
}

// newReplica creates a front door over the etcd at these addresses, and does not start it. first is nil for the first one,
// whose keys the following ones get.
type newReplica func(t testing.TB, etcd []string, first *frontDoor) *frontDoor

func newPortico(t testing.TB, etcd []string, first *frontDoor) *frontDoor {
	d := newFrontDoor(t, "--etcd-compaction-interval", "0", "--bind-address", "127.0.0.1", "--shutdown-delay-duration", shutdownDelay.String(),
		"--etcd-servers", strings.Join(etcd, ","))
	d.peers = newRelay(t, d.address())
	_, port, err := net.SplitHostPort(d.peers.address())
	if err != nil {
		t.Fatal(err)
	}
	d.args = append(d.args, "--peer-advertise-ip", "127.0.0.1", "--peer-advertise-port", port)
	if first != nil {
		d.beside(first)
	}
	return d
}

func newReplicatedCluster(t testing.TB, replica newReplica) *replicatedCluster {
	t.Helper()
	p := &replicatedCluster{t: t}
	p.etcd = newCluster(t, members, func(c *embed.Config) {
		c.SnapshotCount, c.SnapshotCatchUpEntries = 50, 10 // a member that was away gets a snapshot
		r := newRelay(t, c.ListenPeerUrls[0].Host)
		c.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: r.address()}}
		p.memberRelays = append(p.memberRelays, r)
	})
	p.client = etcdClient(t, p.etcd.endpoints()...)
	for range frontDoors {
		var relays []*relay
		var servers []string
		for _, c := range p.etcd.configs {
			r := newRelay(t, c.ListenClientUrls[0].Host)
			relays, servers = append(relays, r), append(servers, "http://"+r.address())
		}
		var first *frontDoor
		if len(p.fronts) > 0 {
			first = p.fronts[0]
		}
		d := replica(t, servers, first)
		d.start()
		p.fronts, p.relays = append(p.fronts, d), append(p.relays, relays)
	}
	return p
}

// fault is one fault. It ends before do returns.
type fault struct {
	name string
	do   func(p *replicatedCluster)
}

// faults occur in an order that the seed decides, each once before one occurs again. Faults that need neither a process nor several
// members of etcd are in internal/simulation.
var faults = []fault{
	{"a front door is killed", func(p *replicatedCluster) {
		d := p.front()
		d.kill()
		p.recorder.until(10)
		d.start()
	}},
	{"a front door is frozen", func(p *replicatedCluster) {
		d := p.front()
		d.signal(syscall.SIGSTOP)
		p.waitUpTo(8 * time.Second)
		d.signal(syscall.SIGCONT)
	}},
	{"the clock of a front door is wrong", func(p *replicatedCluster) {
		d := p.front()
		ahead := time.Duration(p.random.IntN(101)-50) * time.Second
		for _, skew := range []time.Duration{ahead, 0} {
			if err := d.process.SetClock(skew); errors.Is(err, errors.ErrUnsupported) {
				p.t.Logf("not tried here: %v", err)
				return
			} else if err != nil {
				p.t.Errorf("setting the clock of a front door failed: %v, want no error", err)
			}
			p.waitUpTo(4 * time.Second)
		}
	}},
	{"a front door reaches one member of etcd only", func(p *replicatedCluster) {
		relays := p.relaysOfOne()
		i := p.random.IntN(len(relays))
		p.disturb(append(append([]*relay(nil), relays[:i]...), relays[i+1:]...), silent)
	}},
	{"nobody reaches one member of etcd", func(p *replicatedCluster) {
		i := p.random.IntN(members)
		var relays []*relay
		for _, of := range p.relays {
			relays = append(relays, of[i])
		}
		p.disturb(relays, silent)
	}},
	{"a member of etcd hears the others, and they do not hear it", func(p *replicatedCluster) {
		p.disturb([]*relay{p.memberRelays[p.random.IntN(members)]}, deaf)
	}},
	{"the raft leader is not heard by the others", func(p *replicatedCluster) {
		p.disturb([]*relay{p.memberRelays[p.etcd.leader()]}, deaf)
	}},
	{"the disk of a member of etcd is slow", func(p *replicatedCluster) { p.slowDisks(1, 800*time.Millisecond) }},
	{"the disks of all members of etcd are slow", func(p *replicatedCluster) { p.slowDisks(members, 300*time.Millisecond) }},
	{"a member of etcd is away, and is sent a snapshot", func(p *replicatedCluster) {
		i := p.random.IntN(members)
		p.etcd.stop(i, i+1)
		p.recorder.until(80)
		p.etcd.start(i, i+1)
	}},
	{"etcd has no quorum", func(p *replicatedCluster) {
		i := p.random.IntN(members - 1)
		p.etcd.stop(i, i+2)
		p.waitUpTo(6 * time.Second)
		p.etcd.start(i, i+2)
	}},
	{"all members of etcd are restarted", func(p *replicatedCluster) {
		p.etcd.stop(0, members)
		p.waitUpTo(4 * time.Second)
		p.etcd.start(0, members)
	}},
	{"another member of etcd leads", func(p *replicatedCluster) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		i := p.etcd.leader()
		from, to := p.etcd.running[i].Server, p.etcd.running[(i+1)%members].Server
		if err := from.MoveLeader(ctx, uint64(from.MemberID()), uint64(to.MemberID())); err != nil {
			p.t.Logf("the leader stays: %v", err)
		}
	}},
	{"etcd is compacted", func(p *replicatedCluster) { p.compact(p.told() - 20) }},
	{"etcd is compacted up to now, and defragmented", func(p *replicatedCluster) {
		p.compact(p.told())
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for _, endpoint := range p.etcd.endpoints() {
			if _, err := p.client.Defragment(ctx, endpoint); err != nil {
				p.t.Error(err)
			}
		}
	}},
	{"a member of etcd is replaced", func(p *replicatedCluster) { p.etcd.replace(p.client, p.random.IntN(members)) }},
}

// next is the i-th fault.
func (p *replicatedCluster) next(i int) fault {
	if i%len(faults) == 0 {
		p.random.Shuffle(len(faults), func(a, b int) { faults[a], faults[b] = faults[b], faults[a] })
	}
	return faults[i%len(faults)]
}

func (p *replicatedCluster) front() *frontDoor { return p.fronts[p.random.IntN(frontDoors)] }

func (p *replicatedCluster) relaysOfOne() []*relay { return p.relays[p.random.IntN(frontDoors)] }

// disturb has relays in a mode for a while.
func (p *replicatedCluster) disturb(relays []*relay, mode int32) {
	p.disturbFor(relays, mode, p.randomTime(8*time.Second))
}

func (p *replicatedCluster) disturbFor(relays []*relay, mode int32, d time.Duration) {
	for _, r := range relays {
		r.become(mode)
	}
	pause(context.Background(), d)
	for _, r := range relays {
		r.become(passes)
	}
}

// slowDisks has every fsync of some members take up to so much longer for a while.
func (p *replicatedCluster) slowDisks(n int, most time.Duration) {
	var dirs []string
	first := p.random.IntN(members)
	for i := range n {
		dirs = append(dirs, p.etcd.configs[(first+i)%members].Dir)
	}
	delay := func() time.Duration { return most/10 + time.Duration(p.random.Int64N(int64(most-most/10))) }
	synced, err := slowDown(dirs, delay, func() { p.waitUpTo(8 * time.Second) })
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		p.t.Logf("not tried here: %v", err)
	case err != nil:
		p.t.Errorf("slowing the disk of a member failed: %v, want no error", err)
	case synced == 0 && n == members:
		p.t.Error("no fsync while the disks of all members were slow, want at least one")
	}
}

// told is a revision that both change logs have reached.
func (p *replicatedCluster) told() int64 { return min(p.changes.revision(), p.ofIngresses.revision()) }

func (p *replicatedCluster) compact(revision int64) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := p.client.Compact(ctx, revision); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		p.t.Error(err)
	}
}

// randomTime is a second at least, and at most the time that is given.
func (p *replicatedCluster) randomTime(most time.Duration) time.Duration {
	return time.Second + time.Duration(p.random.Int64N(int64(most-time.Second)))
}

// waitUpTo waits for some part of a time.
func (p *replicatedCluster) waitUpTo(most time.Duration) {
	pause(context.Background(), p.randomTime(most))
}

// leader is the index of the member that leads.
func (c *cluster) leader() int {
	leader := c.running[0].Server.Leader()
	return max(0, slices.IndexFunc(c.running, func(m *embed.Etcd) bool { return m.Server.MemberID() == leader }))
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
	// The name must be new: the members may still know the old one.
	config.Name += "+"
	config.ClusterState = embed.ClusterStateFlagExisting
	config.InitialCluster = initialCluster(added.Members, config)
	// The member that receives the request may not have the learner yet.
	c.retry(ctx, "start the learner", func() (err error) {
		if err = os.RemoveAll(config.Dir); err == nil {
			c.running[i], err = embed.StartEtcd(config)
		}
		return err
	})
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
			c.t.Fatalf("%s failed until the deadline: %v, want no error", what, err)
		}
	}
}

// changeLog stores every change of the test's objects in etcd, so that etcd may compact it.
type changeLog struct {
	t         testing.TB
	directory string
	read      objectReader
	cancel    context.CancelFunc
	work      sync.WaitGroup

	mu     sync.Mutex // guards the following fields
	events []consistency.Event
	at     int64
	failed error
}

func followChanges(t testing.TB, client *clientv3.Client, directory string, read objectReader) *changeLog {
	ctx, cancel := context.WithCancel(context.Background())
	c := &changeLog{t: t, directory: directory, read: read, cancel: cancel}
	changes := client.Watch(ctx, directory, clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithPrevKV(), clientv3.WithProgressNotify())
	c.work.Go(func() {
		for answer := range changes {
			c.take(answer)
		}
	})
	t.Cleanup(func() { c.cancel(); c.work.Wait() })
	return c
}

func (c *changeLog) take(answer clientv3.WatchResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := answer.Err(); err != nil {
		c.failed = err
		return
	}
	for _, e := range answer.Events {
		if strings.HasPrefix(string(e.Kv.Key), c.directory+"k-") {
			c.events = append(c.events, decode(c.t, c.directory, e, c.read))
		}
		c.at = e.Kv.ModRevision
	}
	if answer.IsProgressNotify() {
		c.at = max(c.at, answer.Header.Revision)
	}
}

// revision is the revision up to which the log is complete.
func (c *changeLog) revision() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// all waits until the log is complete.
func (c *changeLog) all(client *clientv3.Client) []consistency.Event {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	now, err := client.Get(ctx, c.directory, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		c.t.Fatal(err)
	}
	for c.revision() < now.Header.Revision {
		if err := client.RequestProgress(ctx); err != nil {
			c.t.Fatal(err)
		}
		if !pause(ctx, lookAgain) {
			c.t.Fatalf("the watch has not received all changes of etcd: %v, want the current revision", c.failed)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		c.t.Fatal(c.failed)
	}
	return c.events
}
