package store

import (
	"testing"
	"testing/synctest"
	_ "unsafe" // for go:linkname

	_ "go.etcd.io/etcd/client/v3"
)

// clientDone is the channel that a context of etcd's client returns from Done. Nothing closes it. A goroutine that waits for a
// channel from outside a bubble is not durably blocked, so time would stand still in a bubble with a watch. A nil channel has
// the same meaning.
//
//go:linkname clientDone go.etcd.io/etcd/client/v3.valCtxCh
var clientDone chan struct{}

func init() { clientDone = nil }

// inBubble runs a test with an embedded etcd in virtual time. The function receives a ready store.
func inBubble(t *testing.T, test func(*testing.T, *Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, _ := run(t, Config{DataDir: t.TempDir(), Volatile: true})
		test(t, s)
	})
}
