package kinds_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

// golden compares the table of a kind with testdata/KIND.GROUP.golden.
func golden(t *testing.T, kind schema.GroupKind, objects ...runtime.Object) {
	t.Helper()
	kindtest.Golden(t, kind.Kind+"."+kind.Group, convertorAt(kind, func() time.Time { return kindtest.Now }), objects...)
}

// decode reads a manifest. The object is three days old.
func decode(t *testing.T, obj runtime.Object, manifest string) runtime.Object {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(manifest), obj); err != nil {
		t.Fatalf("decoding a manifest failed: %v, want no error, in\n%s", err, manifest)
	}
	obj.(metav1.Object).SetCreationTimestamp(metav1.NewTime(kindtest.Born))
	return obj
}

func TestListTableHasVersionAndContinueToken(t *testing.T) {
	list := &corev1.NamespaceList{
		ListMeta: metav1.ListMeta{ResourceVersion: "42", Continue: "next", RemainingItemCount: ptr.To[int64](3)},
		Items:    []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, {ObjectMeta: metav1.ObjectMeta{Name: "b"}}},
	}
	table, err := convertorOf(schema.GroupKind{Kind: "Namespace"}).ConvertToTable(t.Context(), list, &metav1.TableOptions{NoHeaders: true})
	if err != nil {
		t.Fatal(err)
	}
	if table.ResourceVersion != "42" || table.Continue != "next" || *table.RemainingItemCount != 3 {
		t.Errorf("metadata of the table = %+v, want the version 42, the token next and 3 remaining items", table.ListMeta)
	}
	if len(table.ColumnDefinitions) != 0 {
		t.Errorf("the table has %d column definitions, want none", len(table.ColumnDefinitions))
	}
	for i, row := range table.Rows {
		if row.Object.Object != runtime.Object(&list.Items[i]) || row.Cells[2] != "<unknown>" {
			t.Errorf("row %d = %+v, want the object %d with an unknown age", i, row, i)
		}
	}
	if len(table.Rows) != 2 {
		t.Errorf("the table has %d rows, want 2", len(table.Rows))
	}
}

func TestEmptyListTableHasHeaders(t *testing.T) {
	table, err := convertorOf(schema.GroupKind{Kind: "Secret"}).ConvertToTable(t.Context(), &corev1.SecretList{}, &metav1.TableOptions{})
	if err != nil || len(table.ColumnDefinitions) != 4 || table.Rows == nil || len(table.Rows) != 0 {
		t.Errorf("table of an empty list = %+v, %v, want 4 columns and no rows", table, err)
	}
}

func TestSingleObjectTableHasResourceVersion(t *testing.T) {
	table, err := convertorOf(schema.GroupKind{Kind: "Pod"}).ConvertToTable(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "9"}}, nil)
	if err != nil || table.ResourceVersion != "9" {
		t.Errorf("table of a pod = %+v, %v, want the resourceVersion 9", table, err)
	}
}

func TestKindsWithoutColumnsShowCreationTime(t *testing.T) {
	for _, kind := range []schema.GroupKind{{Group: rbacv1.GroupName, Kind: "Role"}, {Group: rbacv1.GroupName, Kind: "ClusterRole"}, {Group: "example.com", Kind: "Thing"}} {
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: metav1.NewTime(kindtest.Born)}}
		table, err := convertorOf(kind).ConvertToTable(t.Context(), role, nil)
		if err != nil {
			t.Fatal(err)
		}
		if table.ColumnDefinitions[1].Name != "Created At" || table.Rows[0].Cells[1] != "2026-03-01T12:00:00Z" {
			t.Errorf("table of a %s = %+v, want the column \"Created At\" with 2026-03-01T12:00:00Z", kind, table)
		}
	}
}

func TestTableOfWrongKindReturnsError(t *testing.T) {
	if _, err := convertorOf(schema.GroupKind{Kind: "Pod"}).ConvertToTable(t.Context(), &corev1.Node{}, nil); err == nil {
		t.Error("ConvertToTable of a node as a pod returned no error, want an error")
	}
}

func TestFlowSchemasAreListedInMatchingOrder(t *testing.T) {
	schemaOf := func(name string, precedence int32) flowcontrolv1.FlowSchema {
		return flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: flowcontrolv1.FlowSchemaSpec{MatchingPrecedence: precedence}}
	}
	list := &flowcontrolv1.FlowSchemaList{Items: []flowcontrolv1.FlowSchema{schemaOf("catch-all", 10000), schemaOf("b", 100), schemaOf("exempt", 1), schemaOf("a", 100)}}
	table, err := convertorOf(schema.GroupKind{Group: flowcontrolv1.GroupName, Kind: "FlowSchema"}).ConvertToTable(t.Context(), list, nil)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, row := range table.Rows {
		order = append(order, row.Cells[0].(string))
	}
	if got := strings.Join(order, " "); got != "exempt a b catch-all" {
		t.Errorf("order of the flow schemas = %s, want exempt a b catch-all", got)
	}
}

func TestFinishedPodsAreMarked(t *testing.T) {
	for phase, reason := range map[corev1.PodPhase]string{corev1.PodSucceeded: "Succeeded", corev1.PodFailed: "Failed", corev1.PodRunning: ""} {
		pod := &corev1.Pod{Status: corev1.PodStatus{Phase: phase}}
		table, err := convertorOf(schema.GroupKind{Kind: "Pod"}).ConvertToTable(t.Context(), pod, nil)
		if err != nil {
			t.Fatal(err)
		}
		conditions := table.Rows[0].Conditions
		if marked := len(conditions) == 1 && conditions[0].Reason == reason; marked != (reason != "") {
			t.Errorf("conditions of the row of a pod in the phase %s = %+v, want the reason %q", phase, conditions, reason)
		}
	}
}
