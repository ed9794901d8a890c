package defaults_test

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/kinds/cluster"
)

// register adds the defaults of all kinds, and of what group-versions add to the scheme on their own.
func register(scheme *runtime.Scheme) {
	for _, g := range cluster.All() {
		if g.Version == autoscalingv1.SchemeGroupVersion {
			if err := g.Register(scheme); err != nil {
				panic(err)
			}
		}
		for _, r := range g.Resources {
			if r.Defaults != nil {
				defaults.Register(scheme, r.Object, r.List, r.Defaults)
			}
		}
	}
}
