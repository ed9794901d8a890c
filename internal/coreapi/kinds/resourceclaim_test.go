package kinds_test

import (
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func claimOf(t *testing.T, devices string) *resourcev1.ResourceClaim {
	t.Helper()
	return kindtest.Decode[resourcev1.ResourceClaim](t, "metadata: {name: a, namespace: ns}\nspec: {devices: "+devices+"}")
}

func TestClaims(t *testing.T) {
	claim := func(devices string) *resourcev1.ResourceClaim { return claimOf(t, devices) }
	const unknown = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
	kindtest.Refuses(t, []kindtest.Create{
		{"nothing", claim("{}"), nil},
		{"one of the two", claim("{requests: [{name: a}]}"), []string{"spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required"}},
		{"both", claim("{requests: [{name: a, exactly: {deviceClassName: c}, firstAvailable: [{name: x, deviceClassName: c}]}]}"),
			[]string{"spec.devices.requests[0]: Invalid value: null: exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"}},
		{"no class", claim("{requests: [{name: a, exactly: {}}]}"), []string{"spec.devices.requests[0].exactly.deviceClassName: Required value"}},
		{"no class of an alternative", claim("{requests: [{name: a, firstAvailable: [{name: x}]}]}"), []string{"spec.devices.requests[0].firstAvailable[0].deviceClassName: Required value"}},
		{"a negative number", claim("{requests: [{name: a, exactly: {deviceClassName: c, count: -1}}]}"), []string{"spec.devices.requests[0].exactly.count: Invalid value: -1: must be greater than zero"}},
		{"all, and a number", claim("{requests: [{name: a, exactly: {deviceClassName: c, allocationMode: All, count: 1}}]}"),
			[]string{"spec.devices.requests[0].exactly.count: Invalid value: 1: must not be specified when allocationMode is 'All'"}},
		{"an unknown mode", claim("{requests: [{name: a, exactly: {deviceClassName: c, allocationMode: Some}}]}"),
			[]string{`spec.devices.requests[0].exactly.allocationMode: Unsupported value: "Some": supported values: "All", "ExactCount"`}},
		{"one name twice", claim("{requests: [{name: a, exactly: {deviceClassName: c}}, {name: a, exactly: {deviceClassName: c}}]}"), []string{`spec.devices.requests[1]: Duplicate value: ...`}},
		{"a constraint on an unknown request", claim("{requests: [{name: a, exactly: {deviceClassName: c}}], constraints: [{requests: [b, a/x, a/b/c], matchAttribute: example.com/a}]}"), []string{
			`spec.devices.constraints[0].requests[0]: Invalid value: "b": ` + unknown, `spec.devices.constraints[0].requests[1]: Invalid value: "a/x": ` + unknown,
			`spec.devices.constraints[0].requests[2]: Invalid value: "a/b/c": ` + unknown}},
		{"a constraint on nothing", claim("{constraints: [{}]}"),
			[]string{`spec.devices.constraints[0]: Required value: exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`}},
		{"an attribute of nobody", claim("{constraints: [{matchAttribute: a}]}"),
			[]string{`spec.devices.constraints[0].matchAttribute: Invalid value: "a": a fully qualified name must be a domain and a name separated by a slash`}},
		{"a toleration of a value for all", claim("{requests: [{name: a, exactly: {deviceClassName: c, tolerations: [{operator: Exists, value: v}, {key: k, operator: Like}]}}]}"), []string{
			"spec.devices.requests[0].exactly.tolerations[0].value: Invalid value: \"v\": must be empty for operator `Exists`",
			`spec.devices.requests[0].exactly.tolerations[1].operator: Unsupported value: "Like": supported values: "Equal", "Exists"`}},
		{"what compiles", claim(`{requests: [{name: a, exactly: {deviceClassName: c, selectors: [{cel: {expression: 'device.capacity["x.example.com"].memory.compareTo(quantity("1Gi")) >= 0'}}]}}]}`), nil},
		{"what does not", claim(`{requests: [{name: a, exactly: {deviceClassName: c, selectors: [{cel: {expression: 'device.name'}}]}}]}`),
			[]string{`spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: "device.name": compilation failed: ...`}},
	})
	kindtest.Changes(t, claim("{requests: [{name: a, exactly: {deviceClassName: c}}]}"), map[string]kindtest.Change[*resourcev1.ResourceClaim]{
		"a label":       {func(c *resourcev1.ResourceClaim) { c.Labels = map[string]string{"a": "b"} }, nil},
		"another class": {func(c *resourcev1.ResourceClaim) { c.Spec.Devices.Requests[0].Exactly.DeviceClassName = "d" }, []string{"spec: Invalid value: ..."}},
	})
}

func TestClaimTemplates(t *testing.T) {
	template := func(spec string) *resourcev1.ResourceClaimTemplate {
		return kindtest.Decode[resourcev1.ResourceClaimTemplate](t, "metadata: {name: a, namespace: ns}\nspec: "+spec)
	}
	kindtest.Refuses(t, []kindtest.Create{
		{"labels and annotations", template("{metadata: {labels: {a: b}, annotations: {c: d}}, spec: {}}"), nil},
		{"a name", template("{metadata: {name: x, generateName: y}, spec: {}}"), []string{"spec.metadata.name: Forbidden: cannot be set", "spec.metadata.generateName: Forbidden: cannot be set"}},
		{"no class", template("{spec: {devices: {requests: [{name: a, exactly: {}}]}}}"), []string{"spec.spec.devices.requests[0].exactly.deviceClassName: Required value"}},
	})
	kindtest.Changes(t, template("{spec: {}}"), map[string]kindtest.Change[*resourcev1.ResourceClaimTemplate]{
		"another spec": {func(c *resourcev1.ResourceClaimTemplate) { c.Spec.Labels = map[string]string{"a": "b"} }, []string{"spec: Invalid value: ..."}},
	})
}

const allocatedOne = "allocation: {devices: {results: [{request: one, driver: d.example.com, pool: p, device: x}]}}"

func allocatedClaim(t *testing.T, status string) *resourcev1.ResourceClaim {
	t.Helper()
	return kindtest.Decode[resourcev1.ResourceClaim](t, "metadata: {name: a, namespace: ns, resourceVersion: '1'}\n"+
		"spec: {devices: {requests: [{name: one, exactly: {deviceClassName: c}}]}}\nstatus: {"+status+"}")
}

func TestInvalidClaimStatusesAreRejected(t *testing.T) {
	const reserved = "reservedFor: [{resource: pods, name: p, uid: u}]"
	for situation, c := range map[string]struct {
		old, new string
		deleted  bool
		want     []string
	}{
		"allocated":                  {"", allocatedOne + ", " + reserved, false, nil},
		"deallocated":                {allocatedOne, "", false, nil},
		"reserved and not allocated": {"", reserved, false, []string{"status.reservedFor: Forbidden: may not be specified when `allocated` is not set"}},
		"allocated again":            {allocatedOne, "allocation: {devices: {results: []}}", false, []string{"status.allocation: Invalid value: ..."}},
		"for an unknown request": {"", "allocation: {devices: {results: [{request: two, driver: d.example.com, pool: p, device: x}]}}", false,
			[]string{`status.allocation.devices.results[0].request: Invalid value: "two": must be the name of a request ...`}},
		"a new user of a claim that goes": {allocatedOne, allocatedOne + ", " + reserved, true,
			[]string{"status.reservedFor: Forbidden: new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"}},
		"an old user of a claim that goes": {allocatedOne + ", " + reserved, allocatedOne + ", " + reserved, true, nil},
		"users without names": {allocatedOne, allocatedOne + ", reservedFor: [{uid: u}, {resource: pods, name: q, uid: u}]", false, []string{
			"status.reservedFor[0].name: Required value", "status.reservedFor[0].resource: Required value", `status.reservedFor[1]: Duplicate value: ...`}},
		"the status of a device": {allocatedOne, allocatedOne + ", devices: [{driver: d.example.com, pool: p, device: x, data: {a: b}, networkData: {ips: [192.0.2.1/24]}}]", false, nil},
		"of a device of another": {allocatedOne, allocatedOne + ", devices: [{driver: d.example.com, pool: p, device: z}]", false,
			[]string{`status.devices[0]: Invalid value: {"Driver":"d.example.com","Pool":"p","Device":"z","ShareID":""}: must be an allocated device in the claim`}},
		"addresses that are none": {allocatedOne, allocatedOne + ", devices: [{driver: d.example.com, pool: p, device: x, data: 1, networkData: {ips: [a]}}]", false, []string{
			`status.devices[0].data: Invalid value: "<value omitted>": must be a valid JSON object`, `status.devices[0].networkData.ips[0]: Invalid value: "a": ...`}},
		"failures of nothing": {"", "allocation: {devices: {results: [{request: one, driver: d.example.com, pool: p, device: x, bindingFailureConditions: [a]}]}}", false,
			[]string{`status.allocation.devices.results[0].bindingConditions: Invalid value: null: bindingConditions are required to use bindingFailureConditions`}},
	} {
		t.Run(situation, func(t *testing.T) {
			next, old := allocatedClaim(t, c.new), allocatedClaim(t, c.old)
			if c.deleted {
				at := metav1.Now()
				next.DeletionTimestamp, old.DeletionTimestamp = &at, &at
			}
			kindtest.Refused(t, kindtest.StatusErrors(next, old), c.want...)
		})
	}
}

// A client that deallocates a claim may not know the status of devices.
func TestDeallocatedDevicesLoseTheirStatus(t *testing.T) {
	old := allocatedClaim(t, "allocation: {devices: {results: [{request: one, driver: d.example.com, pool: p, device: x}, {request: one, driver: d.example.com, pool: p, device: z}]}}, "+
		"devices: [{driver: d.example.com, pool: p, device: x}, {driver: d.example.com, pool: p, device: z}]")
	strategy := kindtest.StrategyOf(t, old)
	for situation, c := range map[string]struct {
		change func(*resourcev1.ResourceClaim)
		want   int
	}{
		"as before":   {func(*resourcev1.ResourceClaim) {}, 2},
		"deallocated": {func(c *resourcev1.ResourceClaim) { c.Status.Allocation = nil }, 0},
		"one is gone": {func(c *resourcev1.ResourceClaim) {
			c.Status.Allocation.Devices.Results = c.Status.Allocation.Devices.Results[:1]
		}, 1},
	} {
		t.Run(situation, func(t *testing.T) {
			next := old.DeepCopy()
			c.change(next)
			strategy.Resource.PrepareStatus(next, old)
			if got := len(next.Status.Devices); got != c.want {
				t.Errorf("devices with a status = %d, want %d", got, c.want)
			}
		})
	}
}

// Fields of disabled features are dropped, unless the stored object has them.
func TestAlphaFieldsOfNewClaimsAreDropped(t *testing.T) {
	const derived = "derivedAttributes: [{name: example.com/a, expression: '1'}]"
	c := claimOf(t, "{requests: [{name: a, exactly: {deviceClassName: c, "+derived+"}}, {name: b, firstAvailable: [{name: x, deviceClassName: c, "+derived+"}]}]}")
	strategy := kindtest.StrategyOf(t, c)
	kept := c.DeepCopy()
	strategy.PrepareForUpdate(t.Context(), kept, c)
	strategy.PrepareForCreate(t.Context(), c)
	if len(c.Spec.Devices.Requests[0].Exactly.DerivedAttributes)+len(c.Spec.Devices.Requests[1].FirstAvailable[0].DerivedAttributes) > 0 {
		t.Error("the created claim has derivedAttributes, want them dropped")
	}
	if len(kept.Spec.Devices.Requests[0].Exactly.DerivedAttributes) != 1 || len(kept.Spec.Devices.Requests[1].FirstAvailable[0].DerivedAttributes) != 1 {
		t.Error("the updated claim lost derivedAttributes, want one in each request")
	}
}
