package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// orphaning keeps what belongs to a deleted object unless its deletion says otherwise: clients of the first workload
// kinds, from before garbage collection, delete pods themselves.
type orphaning struct{ Strategy }

func KeepDependents(s Strategy) rest.RESTDeleteStrategy { return orphaning{s} }

func (orphaning) DefaultGarbageCollectionPolicy(context.Context) rest.GarbageCollectionPolicy {
	return rest.OrphanDependents
}

// NewGeneration is for kinds that warn again only of what a write changes.
func NewGeneration(obj, old runtime.Object) bool { return Generation(obj) != Generation(old) }
