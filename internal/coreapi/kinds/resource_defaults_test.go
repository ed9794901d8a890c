package kinds_test

import (
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestDefaultsOfDevices(t *testing.T) {
	const requests = "devices: {requests: [{name: a, exactly: {deviceClassName: c, tolerations: [{key: k}]}}, " +
		"{name: b, firstAvailable: [{name: x, deviceClassName: c, allocationMode: All}, {name: z, deviceClassName: c, tolerations: [{key: k}]}]}]}"
	const defaulted = "devices: {requests: [{name: a, exactly: {deviceClassName: c, allocationMode: ExactCount, count: 1, tolerations: [{key: k, operator: Equal}]}}, " +
		"{name: b, firstAvailable: [{name: x, deviceClassName: c, allocationMode: All}, " +
		"{name: z, deviceClassName: c, allocationMode: ExactCount, count: 1, tolerations: [{key: k, operator: Equal}]}]}]}"
	kindtest.Defaults(t, []kindtest.Default{
		{"a claim", &resourcev1.ResourceClaim{}, "spec: {" + requests + "}", "metadata: {}\nspec: {" + defaulted + "}\nstatus: {}"},
		{"a template", &resourcev1.ResourceClaimTemplate{}, "spec: {spec: {" + requests + "}}", "metadata: {}\nspec: {metadata: {}, spec: {" + defaulted + "}}"},
		{"what the scheduler tolerated", &resourcev1.ResourceClaim{}, "spec: {}\nstatus: {allocation: {devices: {results: [{request: a, driver: d, pool: p, device: x, tolerations: [{key: k}]}]}}}",
			"metadata: {}\nspec: {devices: {requests: null}}\nstatus: {allocation: {devices: {results: [{request: a, driver: d, pool: p, device: x, tolerations: [{key: k, operator: Equal}]}]}}}"},
	})
}

func TestTaintWithoutTimeGetsCurrentTime(t *testing.T) {
	before := time.Now().Add(-time.Second)
	rule := kindtest.Decode[resourcev1.DeviceTaintRule](t, "spec: {taint: {key: k, effect: None}}")
	slice := kindtest.Decode[resourcev1.ResourceSlice](t, "spec: {devices: [{name: a, taints: [{key: k, effect: None}]}]}")
	for _, taint := range []resourcev1.DeviceTaint{rule.Spec.Taint, slice.Spec.Devices[0].Taints[0]} {
		if at := taint.TimeAdded; at == nil || at.Time.Before(before) || at.Nanosecond() != 0 {
			t.Errorf("timeAdded = %v, want the current time in whole seconds", at)
		}
	}
	dated := kindtest.Decode[resourcev1.DeviceTaintRule](t, "spec: {taint: {key: k, effect: None, timeAdded: '2026-01-02T03:04:05Z'}}")
	if got := dated.Spec.Taint.TimeAdded.UTC().Format(time.RFC3339); got != "2026-01-02T03:04:05Z" {
		t.Errorf("timeAdded = %s, want the client's 2026-01-02T03:04:05Z", got)
	}
}
