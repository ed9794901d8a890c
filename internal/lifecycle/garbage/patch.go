package garbage

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// change is a merge patch of metadata. The UID and the resourceVersion make it one of the object that was read: the
// lists that it replaces were made from that.
type change struct {
	Metadata struct {
		UID             types.UID               `json:"uid"`
		ResourceVersion string                  `json:"resourceVersion"`
		OwnerReferences []metav1.OwnerReference `json:"ownerReferences,omitzero"`
		Finalizers      []string                `json:"finalizers,omitzero"`
	} `json:"metadata"`
}

func changeOf(live *metav1.PartialObjectMetadata) *change {
	c := &change{}
	c.Metadata.UID, c.Metadata.ResourceVersion = live.UID, live.ResourceVersion
	return c
}

// strip leaves an object the owner references to keep.
func (t *term) strip(ctx context.Context, gv GroupVersion, at coordinates, live *metav1.PartialObjectMetadata, keep []metav1.OwnerReference) error {
	c := changeOf(live)
	c.Metadata.OwnerReferences = append([]metav1.OwnerReference{}, keep...)
	return t.patch(ctx, gv, at, c)
}

// release removes a finalizer.
func (t *term) release(ctx context.Context, gv GroupVersion, at coordinates, live *metav1.PartialObjectMetadata, finalizer string) error {
	c := changeOf(live)
	c.Metadata.Finalizers = slices.DeleteFunc(append([]string{}, live.Finalizers...), func(f string) bool { return f == finalizer })
	return t.patch(ctx, gv, at, c)
}

// patch does nothing to an object that is gone.
func (t *term) patch(ctx context.Context, gv GroupVersion, at coordinates, c *change) error {
	body, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	err = t.write(ctx, gv, func(ctx context.Context) error {
		_, err := t.cfg.Client.Resource(at.GroupVersionResource).Namespace(at.namespace).
			Patch(ctx, at.name, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	})
	if err != nil && !isGone(err, gv, at) {
		return fmt.Errorf("patch %s %s: %w", at.Resource, at.name, err)
	}
	return nil
}
