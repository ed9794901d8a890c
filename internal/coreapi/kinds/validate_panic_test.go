package kinds_test

import (
	"flag"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

// objects is the number of random objects of each kind. Most of the time goes into compiling the expressions of admission policies.
var objects = flag.Int("objects", 20, "number of random objects of each kind")

// A client with the right to write can send every object that decodes. The server may reject it and must not panic.
func TestValidationDoesNotPanic(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	scheme := runtime.NewScheme()
	kindtest.RegisterDefaults(scheme)
	seen := map[reflect.Type]bool{}
	for _, kind := range samples(t) {
		if seen[reflect.TypeOf(kind)] {
			continue
		}
		seen[reflect.TypeOf(kind)] = true
		t.Run(reflect.TypeOf(kind).String(), func(t *testing.T) {
			t.Parallel()
			filler := randfill.NewWithSeed(7).NilChance(0.4).NumElements(0, 3).MaxDepth(12).Funcs(
				func(tm *metav1.Time, c randfill.Continue) { *tm = metav1.Unix(c.Int63n(1<<32), 0) },
				func(tm *metav1.MicroTime, c randfill.Continue) {
					*tm = metav1.NewMicroTime(metav1.Unix(c.Int63n(1<<32), 0).Time)
				},
				func(q *resource.Quantity, c randfill.Continue) {
					*q = *resource.NewMilliQuantity(c.Int63n(1<<32), resource.DecimalSI)
				},
				func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawBytes([]byte("{}")) },
				func(raw *runtime.RawExtension, _ randfill.Continue) { raw.Raw = []byte("{}") },
			)
			for range *objects {
				obj, old := kind.DeepCopyObject(), kind.DeepCopyObject()
				filler.Fill(obj)
				filler.Fill(old)
				for _, defaulted := range []bool{false, true} {
					if defaulted {
						scheme.Default(obj)
						scheme.Default(old)
					}
					kindtest.CreateErrors(obj)
					kindtest.UpdateErrors(obj, old)
					kindtest.StatusErrors(obj, old)
					kindtest.Warnings(obj)
				}
			}
		})
	}
}
