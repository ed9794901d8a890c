package extension_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/pkg/extension"
)

// byFrontProxy trusts a header. Requests with the header X-Test-Front-Proxy count as requests of a front proxy.
type byFrontProxy struct{ byHeader }

func (a byFrontProxy) AuthenticateRequest(r *http.Request) (user.Info, error) {
	if r.Header.Get("X-Test-Front-Proxy") != "" {
		extension.NoteFrontProxy(r.Context())
	}
	return a.byHeader.AuthenticateRequest(r)
}

// sink is an audit log that fails if err is set.
type sink struct {
	mu   sync.Mutex
	text bytes.Buffer
	err  error
}

func (s *sink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	return s.text.Write(b)
}

func (s *sink) events(t *testing.T) []auditv1.Event {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []auditv1.Event
	for line := range strings.Lines(s.text.String()) {
		var e auditv1.Event
		must(t, json.Unmarshal([]byte(line), &e))
		out = append(out, e)
	}
	s.text.Reset()
	return out
}

// await polls until the log contains n events. An event is written after the client has received the response.
func (s *sink) await(t *testing.T, n int) []auditv1.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var out []auditv1.Event
	for len(out) < n {
		out = append(out, s.events(t)...)
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("audit log has %d events after a minute, want %d", len(out), n)
		}
	}
	return out
}

// The id of a front proxy is in the response, the access log and the audit event. The id of another client is not.
func TestOnlyFrontProxyAuditIDIsAccepted(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	log := &sink{}
	s := start(t, func(c *extension.Config) {
		c.Authenticator, c.AuditLog, c.Logger, c.AccessLog = byFrontProxy{}, log, zap.New(core), true
	}, extension.Of(queueDefinition(), &queues{}))
	const path = "/apis/stats.example.com/v1/queues"
	for _, test := range []struct {
		name    string
		headers []string
		code    int
		want    string // empty: a generated ID
	}{
		{"a front proxy", []string{"X-Test-Front-Proxy: yes", "Audit-Id: trace:7/1"}, 200, "trace:7/1"},
		{"a front proxy with a long one", []string{"X-Test-Front-Proxy: yes", "Audit-Id: " + strings.Repeat("x", 100)}, 200, strings.Repeat("x", 64)},
		{"a front proxy without one", []string{"X-Test-Front-Proxy: yes"}, 200, ""},
		{"somebody else", []string{"Audit-Id: forged"}, 200, ""},
		{"a front proxy that vouches for nobody", []string{"X-Test-User: ", "X-Test-Front-Proxy: yes", "Audit-Id: refused"}, 401, ""},
	} {
		a := s.get(path+"?limit=5&secret=canary", test.headers...)
		ids := a.Header["Audit-Id"]
		if a.StatusCode != test.code || len(ids) != 1 || test.want != "" && ids[0] != test.want || test.want == "" && len(ids[0]) != 36 {
			t.Errorf("%s: status %s, Audit-Id %q, want status %d and the id %q (empty: a generated one)", test.name, a.Status, ids, test.code, test.want)
			continue
		}
		e := log.await(t, 1)[0]
		if string(e.AuditID) != ids[0] || e.ResponseStatus.Code != int32(test.code) || e.Verb != "list" || e.ObjectRef == nil || e.ObjectRef.Resource != "queues" ||
			e.RequestURI != path+"?limit=5&secret=..." || e.Stage != auditv1.StageResponseComplete || len(e.SourceIPs) != 1 {
			t.Errorf("%s: audit event = %+v, want a completed list of queues with id %s, status %d and a redacted URI", test.name, e, ids[0], test.code)
		}
		if test.code == 200 && e.User.Username != "alice" {
			t.Errorf("%s: user of the audit event = %+v, want alice", test.name, e.User)
		}
		lines := logs.FilterMessage("request").TakeAll()
		if len(lines) != 1 || lines[0].ContextMap()["audit-id"] != ids[0] {
			t.Errorf("%s: access log = %v, want one line with audit-id %s", test.name, lines, ids[0])
		}
		logs.TakeAll()
	}
	s.get("/livez")
	s.get("/version")
	if e := log.await(t, 1)[0]; e.RequestURI != "/version" {
		t.Errorf("first audit event after GET /livez and GET /version = %+v, want only /version", e)
	}
	log.mu.Lock()
	log.err = errors.New("the disk is full")
	log.mu.Unlock()
	if a := s.get(path); a.StatusCode != 200 {
		t.Errorf("GET while the audit log cannot be written = %s, want 200", a.Status)
	}
	must(t, s.stop())
	if logs.FilterMessage("failed to write an audit event").Len() != 1 {
		t.Errorf("log = %v, want one entry \"failed to write an audit event\"", logs.All())
	}
}
