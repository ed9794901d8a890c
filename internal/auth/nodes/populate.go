package nodes

import (
	"cmp"
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/tools/cache"
)

func compare(a, b object) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
}

// Run processes the objects of the informers until ctx ends. Informers of kinds that are not relevant are ignored.
// The caller starts the informers.
func (a *Authorizer) Run(ctx context.Context, informers ...cache.SharedIndexInformer) error {
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    a.graph.set,
		UpdateFunc: func(_, obj any) { a.graph.set(obj) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			a.graph.delete(obj)
		},
	}
	var synced []cache.DoneChecker
	for _, informer := range informers {
		registration, err := informer.AddEventHandler(handler)
		if ctx.Err() != nil {
			return nil // a stopped informer does not accept handlers
		}
		if err != nil {
			return fmt.Errorf("follow what belongs to nodes: %w", err)
		}
		defer func() { _ = informer.RemoveEventHandler(registration) }() // fails only for a stopped informer
		synced = append(synced, registration.HasSyncedChecker())
	}
	if !cache.WaitFor(ctx, "", synced...) {
		return nil
	}
	close(a.ready)
	<-ctx.Done()
	return nil
}

func (g *graph) set(obj any) {
	switch o := obj.(type) {
	case *corev1.Pod:
		g.setPod(o)
	case *corev1.PersistentVolume:
		g.setVolume(o)
	default:
		if owned, node := ownerOf(obj); owned.name != "" {
			g.setOwner(owned, node)
		}
	}
}

func (g *graph) delete(obj any) {
	switch o := obj.(type) {
	case *corev1.Pod:
		g.deletePod(o.Namespace, o.Name)
	case *corev1.PersistentVolume:
		g.deleteVolume(o.Name)
	default:
		if owned, _ := ownerOf(obj); owned.name != "" {
			g.setOwner(owned, "")
		}
	}
}

// ownerOf returns the node that an object names.
func ownerOf(obj any) (owned object, node string) {
	switch o := obj.(type) {
	case *storagev1.VolumeAttachment:
		return object{volumeAttachments, "", o.Name}, o.Spec.NodeName
	case *resourcev1.ResourceSlice:
		if o.Spec.NodeName != nil {
			node = *o.Spec.NodeName
		}
		return object{resourceSlices, "", o.Name}, node
	case *certificatesv1.PodCertificateRequest:
		return object{certificateRequests, o.Namespace, o.Name}, string(o.Spec.NodeName)
	}
	return object{}, ""
}
