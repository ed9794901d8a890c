package kinds_test

import (
	"fmt"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func sliceOf(t *testing.T, rest string) *resourcev1.ResourceSlice {
	t.Helper()
	return kindtest.Decode[resourcev1.ResourceSlice](t, "metadata: {name: a}\nspec: {driver: d.example.com, pool: {name: p, generation: 1, resourceSliceCount: 1}, "+rest+"}")
}

func TestSlices(t *testing.T) {
	slice := func(rest string) *resourcev1.ResourceSlice { return sliceOf(t, rest) }
	const one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	many := func(n int, more string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "{name: d%d%s},", i, more)
		}
		return "nodeName: n, devices: [" + b.String() + "]"
	}
	kindtest.Refuses(t, []kindtest.Create{
		{"of a node", slice("nodeName: n"), nil},
		{"nowhere", slice("devices: []"), []string{"spec: Required value: " + one}},
		{"in two ways", slice("nodeName: n, allNodes: true"), []string{"spec: Invalid value: \"{`nodeName`, `allNodes`}\": " + one + ", but multiple fields are set"}},
		{"not for all nodes", slice("nodeName: n, allNodes: false"), []string{"spec.allNodes: Invalid value: false: must be either unset or set to true"}},
		{"of a node without a name", slice("nodeName: ''"), []string{`spec.nodeName: Invalid value: "": must be either unset or set to a non-empty string`, "spec: Required value: " + one}},
		{"of two kinds of nodes", slice("nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}, {matchExpressions: [{key: b, operator: Exists}]}]}"),
			[]string{"spec.nodeSelector.nodeSelectorTerms: Invalid value: ..."}},
		{"counters and devices", slice("nodeName: n, sharedCounters: [{name: s, counters: {c: {value: 1}}}], devices: [{name: x}]"),
			[]string{`spec: Invalid value: "": only one of ` + "`sharedCounters` or `devices` is allowed"}},
		{"a counter set of nothing", slice("nodeName: n, sharedCounters: [{name: s}]"), []string{"spec.sharedCounters[0].counters: Required value"}},
		{"as many devices as there may be", slice(many(128, "")), nil},
		{"one more", slice(many(129, "")), []string{"spec.devices: Too many: 129: must have at most 128 items"}},
		{"half as many with taints", slice(many(65, ", taints: [{key: k, effect: None}]")), []string{"spec.devices: Too many: 65: must have at most 64 items"}},
		{"one name twice", slice("nodeName: n, devices: [{name: x}, {name: x}]"), []string{`spec.devices[1]: Duplicate value: "x"`}},
		{"an attribute of no value", slice("nodeName: n, devices: [{name: x, attributes: {a: {}}}]"), []string{"spec.devices[0].attributes[a]: ..."}},
		{"an attribute of two values", slice("nodeName: n, devices: [{name: x, attributes: {a: {int: 1, bool: true}}}]"), []string{"spec.devices[0].attributes[a]: Invalid value: ..."}},
		{"a version that is none", slice("nodeName: n, devices: [{name: x, attributes: {a: {version: '1'}}}]"),
			[]string{`spec.devices[0].attributes[a].version: Invalid value: "1": must be a string compatible with semver.org spec 2.0.0`}},
		{"a device of a node of its own", slice("nodeName: n, devices: [{name: x, nodeName: m}]"),
			[]string{"spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"}},
		{"devices of no node", slice("perDeviceNodeSelection: true, devices: [{name: x}]"),
			[]string{"spec.devices[0]: Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"}},
		{"a policy of a device for one", slice("nodeName: n, devices: [{name: x, capacity: {m: {value: 1, requestPolicy: {default: 1}}}}]"),
			[]string{"spec.devices[0].capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must be true"}},
	})
	kindtest.Changes(t, slice("nodeName: n"), map[string]kindtest.Change[*resourcev1.ResourceSlice]{
		"another generation": {func(s *resourcev1.ResourceSlice) { s.Spec.Pool.Generation++ }, nil},
		"another pool":       {func(s *resourcev1.ResourceSlice) { s.Spec.Pool.Name = "q" }, []string{`spec.pool.name: Invalid value: "q": field is immutable`}},
		"another driver":     {func(s *resourcev1.ResourceSlice) { s.Spec.Driver = "e" }, []string{`spec.driver: Invalid value: "e": field is immutable`}},
		"another node":       {func(s *resourcev1.ResourceSlice) { s.Spec.NodeName = ptr.To("m") }, []string{`spec.nodeName: Invalid value: "m": field is immutable`}},
	})
	capital := slice("nodeName: n")
	capital.Spec.Driver = "D.example.com"
	if got := kindtest.Warnings(capital); len(got) != 1 || got[0] != `spec.driver: driver names should be lowercase; "D.example.com" contains uppercase characters` {
		t.Errorf("Warnings of a driver with an uppercase letter = %q, want one about spec.driver", got)
	}
}

