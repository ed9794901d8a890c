package audit

import (
	"os"
	"testing"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"portico.dev/internal/metrics"
)

// everyday is the event of a request at level Metadata.
func everyday() (*auditinternal.Event, []Annotation) {
	at := metav1.NewMicroTime(time.Date(2026, 11, 21, 9, 8, 7, 123456000, time.UTC))
	return &auditinternal.Event{
			Level: auditinternal.LevelMetadata, AuditID: "3b1bd1a6-7f2a-4c0a-9f0b-0d6b3f6c1c55", Stage: auditinternal.StageResponseComplete,
			RequestURI: "/apis/metrics.k8s.io/v1beta1/namespaces/kube-system/pods?limit=500", Verb: "list", SourceIPs: []string{"10.0.0.1"},
			User:      authnv1.UserInfo{Username: "alice", UID: "u-1", Groups: []string{"dev", "ops", "system:authenticated"}},
			UserAgent: "kubectl/v1.37.2 (linux/amd64) kubernetes/abcdef0",
			ObjectRef: &auditinternal.ObjectReference{
				Resource: "pods", Namespace: "kube-system", APIGroup: "metrics.k8s.io", APIVersion: "v1beta1",
			},
			ResponseStatus: &metav1.Status{Code: 200}, RequestReceivedTimestamp: at, StageTimestamp: at,
		}, []Annotation{
			{"authorization.k8s.io/decision", "allow"}, {"authorization.k8s.io/reason", `RBAC: allowed by RoleBinding "dev/kube-system" of Role "reader" to Group "dev"`},
		}
}

// BenchmarkEvent processes one event from the request to the queue. "encode" omits the queue.
func BenchmarkEvent(b *testing.B) {
	event, more := everyday()
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		var room []byte
		for b.Loop() {
			line, err := encode(room[:0], event, more)
			if err != nil {
				b.Fatal(err)
			}
			room = line
		}
	})
	b.Run("log", func(b *testing.B) {
		a, err := New(Config{LogPath: os.DevNull, Metrics: metrics.NewAudit(prometheus.NewRegistry()), Logger: zap.NewNop()})
		if err != nil {
			b.Fatal(err)
		}
		go func() { _ = a.Run(b.Context()) }()
		b.ReportAllocs()
		for b.Loop() {
			a.Process(event, more)
		}
	})
}
