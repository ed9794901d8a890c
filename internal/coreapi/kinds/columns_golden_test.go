package kinds_test

import (
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

// each decodes several manifests of one kind.
func each[T any, P interface {
	*T
	runtime.Object
}](t *testing.T, manifests ...string) []runtime.Object {
	var objects []runtime.Object
	for _, manifest := range manifests {
		objects = append(objects, decode(t, P(new(T)), manifest))
	}
	return objects
}

func TestScaleTable(t *testing.T) {
	golden(t, schema.GroupKind{Group: autoscalingv1.GroupName, Kind: "Scale"}, each[autoscalingv1.Scale](t, "metadata: {name: web}\nspec: {replicas: 3}\nstatus: {replicas: 2}")...)
}

func TestComponentStatusTable(t *testing.T) {
	golden(t, schema.GroupKind{Kind: "ComponentStatus"}, each[corev1.ComponentStatus](t,
		"metadata: {name: etcd-0}\nconditions: [{type: Healthy, status: 'True', message: ok}]",
		"metadata: {name: etcd-1}\nconditions: [{type: Healthy, status: 'False', error: gone}]", "metadata: {name: unknown}")...)
}

func TestNewestDefaultClassIsMarked(t *testing.T) {
	class := func(name string, age time.Duration, isDefault string) storagev1.StorageClass {
		return storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{
			Name: name, CreationTimestamp: metav1.NewTime(kindtest.Now.Add(-age)),
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": isDefault},
		}}
	}
	list := &storagev1.StorageClassList{Items: []storagev1.StorageClass{
		class("old", time.Hour, "true"), class("zeta", time.Minute, "true"), class("new", time.Minute, "true"), class("newest", 0, "false"),
	}}
	table, err := convertorOf(schema.GroupKind{Group: storagev1.GroupName, Kind: "StorageClass"}).ConvertToTable(t.Context(), list, nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range table.Rows {
		names = append(names, row.Cells[0].(string))
	}
	if got := strings.Join(names, ","); got != "old,zeta,new (default),newest" {
		t.Errorf("names in the table = %s, want old,zeta,new (default),newest", got)
	}
}
