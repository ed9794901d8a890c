package remote

import (
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routes/v1alpha1"
	"portico.dev/internal/routetable"
)

func TestRouteStateFollowsCondition(t *testing.T) {
	since := time.Unix(1e9, 0)
	available := apiregistrationv1.APIServiceCondition{Status: apiregistrationv1.ConditionTrue, Reason: "Passed"}
	dead := apiregistrationv1.APIServiceCondition{Status: apiregistrationv1.ConditionFalse, Reason: "MissingEndpoints", LastTransitionTime: metav1.NewTime(since)}
	unknown := apiregistrationv1.APIServiceCondition{Status: apiregistrationv1.ConditionUnknown, Reason: routetable.ReasonNotChecked}
	port := int32(444)
	for name, c := range map[string]struct {
		route       routetable.Route
		shown, kept Route // for a front door, and for a server that keeps the state of dead backends
	}{
		"local": {
			routetable.Route{Local: true, Condition: available, GroupPriority: 5, VersionPriority: 6},
			Route{Local: true, Available: true, GroupPriority: 5, VersionPriority: 6},
			Route{Local: true, Available: true, GroupPriority: 5, VersionPriority: 6, CurrentWhenUnavailable: true},
		},
		"available": {
			routetable.Route{UID: "u", Condition: available, Service: &apiregistrationv1.ServiceReference{Namespace: "ns", Name: "s", Port: &port}},
			Route{UID: "u", Available: true, Revision: "ns/s:444"}, Route{UID: "u", Available: true, Revision: "ns/s:444", CurrentWhenUnavailable: true},
		},
		"dead": {
			routetable.Route{Condition: dead},
			Route{Reason: "MissingEndpoints", Since: since}, Route{Reason: "MissingEndpoints", Since: since, CurrentWhenUnavailable: true},
		},
		"dead, and to be kept": {
			routetable.Route{Condition: dead, Options: routetable.Options{CurrentWhenUnavailable: true}},
			Route{Reason: "MissingEndpoints", Since: since, CurrentWhenUnavailable: true}, Route{Reason: "MissingEndpoints", Since: since, CurrentWhenUnavailable: true},
		},
		"dead here": {
			routetable.Route{Condition: dead, Replicas: []string{"other"}},
			Route{Reason: "MissingEndpoints", Since: since, ReachedElsewhere: true},
			Route{Reason: "MissingEndpoints", Since: since, ReachedElsewhere: true, CurrentWhenUnavailable: true},
		},
		"not probed": {
			routetable.Route{Condition: unknown},
			Route{Reason: routetable.ReasonNotChecked, Untested: true}, Route{Reason: routetable.ReasonNotChecked, CurrentWhenUnavailable: true},
		},
	} {
		if got := (View{}).Route(&c.route); !reflect.DeepEqual(got, c.shown) {
			t.Errorf("%s: Route() = %+v, want %+v", name, got, c.shown)
		}
		if got := (View{KeepDead: true}).Route(&c.route); !reflect.DeepEqual(got, c.kept) {
			t.Errorf("%s: Route() with KeepDead = %+v, want %+v", name, got, c.kept)
		}
	}
}

func TestViewSelectsRoutesOfTable(t *testing.T) {
	gv := func(group string) schema.GroupVersion { return schema.GroupVersion{Group: group, Version: "v1"} }
	part := func(name string) *routetable.Route {
		return &routetable.Route{GroupVersion: gv("split"), Name: name, Of: "v1.split"}
	}
	split, err := routing.Compile(&v1alpha1.APIRoute{ObjectMeta: metav1.ObjectMeta{Name: "v1.split"}, Spec: v1alpha1.APIRouteSpec{
		Backends: []v1alpha1.APIRouteBackend{{Name: "a"}, {Name: "b"}},
		Rules:    []v1alpha1.APIRouteRule{{Name: "all", BackendRefs: []v1alpha1.BackendRef{{Name: "b"}}}},
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	table := routetable.NewTable([]*routetable.Route{
		{GroupVersion: gv("local"), Name: "v1.local", Local: true, GroupPriority: 3},
		{GroupVersion: gv("split"), Name: "v1.split", GroupPriority: 2, Routing: split, Parts: []*routetable.Route{part("v1.split/a"), part("v1.split/b")}},
		{GroupVersion: gv("whole"), Name: "v1.whole", GroupPriority: 1},
	}, true)
	for view, want := range map[View][]string{
		{}:                 {"v1.local", "v1.split", "v1.split/a", "v1.split/b", "v1.whole"},
		{RemoteOnly: true}: {"v1.split", "v1.split/a", "v1.split/b", "v1.whole"},
	} {
		seen := view.Tables(func() *routetable.Table { return table })
		got := seen()
		var names []string
		for _, r := range got.Routes {
			names = append(names, r.APIService)
			if inPart := r.APIService != "v1.split" && r.GroupVersion.Group == "split"; inPart != (r.PartOf == "v1.split") {
				t.Errorf("%s is a part of %q, want v1.split for its parts only", r.APIService, r.PartOf)
			}
			if r.APIService == "v1.split" && !slices.Equal(r.Parts, []string{"v1.split/b"}) {
				t.Errorf("parts = %q, want %q", r.Parts, []string{"v1.split/b"})
			}
		}
		if !slices.Equal(names, want) || !got.Synced {
			t.Errorf("%+v: routes = %q, synced %t, want %q, synced true", view, names, got.Synced, want)
		}
		if !seen().Equal(got) {
			t.Error("Same() = false for the same table, want true")
		}
		table = routetable.NewTable(table.Routes(), false)
		if again := seen(); again.Equal(got) || again.Synced {
			t.Errorf("Same() = %t, Synced = %t after another table, want false and false", again.Equal(got), again.Synced)
		}
		table = routetable.NewTable(table.Routes(), true)
	}
}
