package durability

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
)

// The front door, and the etcd in it, are killed while clients are at work, again and again.
func TestNothingAcknowledgedIsLostByKills(t *testing.T) {
	d := newFrontDoor(t, "--etcd-compaction-interval", "0", "--etcd-unix-socket", "etcd.sock")
	d.start()
	r := record(t, d.client(), 4, 4)
	for range *kills {
		r.until(10 + rand.Int64N(30))
		d.kill()
		d.start()
	}
	r.until(20)
	r.verdict("unix://" + filepath.Join(d.dir, "etcd.sock"))
	d.stop()
}
