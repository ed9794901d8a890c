package aggregator

import (
	"bytes"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/auth/rbac"
)

// lean drops what the shared informers would hold and nobody reads. What is written back to the API without it keeps it
// there: a write that says nothing of managed fields leaves them as they are.
func lean() cache.TransformFunc {
	bundles := &bundles{}
	return func(obj any) (any, error) {
		if accessor, err := meta.Accessor(obj); err == nil {
			accessor.SetManagedFields(nil)
		}
		if a, ok := obj.(*apiregistrationv1.APIService); ok {
			a.Spec.CABundle = bundles.once(a.Spec.CABundle)
		}
		return rbac.TransformBinding(obj), nil
	}
}

// bundles has the CA bundles that were met lately, so that APIServices whose backends have one authority share its bytes.
type bundles struct {
	mu    sync.Mutex
	known [8][]byte
	next  int
}

// once is b, or the same bytes that were met before. Nobody may change them.
func (bs *bundles) once(b []byte) []byte {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	for _, k := range bs.known {
		if bytes.Equal(k, b) && k != nil {
			return k
		}
	}
	bs.known[bs.next] = b
	bs.next = (bs.next + 1) % len(bs.known)
	return b
}
