package fairness_test

import (
	"runtime"
	"testing"
)

// The cost of a reservation that does not wait. BenchmarkSemaphore measures the limit without fairness.
func BenchmarkReservation(b *testing.B) {
	f := newTestEnv(b).fair(b, 600)
	for name, who := range map[string]string{"user": "", "administrator": "system:masters"} {
		b.Run(name, func(b *testing.B) {
			u := somebody("jane", who)
			r, info := asked(b.Context(), u, "/apis/metrics.k8s.io/v1beta1/nodes/a")
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					f.Reserve(r, info, u).Release()
				}
			})
		})
	}
}

func BenchmarkSemaphore(b *testing.B) {
	seats := make(chan struct{}, 400)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			select {
			case seats <- struct{}{}:
				<-seats
			default:
			}
		}
	})
}

// The cost of a reservation that waits, with many more requests than seats.
func BenchmarkQueuedReservation(b *testing.B) {
	f := newTestEnv(b).fair(b, 100)
	u := somebody("jane")
	r, info := asked(b.Context(), u, "/apis/metrics.k8s.io/v1beta1/nodes/a")
	b.ReportAllocs()
	b.SetParallelism(128)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			turn := f.Reserve(r, info, u)
			runtime.Gosched()
			turn.Release()
		}
	})
}
