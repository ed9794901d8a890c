package coreapi

import (
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apiserver/pkg/storage"
	etcdfeature "k8s.io/apiserver/pkg/storage/feature"
)

// The library asks each endpoint of a client what its etcd can do, and remembers the answer in a variable of the
// process. The client of the embedded etcd has no endpoints, so it would never be told that watch progress can be
// requested, and every consistent read would go past the watch cache. The variable is the library's only door.

// etcdFeatures answers for embedded servers from knowledge, and for external ones as the library does.
type etcdFeatures struct {
	etcdfeature.FeatureSupportChecker             // the library's
	embedded, external                atomic.Bool // seen in this process
}

var installEtcdFeatures = sync.OnceValue(func() *etcdFeatures {
	features := &etcdFeatures{FeatureSupportChecker: etcdfeature.DefaultFeatureSupportChecker}
	etcdfeature.DefaultFeatureSupportChecker = features
	return features
})

// learnEtcdFeatures must be called before client is given to the library.
func learnEtcdFeatures(client *kubernetes.Client) {
	features := installEtcdFeatures()
	if len(client.Endpoints()) == 0 {
		features.embedded.Store(true)
	} else {
		features.external.Store(true)
	}
}

func (f *etcdFeatures) Supports(feature storage.Feature) bool {
	switch {
	case feature == storage.RequestWatchProgress && !f.external.Load():
		return true
	case feature == storage.RangeStream && f.embedded.Load():
		return false // etcd's in-process adapter does not have the call; lists are paged instead
	}
	return f.FeatureSupportChecker.Supports(feature)
}
