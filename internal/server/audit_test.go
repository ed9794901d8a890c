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

func TestStagesOfARequest(t *testing.T) {
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
				t.Fatalf("stages %v, want %v", got, c.want)
			}
			if len(c.want) > 0 && b.events[len(b.events)-1].ResponseStatus.Code != c.code {
				t.Errorf("ended with %+v", b.events[len(b.events)-1].ResponseStatus)
			}
		})
	}
}

// What the handler of a local group adds to the library's context is in the event.
func TestWhatALocalHandlerAddsIsInTheEvent(t *testing.T) {
	b := newBench("alice *")
	b.handler = func(w http.ResponseWriter, r *http.Request) {
		audit.AddAuditAnnotation(r.Context(), "admission/said", "so")
		_, _ = io.WriteString(w, "served")
	}
	b.do(t, http.MethodGet, "/api/v1/pods", "Test-User: alice")
	if got := b.events[0].Annotations; got["admission/said"] != "so" || got["authorization.k8s.io/decision"] != "allow" {
		t.Errorf("annotations %v", got)
	}
}

// warnsAndNotes is an authenticator that has something to say of the credential, as satoken has.
type warnsAndNotes struct{}

func (warnsAndNotes) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	for range 2 {
		audit.AddAuditAnnotation(r.Context(), "credential/said", "so")
		warning.AddWarning(r.Context(), "", "use another")
	}
	return byHeader{}.AuthenticateRequest(r)
}

// E4: what authentication has to say of a credential is in the events of the request, whoever serves it and however it
// ends, and the client is warned.
func TestE4WhatAuthenticationSaysIsInTheEvent(t *testing.T) {
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
				t.Fatalf("stages %v, want %v", got, c.stages)
			}
			for _, e := range b.events {
				if e.Annotations["credential/said"] != "so" || e.AuditID == "" || e.Level != auditinternal.LevelMetadata {
					t.Errorf("%s: level %s, id %q, annotations %v", e.Stage, e.Level, e.AuditID, e.Annotations)
				}
			}
			if got := w.Header()["Warning"]; !slices.Equal(got, c.warnings) {
				t.Errorf("warnings %q, want %q", got, c.warnings)
			}
		})
	}
}

func TestAFailedCredentialIsAudited(t *testing.T) {
	b := newBench()
	b.do(t, http.MethodGet, "/api/v1/pods")
	if len(b.events) != 1 {
		t.Fatalf("%d events", len(b.events))
	}
	if e := b.events[0]; e.ResponseStatus.Code != http.StatusUnauthorized || e.User.Username != "" || e.ObjectRef.Resource != "pods" {
		t.Errorf("%+v", e)
	}
}

// Anybody can send X-Forwarded-For; what the log names is who was connected.
func TestSourceIPIsThePeer(t *testing.T) {
	b := newBench("alice *")
	b.do(t, http.MethodGet, "/api/v1/pods", "Test-User: alice", "X-Forwarded-For: 10.9.8.7")
	if got := b.events[0].SourceIPs; !slices.Equal(got, []string{"192.0.2.1"}) {
		t.Errorf("source %v", got)
	}
}
