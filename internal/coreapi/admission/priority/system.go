package priority

import (
	"context"
	"fmt"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/clients"
)

// systemClasses exist in every cluster; what runs a node or a cluster names them. Their values are above everything that
// users may give.
var systemClasses = []schedulingv1.PriorityClass{
	{
		ObjectMeta: metav1.ObjectMeta{Name: "system-node-critical"}, Value: 2000001000,
		Description: "Used for system critical pods that must not be moved from their current node.",
	},
	{
		ObjectMeta: metav1.ObjectMeta{Name: "system-cluster-critical"}, Value: 2000000000,
		Description: "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
	},
}

// EnsureSystemClasses creates those that are missing.
func EnsureSystemClasses(ctx context.Context, client clients.Interface) error {
	classes := client.SchedulingV1().PriorityClasses()
	for i := range systemClasses {
		name := systemClasses[i].Name
		_, err := classes.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = classes.Create(ctx, systemClasses[i].DeepCopy(), metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("priority class %s: %w", name, err)
		}
	}
	return nil
}
