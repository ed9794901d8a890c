package columns

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func ContainerNames() metav1.TableColumnDefinition {
	return Text("Containers", "Names of each container in the template.")
}

func ContainerImages() metav1.TableColumnDefinition {
	return Text("Images", "Images referenced by each container in the template.")
}

// ContainersOf are the cells of containerNames and containerImages.
func ContainersOf(spec *corev1.PodSpec) (names, images string) {
	all, from := make([]string, len(spec.Containers)), make([]string, len(spec.Containers))
	for i := range spec.Containers {
		all[i], from[i] = spec.Containers[i].Name, spec.Containers[i].Image
	}
	return strings.Join(all, ","), strings.Join(from, ",")
}

// Replicas is a number that defaulting has set; 0 on the way of an object that was never read.
func Replicas(n *int32) int64 {
	if n == nil {
		return 0
	}
	return int64(*n)
}
