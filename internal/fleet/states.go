package fleet

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/metrics"
)

// States returns the states of all Clusters, also of those that cannot be served.
func (f *Fleet) States() []metrics.ClusterState {
	var all []metrics.ClusterState
	members := f.members.Load()
	for _, object := range f.objects() {
		s := metrics.ClusterState{Name: object.Name}
		if m := members.byName[object.Name]; m != nil {
			state := m.state()
			s.Available = state.Ready && m.problem == nil && m.invalid == nil
			for _, e := range state.Endpoints {
				if e.Ready {
					s.Ready++
				} else {
					s.NotReady++
				}
			}
		}
		// Only the leading replica checks the rights.
		if c := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionPermitted); c != nil && c.Reason != v1alpha1.ReasonClusterUnavailable {
			s.Permitted = new(c.Status == metav1.ConditionTrue)
		}
		all = append(all, s)
	}
	return all
}
