package server

import (
	"io"
	"net/http"
	"slices"
	"testing"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/warning"
)

func level(l auditinternal.Level, omit ...auditinternal.Stage) func(authorizer.Attributes) audit.RequestAuditConfig {
	return func(authorizer.Attributes) audit.RequestAuditConfig {
		return audit.RequestAuditConfig{Level: l, OmitStages: omit}
	}
}

func stagesOf(b *bench) []auditinternal.Stage {
	var stages []auditinternal.Stage
	for _, e := range b.events {
		stages = append(stages, e.Stage)
	}
	return stages
}

func TestAuditStagesFollowRequestAndPolicy(t *testing.T) {
	type stages = []auditinternal.Stage
	serve := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") }
	for name, c := range map[string]struct {
		target  string
		policy  func(authorizer.Attributes) audit.RequestAuditConfig
		handler http.HandlerFunc
		want    stages
		code    int32
	}{
		"a read": {target: "/api/v1/pods", policy: level(auditinternal.LevelMetadata), handler: serve,
			want: stages{auditinternal.StageRequestReceived, auditinternal.StageResponseComplete}, code: 200},
		"a watch is told when it begins too": {target: "/api/v1/pods?watch=1", policy: level(auditinternal.LevelMetadata), handler: serve,
			want: stages{auditinternal.StageRequestReceived, auditinternal.StageResponseStarted, auditinternal.StageResponseComplete}, code: 200},
		"stages that the policy omits": {target: "/api/v1/pods?watch=1",
			policy:  level(auditinternal.LevelMetadata, auditinternal.StageRequestReceived, auditinternal.StageResponseStarted),
			handler: serve, want: stages{auditinternal.StageResponseComplete}, code: 200},
		"nothing at level None": {target: "/api/v1/pods", policy: level(auditinternal.LevelNone), handler: serve},
		"a panic": {target: "/api/v1/pods", policy: level(auditinternal.LevelMetadata), handler: func(http.ResponseWriter, *http.Request) { panic("canary") },
			want: stages{auditinternal.StageRequestReceived, auditinternal.StagePanic}, code: 500},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench("alice *")
			b.policy, b.handler = c.policy, c.handler
			b.do(t, http.MethodGet, c.target, "Test-User: alice")
			if got := stagesOf(b); !slices.Equal(got, c.want) {
				t.Fatalf("audit stages of GET %s = %v, want %v", c.target, got, c.want)
			}
			if len(c.want) > 0 && b.events[len(b.events)-1].ResponseStatus.Code != c.code {
				t.Errorf("status in the last audit event of GET %s = %+v, want code %d", c.target, b.events[len(b.events)-1].ResponseStatus, c.code)
			}
		})
	}
}

// The event contains the annotations that the handler of a local group adds to k8s.io/apiserver's audit context.
func TestAuditEventContainsAnnotationsOfLocalHandler(t *testing.T) {
	b := newBench("alice *")
	b.handler = func(w http.ResponseWriter, r *http.Request) {
		audit.AddAuditAnnotation(r.Context(), "admission/said", "so")
		_, _ = io.WriteString(w, "served")
	}
	b.do(t, http.MethodGet, "/api/v1/pods", "Test-User: alice")
	if got := b.events[0].Annotations; got["admission/said"] != "so" || got["authorization.k8s.io/decision"] != "allow" {
		t.Errorf("audit annotations = %v, want admission/said=so and authorization.k8s.io/decision=allow", got)
	}
}

// warnsAndNotes is an authenticator that adds a warning and an annotation, as satoken does.
type warnsAndNotes struct{}

func (warnsAndNotes) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	for range 2 {
		audit.AddAuditAnnotation(r.Context(), "credential/said", "so")
		warning.AddWarning(r.Context(), "", "use another")
	}
	return byHeader{}.AuthenticateRequest(r)
}

// E4: the events of a request contain the annotations of authentication, for proxied, local and rejected requests, and the
// client receives the warning.
func TestE4AuditEventContainsAuthenticationAnnotations(t *testing.T) {
	all := []auditinternal.Stage{auditinternal.StageRequestReceived, auditinternal.StageResponseComplete}
	for name, c := range map[string]struct {
		headers  []string
		level    func(authorizer.Attributes) audit.RequestAuditConfig
		handler  http.HandlerFunc
		stages   []auditinternal.Stage
		warnings []string
	}{
		"proxied": {headers: []string{"Test-User: alice"}, level: level(auditinternal.LevelMetadata), stages: all, warnings: []string{`299 - "use another"`}},
		"local": {headers: []string{"Test-User: alice"}, level: level(auditinternal.LevelMetadata), stages: all,
			handler: func(w http.ResponseWriter, r *http.Request) {
				ForLocal(nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					warning.AddWarning(r.Context(), "", "of the handler")
					audit.AddAuditAnnotation(r.Context(), "admission/said", "so")
					_, _ = io.WriteString(w, "served")
				})).ServeHTTP(w, r)
			},
			warnings: []string{`299 - "use another"`, `299 - "of the handler"`}},
		"refused": {headers: []string{"Test-User: bad"}, level: level(auditinternal.LevelMetadata),
			stages: []auditinternal.Stage{auditinternal.StageResponseStarted}},
		"not written down": {headers: []string{"Test-User: alice"}, level: level(auditinternal.LevelNone), warnings: []string{`299 - "use another"`}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench("alice *")
			b.config.Authenticator, b.policy = warnsAndNotes{}, c.level
			if c.handler != nil {
				b.handler = c.handler
			}
			w := b.do(t, http.MethodGet, "/api/v1/pods", c.headers...)
			if got := stagesOf(b); !slices.Equal(got, c.stages) {
				t.Fatalf("audit stages = %v, want %v", got, c.stages)
			}
			for _, e := range b.events {
				if e.Annotations["credential/said"] != "so" || e.AuditID == "" || e.Level != auditinternal.LevelMetadata {
					t.Errorf("audit event at stage %s has level %s, ID %q and annotations %v, want level Metadata, an ID and credential/said=so", e.Stage, e.Level, e.AuditID, e.Annotations)
				}
			}
			if got := w.Header()["Warning"]; !slices.Equal(got, c.warnings) {
				t.Errorf("Warning fields = %q, want %q", got, c.warnings)
			}
		})
	}
}

func TestUnauthenticatedRequestIsAudited(t *testing.T) {
	b := newBench()
	b.do(t, http.MethodGet, "/api/v1/pods")
	if len(b.events) != 1 {
		t.Fatalf("%d audit events for a request without credentials, want 1", len(b.events))
	}
	if e := b.events[0]; e.ResponseStatus.Code != http.StatusUnauthorized || e.User.Username != "" || e.ObjectRef.Resource != "pods" {
		t.Errorf("audit event of a request without credentials = %+v, want code 401, no user and the resource pods", e)
	}
}

// Any client can send X-Forwarded-For. The log contains the address of the connection.
func TestAuditSourceIPIsConnectionPeer(t *testing.T) {
	b := newBench("alice *")
	b.do(t, http.MethodGet, "/api/v1/pods", "Test-User: alice", "X-Forwarded-For: 10.9.8.7")
	if got := b.events[0].SourceIPs; !slices.Equal(got, []string{"192.0.2.1"}) {
		t.Errorf("source IPs of a request with X-Forwarded-For = %v, want [192.0.2.1]", got)
	}
}
