package kinds_test

import (
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestDeviceClasses(t *testing.T) {
	class := func(spec string) *resourcev1.DeviceClass {
		return kindtest.Decode[resourcev1.DeviceClass](t, "metadata: {name: a}\nspec: "+spec)
	}
	kindtest.Refuses(t, []kindtest.Create{
		{"an empty class", class("{}"), nil},
		{"an expression that does not compile", class(`{selectors: [{cel: {expression: device.driver}}]}`),
			[]string{`spec.selectors[0].cel.expression: Invalid value: "device.driver": must evaluate to bool...`}},
		{"an expression about something else", class(`{selectors: [{cel: {expression: 'pod.name == "a"'}}]}`),
			[]string{`spec.selectors[0].cel.expression: Invalid value: "pod.name == \"a\"": compilation failed: ...`}},
		{"no expression", class(`{selectors: [{}]}`), []string{"spec.selectors[0].cel: Required value"}},
		{"a long expression", class("{selectors: [{cel: {expression: '" + strings.Repeat("1", resourcev1.CELSelectorExpressionMaxLength+1) + "'}}]}"),
			[]string{"spec.selectors[0].cel.expression: Too long: may not be more than 10240 bytes"}},
		{"a costly expression", class("{selectors: [{cel: {expression: \"" + strings.Repeat("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(x, ", 7) + "int('1'.find('[0-9]*')) < 100" + strings.Repeat(")", 7) + "\"}}]}"),
			[]string{"spec.selectors[0].cel.expression: Forbidden: too complex, exceeds cost limit"}},
		{"no parameters", class(`{config: [{opaque: {driver: d.example.com}}]}`), []string{"spec.config[0].opaque.parameters: Required value"}},
		{"parameters that are no object", class(`{config: [{opaque: {driver: d.example.com, parameters: 1}}]}`),
			[]string{`spec.config[0].opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object`}},
		{"parameters for nobody", class(`{config: [{}]}`), []string{"spec.config[0].opaque: Required value"}},
		{"a driver that is no name", class(`{config: [{opaque: {driver: a_b, parameters: {}}}]}`), []string{`spec.config[0].opaque.driver: Invalid value: "a_b": an RFC 1123 subdomain must ...`}},
		{"a resource of Kubernetes", class("{extendedResourceName: kubernetes.io/gpu}"), []string{`spec.extendedResourceName: Invalid value: "kubernetes.io/gpu": ...`}},
		{"a resource of somebody", class("{extendedResourceName: example.com/gpu}"), nil},
		{"a name that is none", kindtest.Decode[resourcev1.DeviceClass](t, "metadata: {name: a_b}\nspec: {}"), []string{`metadata.name: Invalid value: "a_b": a lowercase RFC 1123 subdomain ...`}},
	})
	stored := class(`{selectors: [{cel: {expression: 'unknown.in.this.version'}}], config: [{opaque: {driver: d.example.com, parameters: {a: b}}}]}`)
	kindtest.Changes(t, stored, map[string]kindtest.Change[*resourcev1.DeviceClass]{
		"a stored expression stays": {func(c *resourcev1.DeviceClass) { c.Spec.ExtendedResourceName = ptr.To("example.com/gpu") }, nil},
		"another expression": {func(c *resourcev1.DeviceClass) { c.Spec.Selectors[0].CEL.Expression = "1" },
			[]string{`spec.selectors[0].cel.expression: Invalid value: "1": must evaluate to bool...`}},
	})
}

func TestDeviceTaintRules(t *testing.T) {
	rule := func(spec string) *resourcev1.DeviceTaintRule {
		return kindtest.Decode[resourcev1.DeviceTaintRule](t, "metadata: {name: a}\nspec: "+spec)
	}
	kindtest.Refuses(t, []kindtest.Create{
		{"all devices", rule("{taint: {key: example.com/k, effect: NoExecute}}"), nil},
		{"no effect", rule("{taint: {key: k}}"), []string{"spec.taint.effect: Required value"}},
		{"an effect of nodes", rule("{taint: {key: k, effect: PreferNoSchedule}}"), []string{`spec.taint.effect: Unsupported value: "PreferNoSchedule": supported values: "NoExecute", "NoSchedule", "None"`}},
		{"no key", rule("{taint: {effect: None}}"), []string{`spec.taint.key: Invalid value: "": name part must be non-empty`, `spec.taint.key: Invalid value: "": name part must consist of ...`}},
		{"a selector of nothing", rule("{deviceSelector: {driver: '', pool: '', device: ''}, taint: {key: k, effect: None}}"), []string{
			"spec.deviceSelector.driver: Required value", "spec.deviceSelector.pool: Required value", `spec.deviceSelector.device: Invalid value: "": ...`}},
	})
	stored := rule("{taint: {key: k, effect: None}}")
	stored.Spec.Taint.Effect = "OfALaterVersion"
	kindtest.Changes(t, stored, map[string]kindtest.Change[*resourcev1.DeviceTaintRule]{
		"an unknown effect stays": {func(r *resourcev1.DeviceTaintRule) { r.Spec.Taint.Value = "v" }, nil},
		"another unknown effect": {func(r *resourcev1.DeviceTaintRule) { r.Spec.Taint.Effect = "x" },
			[]string{`spec.taint.effect: Unsupported value: "x": supported values: "NoExecute", "NoSchedule", "None"`}},
	})
}

// The time that a claim tolerates a taint begins at the last change of the taint's effect.
func TestTaintTimeRestartsWhenEffectChanges(t *testing.T) {
	old := kindtest.Decode[resourcev1.DeviceTaintRule](t, "metadata: {name: a, generation: 3}\nspec: {taint: {key: k, effect: NoSchedule, timeAdded: '2020-01-02T03:04:05Z'}}")
	for situation, c := range map[string]struct {
		change  func(*resourcev1.DeviceTaint)
		renewed bool
	}{
		"another effect": {func(t *resourcev1.DeviceTaint) { t.Effect = resourcev1.DeviceTaintEffectNoExecute }, true},
		"another value":  {func(t *resourcev1.DeviceTaint) { t.Value = "v" }, false},
		"another effect and a date": {func(t *resourcev1.DeviceTaint) {
			t.Effect, t.TimeAdded.Time = "None", old.Spec.Taint.TimeAdded.AddDate(1, 0, 0)
		}, false},
	} {
		t.Run(situation, func(t *testing.T) {
			next := old.DeepCopy()
			c.change(&next.Spec.Taint)
			kindtest.StrategyOf(t, next).PrepareForUpdate(t.Context(), next, old)
			if renewed := next.Spec.Taint.TimeAdded.Year() > 2021; renewed != c.renewed {
				t.Errorf("timeAdded = %v, want a new time: %v", next.Spec.Taint.TimeAdded, c.renewed)
			}
			if next.Generation != 4 {
				t.Errorf("generation after the update = %d, want 4", next.Generation)
			}
		})
	}
}
