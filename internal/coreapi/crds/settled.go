package crds

import (
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// justEstablished is how long upstream's handler counts a definition as new. The first instance that is created in that
// time is held for as long, so that the request which follows does not reach a replica that has not heard of the
// definition. A server that is alone has no such replica, and a sleep of two seconds in every installation to lose.
const justEstablished = 2 * time.Second

// settledInformer shows upstream's handler every established definition as if it had been so for long.
type settledInformer struct {
	apiextensionsinformers.CustomResourceDefinitionInformer
}

func (i settledInformer) Lister() apiextensionslisters.CustomResourceDefinitionLister {
	return settledLister{i.CustomResourceDefinitionInformer.Lister()}
}

type settledLister struct {
	apiextensionslisters.CustomResourceDefinitionLister
}

func (l settledLister) Get(name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd, err := l.CustomResourceDefinitionLister.Get(name)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established
	})
	if at < 0 || time.Since(crd.Status.Conditions[at].LastTransitionTime.Time) > justEstablished {
		return crd, nil
	}
	// A copy as deep as the change: the rest is shared with the cache and only read.
	settled := *crd
	settled.Status.Conditions = slices.Clone(crd.Status.Conditions)
	settled.Status.Conditions[at].LastTransitionTime = metav1.Time{}
	return &settled, nil
}
