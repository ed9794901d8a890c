package kinds_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestListsAreDefaultedByItem(t *testing.T) {
	scheme := runtime.NewScheme()
	kindtest.RegisterDefaults(scheme)
	list := &corev1.ServiceList{Items: make([]corev1.Service, 2)}
	scheme.Default(list)
	for _, service := range list.Items {
		if service.Spec.Type != corev1.ServiceTypeClusterIP {
			t.Errorf("default type of a Service in a list = %q, want ClusterIP", service.Spec.Type)
		}
	}
}
