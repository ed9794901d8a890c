package registry

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Review is a kind without storage: a client posts a spec, and the response contains the status.
type Review struct {
	Singular   string
	Namespaced bool
	Empty      func() runtime.Object
	// Check validates the spec before admission.
	Check func(ctx context.Context, obj runtime.Object) error
	// Answer sets the status.
	Answer func(ctx context.Context, obj runtime.Object) error
}

var (
	_ rest.Creater              = (*Review)(nil)
	_ rest.Scoper               = (*Review)(nil)
	_ rest.SingularNameProvider = (*Review)(nil)
)

func (r *Review) New() runtime.Object     { return r.Empty() }
func (r *Review) Destroy()                {}
func (r *Review) NamespaceScoped() bool   { return r.Namespaced }
func (r *Review) GetSingularName() string { return r.Singular }

func (r *Review) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	if !r.Namespaced {
		if namespace := apirequest.NamespaceValue(ctx); namespace != "" {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("namespace is not allowed on this type: %v", namespace))
		}
	}
	if r.Check != nil {
		if err := r.Check(ctx, obj); err != nil {
			return nil, err
		}
	}
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	if err := r.Answer(ctx, obj); err != nil {
		return nil, err
	}
	return obj, nil
}
