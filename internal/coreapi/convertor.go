package coreapi

import "k8s.io/apimachinery/pkg/runtime"

// ownVersionConvertor converts an unstructured object to the Go type of its own version. Only mutating admission policies
// convert unstructured objects: the result of a mutation has the version for which the policy is registered, and the next
// mutation expects that version. kube-apiserver converts it to the version of the request, which fails for a version of another
// group.
type ownVersionConvertor struct{ *runtime.Scheme }

func (c ownVersionConvertor) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	if _, ok := in.(runtime.Unstructured); ok {
		target = in.GetObjectKind().GroupVersionKind().GroupVersion()
	}
	return c.Scheme.ConvertToVersion(in, target)
}
