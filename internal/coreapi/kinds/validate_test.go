package kinds_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/coreapi/kinds/cluster"
	"portico.dev/internal/coreapi/kinds/kindtest"
)

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still served to clients from before EndpointSlices

// samples returns the decoded samples of all descriptors.
func samples(t *testing.T) []runtime.Object {
	t.Helper()
	var all []runtime.Object
	scheme := runtime.NewScheme()
	kindtest.RegisterDefaults(scheme)
	for _, g := range cluster.All() {
		for _, r := range g.Resources {
			for _, text := range r.Samples {
				obj := r.Object.DeepCopyObject()
				if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
					t.Fatalf("decoding a sample failed: %v, want no error, in\n%s", err, text)
				}
				scheme.Default(obj)
				all = append(all, obj)
			}
		}
		for _, v := range g.Virtual {
			for _, text := range v.Samples { // only the Events of events.k8s.io are also stored
				all = append(all, kindtest.Decode[eventsv1.Event](t, text))
			}
		}
	}
	return all
}

func TestEveryKindHasSample(t *testing.T) {
	for _, g := range cluster.All() {
		for _, r := range g.Resources {
			if len(r.Samples) == 0 {
				t.Errorf("%s/%s has no sample, want at least one", g.Version, r.Name)
			}
		}
	}
}

func TestSamplesAreAccepted(t *testing.T) {
	for _, obj := range samples(t) {
		kindtest.Refused(t, kindtest.CreateErrors(obj))
		obj.(metav1.Object).SetResourceVersion("7")
		kindtest.Refused(t, kindtest.UpdateErrors(obj, obj.DeepCopyObject()))
		kindtest.Refused(t, kindtest.StatusErrors(obj, obj.DeepCopyObject()))
		if warnings := kindtest.Warnings(obj); len(warnings) > 0 {
			t.Errorf("Warnings of the sample %T = %q, want none", obj, warnings)
		}
	}
}

func TestNamesAreRequiredAndImmutable(t *testing.T) {
	for _, obj := range samples(t) {
		nameless := obj.DeepCopyObject()
		nameless.(metav1.Object).SetName("")
		if !slices.ContainsFunc(kindtest.CreateErrors(nameless), func(e *field.Error) bool {
			return strings.HasPrefix(e.Field, "metadata.name") && e.Type == field.ErrorTypeRequired
		}) && !isCoreEvent(obj) && !isBudget(obj) {
			t.Errorf("create of a %T without a name has no error for metadata.name, want one", obj)
		}
		moved := obj.DeepCopyObject()
		moved.(metav1.Object).SetResourceVersion("7")
		moved.(metav1.Object).SetName("another")
		if !slices.ContainsFunc(kindtest.UpdateErrors(moved, obj), func(e *field.Error) bool { return e.Field == "metadata.name" }) {
			t.Errorf("update of the name of a %T has no error for metadata.name, want one", obj)
		}
	}
}

// isCoreEvent matches the only kind whose metadata is not validated, for the oldest clients.
func isCoreEvent(obj runtime.Object) bool {
	_, yes := obj.(*corev1.Event)
	return yes
}

func TestUpdateWithAnotherKindIsRejected(t *testing.T) {
	namespace, configMap := &corev1.Namespace{}, &corev1.ConfigMap{}
	errs := kindtest.UpdateErrors(configMap, namespace)
	if !strings.Contains(errs.ToAggregate().Error(), "*v1.ConfigMap cannot replace *v1.Namespace") {
		t.Errorf("update of a Namespace with a ConfigMap: errors = %v, want \"*v1.ConfigMap cannot replace *v1.Namespace\"", errs)
	}
}

func TestEveryKindHasRules(t *testing.T) {
	for _, g := range cluster.All() {
		for _, r := range g.Resources {
			if r.Rules.Create == nil || r.Rules.Update == nil || r.Rules.Status == nil {
				t.Errorf("%s/%s lacks validation rules for create, update or status, want all", g.Version, r.Name)
			}
		}
	}
}

func TestBootstrapFlowControlIsAccepted(t *testing.T) {
	scheme := runtime.NewScheme()
	kindtest.RegisterDefaults(scheme)
	for _, schema := range append(slices.Clone(bootstrap.MandatoryFlowSchemas), bootstrap.SuggestedFlowSchemas...) {
		schema = schema.DeepCopy()
		scheme.Default(schema)
		kindtest.Refused(t, kindtest.CreateErrors(schema))
	}
	for _, level := range append(slices.Clone(bootstrap.MandatoryPriorityLevelConfigurations), bootstrap.SuggestedPriorityLevelConfigurations...) {
		level = level.DeepCopy()
		scheme.Default(level)
		kindtest.Refused(t, kindtest.CreateErrors(level))
		if level.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
			level.Spec.Exempt.LendablePercent = ptr.To[int32](50)
			kindtest.Refused(t, kindtest.CreateErrors(level))
		}
	}
}

// isBudget matches PodDisruptionBudgets. kube-apiserver validates their names in k8s.io/apiserver, which this test does not call.
func isBudget(obj runtime.Object) bool {
	_, budget := obj.(*policyv1.PodDisruptionBudget)
	return budget
}
