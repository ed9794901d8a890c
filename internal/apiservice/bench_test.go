package apiservice

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/routetable"
)

// BenchmarkLookup measures the router's table lookup, one for each request.
func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		var routes []*routetable.Route
		for i := range n {
			gv := schema.GroupVersion{Group: fmt.Sprintf("group-%d.example.com", i), Version: "v1"}
			routes = append(routes, &routetable.Route{GroupVersion: gv, Name: apiServiceName(gv)})
		}
		table := routetable.NewTable(routes, true)
		known, unknown := routes[n/2].GroupVersion, schema.GroupVersion{Group: "nobody.example.com", Version: "v1"}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := table.Lookup(known); !ok {
					b.Fatalf("Lookup(%v) found no route, want one", known)
				}
				if _, ok := table.Lookup(unknown); ok {
					b.Fatalf("Lookup(%v) found a route, want none", unknown)
				}
			}
		})
	}
}

// BenchmarkNewTable measures the cost of a change of an APIService.
func BenchmarkNewTable(b *testing.B) {
	for _, n := range []int{100, 1000} {
		var routes []*routetable.Route
		for i := range n {
			gv := schema.GroupVersion{Group: fmt.Sprintf("group-%d.example.com", i), Version: "v1"}
			routes = append(routes, &routetable.Route{GroupVersion: gv, Name: apiServiceName(gv), GroupPriority: int32(i % 7 * 1000)})
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				routetable.NewTable(routes, true)
			}
		})
	}
}
