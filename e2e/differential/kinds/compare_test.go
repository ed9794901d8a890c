package kinds

import (
	"maps"
	"testing"
)

// Entries of managedFields that were written within one second have another order than entries of two seconds.
func TestTheOrderOfManagedFieldsIsNoDifference(t *testing.T) {
	entry := func(at, manager, field string) map[string]string {
		return map[string]string{
			"body.metadata.managedFields." + at + ".manager": manager, "body.metadata.managedFields." + at + ".operation": "Apply",
			"body.metadata.managedFields." + at + ".fieldsV1.f:spec.f:" + field: "{}",
		}
	}
	both := func(a, b map[string]string) recording {
		all := maps.Clone(a)
		maps.Copy(all, b)
		return recording{"q": all}
	}
	ours := both(entry("0", "one", "a"), entry("1", "two", "b"))
	if found := ours.compare(both(entry("0", "two", "b"), entry("1", "one", "a")), []string{"q"}); len(found) != 0 {
		t.Errorf("compare of the same entries in another order = %v, want no difference", found)
	}
	if found := ours.compare(both(entry("0", "two", "a"), entry("1", "one", "b")), []string{"q"}); len(found) == 0 {
		t.Error("compare of entries with other owners = none, want a difference")
	}
}
