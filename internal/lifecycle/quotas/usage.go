package quotas

import (
	"context"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// usageWatch reports the namespaces in which objects of limited resources were deleted. It watches only resources that a
// quota limits.
type usageWatch struct {
	metadata metadata.Interface
	gone     func(namespace string)
	log      *zap.Logger
	followed map[schema.GroupVersionResource]*followed
}

type followed struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// follow starts and stops watches to match wanted. It must not be called concurrently.
func (w *usageWatch) follow(ctx context.Context, wanted map[schema.GroupVersionResource]bool) {
	if w.followed == nil {
		w.followed = map[schema.GroupVersionResource]*followed{}
	}
	for kind, f := range w.followed {
		if !wanted[kind] {
			f.cancel()
			f.done.Wait()
			delete(w.followed, kind)
		}
	}
	for kind := range wanted {
		if w.followed[kind] == nil && ctx.Err() == nil {
			w.followed[kind] = w.begin(ctx, kind)
		}
	}
}

func (w *usageWatch) stop() { w.follow(context.Background(), nil) }

func (w *usageWatch) begin(ctx context.Context, kind schema.GroupVersionResource) *followed {
	informer := metadatainformer.NewFilteredMetadataInformer(w.metadata, kind, metav1.NamespaceAll, 0, nil, nil).Informer()
	// Names are enough to notice deletions, also those missed during a disconnect. An object that uses less than before, such
	// as a pod that has ended, is noticed by its update.
	_ = informer.SetTransform(func(obj any) (any, error) { // fails only once it runs
		if o, ok := obj.(*metav1.PartialObjectMetadata); ok {
			o.ObjectMeta = metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}
		}
		return obj, nil
	})
	tell := func(obj any) { w.gone(keyOf(obj).Namespace) }
	handler := cache.ResourceEventHandlerFuncs{DeleteFunc: tell}
	if changes(kind) {
		handler.UpdateFunc = func(_, now any) { tell(now) }
	}
	if _, err := informer.AddEventHandler(handler); err != nil {
		w.log.Error("quotas are counted late: a watch takes no handler", zap.Stringer("resource", kind), zap.Error(err))
	}
	ctx, cancel := context.WithCancel(ctx)
	f := &followed{cancel: cancel}
	f.done.Go(func() { informer.RunWithContext(ctx) })
	return f
}

// changes reports whether updates of objects of a kind can lower what they use.
func changes(kind schema.GroupVersionResource) bool {
	switch kind.GroupResource() {
	case corev1.Resource("pods"), corev1.Resource("services"), corev1.Resource("persistentvolumeclaims"):
		return true
	}
	return false
}
