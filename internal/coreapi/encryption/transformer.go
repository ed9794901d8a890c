package encryption

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
)

// TransformerFor returns the transformer of a resource, which follows every change of the file. It may be called before Ready,
// but the transformer must not be used before.
func (e *Encryption) TransformerFor(resource schema.GroupResource) value.Transformer {
	if !e.Enabled() {
		return identity.NewEncryptCheckTransformer()
	}
	return &transformer{encryption: e, resource: resource}
}

// transformer transforms with the current generation.
type transformer struct {
	encryption *Encryption
	resource   schema.GroupResource
	known      atomic.Pointer[known]
}

// known caches the transformer of a resource in a generation: the lookup allocates, and every object of a list needs it.
type known struct {
	in          *generation
	transformer value.Transformer
}

func (t *transformer) now() value.Transformer {
	g := t.encryption.current.Load()
	k := t.known.Load()
	if k == nil || k.in != g {
		k = &known{g, g.transformers.TransformerForResource(t.resource)}
		t.known.Store(k)
	}
	return k.transformer
}

func (t *transformer) TransformFromStorage(ctx context.Context, data []byte, of value.Context) ([]byte, bool, error) {
	return t.now().TransformFromStorage(ctx, data, of)
}

func (t *transformer) TransformToStorage(ctx context.Context, data []byte, of value.Context) ([]byte, error) {
	return t.now().TransformToStorage(ctx, data, of)
}
