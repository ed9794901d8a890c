package discovery

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
)

func TestInternedResourcesAreEqualAndShared(t *testing.T) {
	body, err := os.ReadFile("testdata/api.aggregated.json")
	if err != nil {
		t.Fatal(err)
	}
	read := func() []apidiscoveryv2.APIResourceDiscovery {
		var list apidiscoveryv2.APIGroupDiscoveryList
		if err := json.Unmarshal(body, &list); err != nil {
			t.Fatal(err)
		}
		return list.Items[0].Versions[0].Resources
	}
	p, before := newInterner(), read()
	one, two := p.resources(before), p.resources(fill(read()))
	if !reflect.DeepEqual(before, read()) {
		t.Error("interning changed resources that can be in a snapshot, want them unchanged")
	}
	if !reflect.DeepEqual(one, before) {
		t.Errorf("interned resources = %+v, want %+v", one, before)
	}
	if !reflect.DeepEqual(two, fill(read())) {
		t.Errorf("interned resources = %+v, want %+v", two, fill(read()))
	}
	for i := range one {
		if len(one[i].Verbs) > 0 && &one[i].Verbs[0] != &two[i].Verbs[0] {
			t.Errorf("the verbs of %s are stored twice, want them shared", one[i].Resource)
		}
		if len(one[i].Verbs) > 0 && &one[i].Verbs[0] == &before[i].Verbs[0] {
			t.Errorf("the verbs of %s share the decoded slice, want a copy", one[i].Resource)
		}
	}
	if p.resources(nil) != nil {
		t.Error("resources(nil) is not nil, want nil")
	}
}

// Every field has to be copied by name: a field that a later version of the API adds must not get lost.
func TestInterningCopiesEveryField(t *testing.T) {
	for of, want := range map[reflect.Type]int{
		reflect.TypeFor[apidiscoveryv2.APIResourceDiscovery](): 8, reflect.TypeFor[apidiscoveryv2.APISubresourceDiscovery](): 4,
	} {
		if of.NumField() != want {
			t.Errorf("%s has %d fields, want %d as in interning.go", of, of.NumField(), want)
		}
	}
}
