package durability

import (
	"context"
	"flag"
	"strings"
	"syscall"
	"testing"
	"time"
)

var disruptionTime = flag.Duration("disruption-time", 2*time.Second, "how long each disruption of several front doors lasts")

// Disruptions for clients of three front doors over three members of etcd when one of them fails. docs/replicas.md has the
// figures.
func TestDisruptions(t *testing.T) {
	disrupt(t, newReplicatedCluster(t, newPortico), false)
}

// disruption is a fault that ends before do returns.
type disruption struct {
	name string
	do   func(p *replicatedCluster, w *traffic)
	// mayFail are the kinds of clients of which requests may fail.
	mayFail func(kind string) bool
}

// Requests for extension servers need no etcd, and clients with watches have more than one front door. Only requests in
// progress may fail: at a front door that is killed, that is frozen for longer than the request timeout, or that has lost etcd.
var disruptions = []disruption{
	{"nothing", func(*replicatedCluster, *traffic) { wait() }, noneMayFail},
	{"a front door is restarted", func(p *replicatedCluster, w *traffic) { w.restart(p.fronts[0]) }, noneMayFail},
	{"a front door is killed, and started again", func(p *replicatedCluster, _ *traffic) {
		p.fronts[0].kill()
		wait()
		p.fronts[0].start()
	}, notInformers},
	{"a front door is frozen (SIGSTOP)", func(p *replicatedCluster, _ *traffic) {
		p.fronts[1].signal(syscall.SIGSTOP)
		wait()
		p.fronts[1].signal(syscall.SIGCONT)
	}, func(kind string) bool { return *disruptionTime >= requestTimeout && needsEtcd(kind) }},
	{"a front door is cut off from etcd", func(p *replicatedCluster, _ *traffic) {
		p.disturbFor(p.relays[1], refuses, *disruptionTime)
	}, needsEtcd},
	{"the leader of etcd is stopped, and started again", func(p *replicatedCluster, _ *traffic) {
		i := p.etcd.leader()
		p.etcd.stop(i, i+1)
		wait()
		p.etcd.start(i, i+1)
	}, needsEtcd},
	{"a member of etcd does not answer front doors", func(p *replicatedCluster, _ *traffic) {
		p.disturbFor([]*relay{p.relays[0][0], p.relays[1][0], p.relays[2][0]}, silent, *disruptionTime)
	}, needsEtcd},
	{"etcd has no quorum", func(p *replicatedCluster, _ *traffic) {
		p.etcd.stop(0, 2)
		wait()
		p.etcd.start(0, 2)
	}, needsEtcd},
}

func wait() { pause(context.Background(), *disruptionTime) }

// disrupt reports the effect of each disruption on clients. For another project's server nothing is required.
func disrupt(t *testing.T, p *replicatedCluster, theirs bool) {
	w := newTraffic(t, p.fronts)
	w.start()
	for _, d := range disruptions {
		d.do(p, w)
		pause(context.Background(), *disruptionTime/2) // late effects belong to this disruption
		if theirs {
			w.log(d.name)
		} else {
			w.report(d.name, d.mayFail)
		}
	}
	w.stop()
}

func notInformers(kind string) bool { return kind != informersKind }

func needsEtcd(kind string) bool {
	return strings.HasPrefix(kind, "local") || kind == kubectlGet || kind == watches
}
