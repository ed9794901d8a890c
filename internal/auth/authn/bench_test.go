package authn

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"portico.dev/internal/metrics"
)

// BenchmarkToken measures a request with one of a thousand tokens of a file. "unknown" is a token that is not in the file. satoken measures tokens
// of service accounts.
func BenchmarkToken(b *testing.B) {
	var lines strings.Builder
	for i := range 1000 {
		lines.WriteString("token-" + strings.Repeat("x", i) + ",user,uid,\"dev,ops\"\n")
	}
	a, err := New(Config{TokenFile: tokenFileWith(b, lines.String()), Anonymous: true, Metrics: metrics.NewAuth(prometheus.NewRegistry()), Logger: zap.NewNop()})
	if err != nil {
		b.Fatal(err)
	}
	for name, token := range map[string]string{"known": "token-" + strings.Repeat("x", 20), "unknown": "nobody"} {
		b.Run(name, func(b *testing.B) {
			header := []string{"Bearer " + token}
			r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "https://front/api", http.NoBody)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				r.Header["Authorization"] = header // a successful authentication removes it
				if _, ok, _ := a.AuthenticateRequest(r); ok != (name == "known") {
					b.Fatalf("AuthenticateRequest with the %s token = %t, want the opposite", name, ok)
				}
			}
		})
	}
}
