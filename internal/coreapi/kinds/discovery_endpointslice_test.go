package kinds_test

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still served to clients from before EndpointSlices

func TestEndpointSlices(t *testing.T) {
	of := func(rest string) *discoveryv1.EndpointSlice {
		return kindtest.Decode[discoveryv1.EndpointSlice](t, "metadata: {name: a, namespace: ns}\n"+rest)
	}
	tooMany := of("addressType: FQDN")
	tooMany.Endpoints = make([]discoveryv1.Endpoint, 1001)
	kindtest.Refuses(t, []kindtest.Create{
		{"no address type", of("endpoints: []"), []string{"addressType: Required value"}},
		{"the type that was removed", of("addressType: IP"),
			[]string{`addressType: Unsupported value: "IP": supported values: "FQDN", "IPv4", "IPv6"`}},
		{"an address of the other family", of("addressType: IPv4\nendpoints: [{addresses: ['fd00::1']}]"),
			[]string{`endpoints[0].addresses[0]: Invalid value: "fd00::1": must be an IPv4 address`}},
		{"no address", of("addressType: IPv4\nendpoints: [{addresses: []}]"),
			[]string{"endpoints[0].addresses: Required value: must contain at least 1 address"}},
		{"the loopback", of("addressType: IPv6\nendpoints: [{addresses: ['::1']}]"), []string{
			`endpoints[0].addresses[0]: Invalid value: "::1": may not be in the loopback range (127.0.0.0/8, ::1/128)`}},
		{"a zone on an address", of("addressType: IPv6\nendpoints: [{addresses: ['fe80::1%eth0']}]"),
			[]string{`endpoints[0].addresses[0]: Invalid value: "fe80::1%eth0": must be a valid IP address...`}},
		{"a name without a domain", of("addressType: FQDN\nendpoints: [{addresses: [localhost]}]"),
			[]string{`endpoints[0].addresses[0]: Invalid value: "localhost": should be a domain with at least two segments...`}},
		{"too many endpoints", tooMany, []string{"endpoints: Too many: 1001: must have at most 1000 items"}},
		{"two ports without names", of("addressType: IPv4\nports: [{port: 80}, {port: 81}]"), []string{`ports[1].name: Duplicate value: ""`}},
		{"a zone hinted at twice", of("addressType: IPv4\nendpoints: [{addresses: [10.0.0.1], hints: {forZones: [{name: z}, {name: z}]}}]"),
			[]string{`endpoints[0].hints.forZones[1].name: Duplicate value: "z"`}},
	})
	kindtest.Changes(t, of("addressType: IPv4"), map[string]kindtest.Change[*discoveryv1.EndpointSlice]{
		"another address type": {func(s *discoveryv1.EndpointSlice) { s.AddressType = "IPv6" },
			[]string{`addressType: Invalid value: "IPv6": field is immutable`}},
	})
}
