package kinds_test

import (
	"testing"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestMigrationTables(t *testing.T) {
	kindtest.Table[storagemigrationv1.StorageVersionMigration](t,
		"metadata: {name: a}\nspec: {resource: {group: apps, resource: deployments}}",
		"metadata: {name: b}\nspec: {resource: {resource: secrets}}\nstatus: {conditions: [{type: Running, status: 'False'}, {type: Succeeded, status: 'True'}]}",
		"metadata: {name: c}\nspec: {resource: {resource: secrets}}\nstatus: {conditions: [{type: Running, status: 'True'}]}")
}

func TestMigrations(t *testing.T) {
	migration := func(resource string) *storagemigrationv1.StorageVersionMigration {
		return kindtest.Decode[storagemigrationv1.StorageVersionMigration](t, "metadata: {name: a}\nspec: {resource: "+resource+"}")
	}
	kindtest.Refuses(t, []kindtest.Create{
		{"of a resource", migration("{group: example.com, resource: boats}"), nil},
		{"of nothing", migration("{}"), []string{"spec.resource.resource: Required value: resource is required to be set"}},
		{"of what is no resource", migration("{group: a_b, resource: A}"), []string{`spec.resource.resource: Invalid value: "A": ...`, `spec.resource.group: Invalid value: "a_b": ...`}},
	})
	kindtest.Changes(t, migration("{resource: secrets}"), map[string]kindtest.Change[*storagemigrationv1.StorageVersionMigration]{
		"of another": {func(m *storagemigrationv1.StorageVersionMigration) { m.Spec.Resource.Resource = "pods" }, []string{"spec: Invalid value: ..."}},
	})
}

func TestFinishedMigrationStatusIsImmutable(t *testing.T) {
	const reason = ", reason: r, message: m, lastTransitionTime: '2026-01-02T03:04:05Z'}"
	for situation, c := range map[string]struct {
		old, new string
		want     []string
	}{
		"begun":           {"", "resourceVersion: '12'", nil},
		"at no version":   {"", "resourceVersion: a", []string{`status.resourceVersion: Invalid value: "a": ...`}},
		"at another one":  {"resourceVersion: '12'", "resourceVersion: '13'", []string{`status.resourceVersion: Invalid value: "13": field is immutable`}},
		"ended":           {"", "conditions: [{type: Succeeded, status: 'True'" + reason + "]", nil},
		"ended both ways": {"", "conditions: [{type: Succeeded, status: 'True'" + reason + ", {type: Failed, status: 'True'" + reason + "]", []string{"status.conditions: Invalid value: ..."}},
		"not ended again": {"conditions: [{type: Failed, status: 'True'" + reason + "]", "", []string{"status.conditions: Invalid value: ..."}},
	} {
		t.Run(situation, func(t *testing.T) {
			of := func(status string) *storagemigrationv1.StorageVersionMigration {
				return kindtest.Decode[storagemigrationv1.StorageVersionMigration](t, "metadata: {name: a, resourceVersion: '1'}\nspec: {resource: {resource: secrets}}\nstatus: {"+status+"}")
			}
			kindtest.Refused(t, kindtest.StatusErrors(of(c.new), of(c.old)), c.want...)
		})
	}
}