func TestSharedCapacity(t *testing.T) {
	of := func(policy string) *resourcev1.ResourceSlice {
		return sliceOf(t, "nodeName: n, devices: [{name: x, allowMultipleAllocations: true, capacity: {m: {value: 10Gi, requestPolicy: "+policy+"}}}]")
	}
	const at = "spec.devices[0].capacity[m].requestPolicy"
	kindtest.Refuses(t, []kindtest.Create{
		{"values", of("{default: 1Gi, validValues: [1Gi, 2Gi]}"), nil},
		{"values that fall", of("{default: 1Gi, validValues: [2Gi, 1Gi]}"), []string{at + `.validValues[1]: Invalid value: "1Gi": values must be sorted in ascending order`}},
		{"a value twice", of("{default: 1Gi, validValues: [1Gi, 1024Mi]}"), []string{at + ".validValues[1]: Duplicate value: ..."}},
		{"a default that is no value", of("{default: 3Gi, validValues: [1Gi, 2Gi]}"), []string{at + `.validValues: Invalid value: "3Gi": default value is not valid according to the requestPolicy`}},
		{"no default", of("{validValues: [1Gi]}"), []string{at + ".default: Required value: required when validValues is defined"}},
		{"more than there is", of("{default: 1Gi, validValues: [1Gi, 11Gi]}"), []string{at + `.validValues[1]: Invalid value: "11Gi": option is larger than capacity value: 10Gi`}},
		{"values and a range", of("{default: 1Gi, validValues: [1Gi], validRange: {min: 1Gi}}"),
			[]string{at + `: Forbidden: exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`}},
		{"a range", of("{default: 2Gi, validRange: {min: 1Gi, max: 9Gi, step: 1Gi}}"), nil},
		{"a range the wrong way round", of("{default: 2Gi, validRange: {min: 3Gi, max: 1Gi}}"), []string{at + `.validRange.max: Invalid value: "3Gi": min is larger than max: 1Gi`,
			at + `.validRange.default: Invalid value: "2Gi": default is less than min: 3Gi`, at + `.validRange.default: Invalid value: "2Gi": default is more than max: 1Gi`}},
		{"steps that do not fit", of("{default: 2Gi, validRange: {min: 1Gi, max: 2560Mi, step: 1Gi}}"),
			[]string{at + `.validRange.step: Invalid value: "2560Mi": value is not a multiple of a given step (1Gi) from (1Gi)`}},
		{"steps of nothing", of("{default: 1Gi, validRange: {min: 1Gi, step: 0}}"), []string{at + `.validRange.step: Invalid value: "0": must be greater than zero`}},
		{"steps that are read as nothing", of("{default: 1Gi, validRange: {min: 1Gi, step: '18446744073709551616'}}"), []string{
			at + `.validRange.step: Invalid value: "18446744073709551616": one step ...`, at + `.validRange.step: Invalid value: "18446744073709551616": must not be larger than 9223372036854775807`}},
	})
}

func TestAlphaFieldsOfNewSlicesAreDropped(t *testing.T) {
	const with = "nodeName: n, partitionTypeAttribute: example.com/t, skipNodeOperations: ['*'], devices: [{name: x, attributes: {example.com/t: {string: a}, l: {ints: [1, 2]}}, " +
		"nodeAllocatableResources: {memory: {overhead: {perPod: 1Gi}}}, consumesCounters: [{counterSet: s, counters: {c: {value: 1}}, compatibilityGroups: [g]}]}]"
	alpha := func(s *resourcev1.ResourceSlice) (n int) {
		d := s.Spec.Devices[0]
		if s.Spec.PartitionTypeAttribute != nil {
			n++
		}
		return n + len(s.Spec.SkipNodeOperations) + len(d.Attributes["l"].IntValues) + len(d.NodeAllocatableResources) + len(d.ConsumesCounters[0].CompatibilityGroups)
	}
	old := sliceOf(t, with)
	kept, created := old.DeepCopy(), old.DeepCopy()
	strategy := kindtest.StrategyOf(t, old)
	strategy.PrepareForUpdate(t.Context(), kept, old)
	strategy.PrepareForCreate(t.Context(), created)
	if got := alpha(kept); got != 6 {
		t.Errorf("an old slice has %d fields of disabled features, want 6", got)
	}
	if got := alpha(created); got != 0 {
		t.Errorf("a new slice has %d fields of disabled features, want 0", got)
	}
	if created.Generation != 1 || len(created.Spec.Devices[0].ConsumesCounters) != 1 {
		t.Errorf("created slice = %+v, want generation 1 and one entry in consumesCounters", created)
	}
}

// As in kube-apiserver, an update that only changes fields of disabled features increments the generation.
func TestSliceGenerationMatchesKubeAPIServer(t *testing.T) {
	const devices = "devices: [{name: x}]"
	for name, c := range map[string]struct {
		change func(*resourcev1.ResourceSlice)
		want   int64
	}{
		"nothing":        {func(*resourcev1.ResourceSlice) {}, 7},
		"a label":        {func(s *resourcev1.ResourceSlice) { s.Labels = map[string]string{"a": "b"} }, 7},
		"another device": {func(s *resourcev1.ResourceSlice) { s.Spec.Devices[0].Name = "y" }, 8},
		"what belongs to a feature that is off": {func(s *resourcev1.ResourceSlice) {
			s.Spec.SkipNodeOperations = []resourcev1.SkipNodeOperation{"*"}
		}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			old := sliceOf(t, "nodeName: n, "+devices)
			old.Generation = 7
			next := old.DeepCopy()
			c.change(next)
			kindtest.StrategyOf(t, old).PrepareForUpdate(t.Context(), next, old)
			if next.Generation != c.want || next.Spec.SkipNodeOperations != nil {
				t.Errorf("generation = %d, skipNodeOperations = %q, want %d and none", next.Generation, next.Spec.SkipNodeOperations, c.want)
			}
		})
	}
}
