// Package kindtest contains helpers for the tests of kinds. The tests are in package kinds_test, with one file per kind,
// because linking a test binary per group takes longer than running all tests.
package kindtest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/kinds/cluster"
	"portico.dev/internal/coreapi/kinds/events"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

// Decode reads a manifest as the server does: into a known type, with defaults.
func Decode[T any, P interface {
	*T
	runtime.Object
}](t *testing.T, manifest string) P {
	t.Helper()
	obj := P(new(T))
	if err := yaml.UnmarshalStrict([]byte(manifest), obj); err != nil {
		t.Fatalf("%v in\n%s", err, manifest)
	}
	scheme := runtime.NewScheme()
	RegisterDefaults(scheme)
	scheme.Default(obj)
	return obj
}

// Refused compares errors with want. Each item is a complete message, or a prefix followed by "...".
func Refused(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	got := make([]string, 0, len(errs))
	for _, err := range errs {
		got = append(got, err.Error())
	}
	slices.Sort(got)
	slices.Sort(want)
	match := func(got, want string) bool {
		if start, cut := strings.CutSuffix(want, "..."); cut {
			return strings.HasPrefix(got, start)
		}
		return got == want
	}
	if !slices.EqualFunc(got, want, match) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// Create is a test case of an object that is created, and the expected errors.
type Create = struct {
	Situation string
	Object    runtime.Object
	Want      []string
}

func Refuses(t *testing.T, cases []Create) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.Situation, func(t *testing.T) { Refused(t, CreateErrors(c.Object), c.Want...) })
	}
}

// Change is a test case of an update, and the expected errors. Change modifies a copy of the stored object, but not its
// metadata.
type Change[T runtime.Object] = struct {
	Change func(T)
	Want   []string
}

func Changes[T runtime.Object](t *testing.T, stored T, cases map[string]Change[T]) {
	t.Helper()
	any(stored).(metav1.Object).SetResourceVersion("1")
	for situation, c := range cases {
		t.Run(situation, func(t *testing.T) {
			next := stored.DeepCopyObject().(T)
			c.Change(next)
			Refused(t, UpdateErrors(next, stored), c.Want...)
		})
	}
}

// groups returns all groups. They are cached, because building them takes longer than validating most objects.
var groups = sync.OnceValue(cluster.All)

// resourceOf returns the descriptor of the kind of obj.
func resourceOf(obj runtime.Object) (registry.Resource, bool) {
	for _, g := range groups() {
		for _, r := range g.Resources {
			if reflect.TypeOf(r.Object) == reflect.TypeOf(obj) {
				return r, true
			}
		}
	}
	return registry.Resource{}, false
}

func rulesOf(obj runtime.Object) validate.Rules {
	if _, is := obj.(*eventsv1.Event); is {
		return events.Rules()
	}
	r, known := resourceOf(obj)
	if !known {
		panic(fmt.Sprintf("no validation rules for %T", obj))
	}
	return r.Rules
}

func CreateErrors(obj runtime.Object) field.ErrorList      { return rulesOf(obj).Create(obj) }
func UpdateErrors(obj, old runtime.Object) field.ErrorList { return rulesOf(obj).Update(obj, old) }
func StatusErrors(obj, old runtime.Object) field.ErrorList { return rulesOf(obj).Status(obj, old) }

// Warnings returns the warnings for the author of obj.
func Warnings(obj runtime.Object) []string {
	if r, _ := resourceOf(obj); r.Warnings != nil {
		return r.Warnings(obj)
	}
	return nil
}

// StrategyOf returns the strategy for the kind of obj.
func StrategyOf(t *testing.T, obj runtime.Object) registry.Strategy {
	t.Helper()
	r, known := resourceOf(obj)
	if !known {
		t.Fatalf("no kind has objects of %T", obj)
	}
	return registry.NewStrategy(&registry.Environment{}, &r)
}

// RegisterDefaults adds the defaults of every kind to scheme, including the ones that a group-version registers itself.
func RegisterDefaults(scheme *runtime.Scheme) {
	for _, g := range groups() {
		if g.Version == autoscalingv1.SchemeGroupVersion {
			if err := g.Register(scheme); err != nil {
				panic(err)
			}
		}
		for _, r := range g.Resources {
			if r.Defaults != nil {
				defaults.Register(scheme, r.Object, r.List, r.Defaults)
			}
		}
	}
}
