package durability

import (
	"flag"
	"strings"
	"testing"
)

var rollingRounds = flag.Int("rolling-rounds", 1, "how often three front doors are restarted, one after the other")

// Three front doors are restarted one after the other behind a load balancer. No request of any client fails: over HTTP/1.1 and
// HTTP/2, reads and writes, for local resources and for an extension server, by kubectl, and upgraded streams. Watches and
// informers miss no event.
func TestRollingRestarts(t *testing.T) {
	c := newCluster(t, 1)
	var fronts []*frontDoor
	for range frontDoors {
		d := newFrontDoor(t, "--bind-address", "127.0.0.1", "--etcd-servers", strings.Join(c.endpoints(), ","), "--shutdown-delay-duration", shutdownDelay.String())
		if len(fronts) > 0 {
			d.beside(fronts[0])
		}
		d.start()
		fronts = append(fronts, d)
	}
	w := newTraffic(t, fronts)
	w.start()
	for range *rollingRounds {
		for _, d := range fronts {
			w.restart(d)
		}
	}
	w.stop()
	w.report("rolling restarts", noneMayFail)
}

func noneMayFail(string) bool { return false }
