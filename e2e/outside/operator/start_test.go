package operator_test

import (
	"os"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"portico.dev/pkg/apitest"
)

type environment interface {
	Start() (*rest.Config, error)
	Stop() error
}

// BenchmarkStart compares the time to a server that answers, of apitest and, where KUBEBUILDER_ASSETS has its programs, of envtest.
func BenchmarkStart(b *testing.B) {
	servers := map[string]func() environment{"apitest": func() environment { return &apitest.Environment{} }}
	if os.Getenv("KUBEBUILDER_ASSETS") != "" {
		servers["envtest"] = func() environment { return &envtest.Environment{} }
	}
	for name, make := range servers {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				e := make()
				_, err := e.Start()
				b.StopTimer()
				if stopped := e.Stop(); err == nil {
					err = stopped
				}
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
