package transport

import (
	"fmt"
	"testing"
)

// BenchmarkPick measures the selection among healthy endpoints. With one endpoint, pick selects nothing.
func BenchmarkPick(b *testing.B) {
	for _, n := range []int{1, 3, 20} {
		set := New(Options{AllowLoopback: true})
		b.Cleanup(set.Close)
		spec := Spec{Name: "ns/svc:443", ServerName: "svc.ns.svc"}
		for i := range n {
			spec.Endpoints = append(spec.Endpoints, Endpoint{Address: fmt.Sprintf("127.0.0.1:%d", 20_000+i)})
		}
		backend, err := set.Backend(spec)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if backend.pick(*backend.candidates.Load(), nil) == nil {
					b.Fatal("pick returned nil, want an endpoint")
				}
			}
		})
	}
}

// BenchmarkAdmit measures the limit on the requests of one backend.
func BenchmarkAdmit(b *testing.B) {
	set := New(Options{AllowLoopback: true})
	b.Cleanup(set.Close)
	backend, err := set.Backend(Spec{Name: "ns/svc:443", ServerName: "svc.ns.svc"})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			var p Slot
			if err := backend.Admit(&p, "jane"); err == nil {
				p.Release()
			}
		}
	})
}
