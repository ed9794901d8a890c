package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"portico.dev/internal/metrics"
)

// lumberjack never ends its goroutine that removes old files (natefinch/lumberjack#56).
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const policyText = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  nonResourceURLs: ["/healthz*"]
- level: RequestResponse
  users: [alice]
- level: Request
  resources: [{group: "", resources: [configmaps]}]
- level: Metadata
`

func TestPolicy(t *testing.T) {
	p, err := LoadPolicy(write(t, "policy.yaml", policyText))
	if err != nil {
		t.Fatal(err)
	}
	resource := func(who, group, name, sub string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{User: &user.DefaultInfo{Name: who}, Verb: "create", ResourceRequest: true, APIGroup: group, Resource: name, Subresource: sub}
	}
	for name, c := range map[string]struct {
		asked authorizer.AttributesRecord
		want  auditinternal.Level
	}{
		"a rule for a path":                    {authorizer.AttributesRecord{Path: "/healthz"}, auditinternal.LevelNone},
		"a rule for a user":                    {resource("alice", "apps", "deployments", ""), auditinternal.LevelRequestResponse},
		"a rule for a resource":                {resource("bob", "", "configmaps", ""), auditinternal.LevelRequest},
		"the last rule":                        {resource("bob", "", "pods", ""), auditinternal.LevelMetadata},
		"E2 secrets, whatever a rule says":     {resource("alice", "", "secrets", ""), auditinternal.LevelMetadata},
		"E2 tokens, whatever a rule says":      {resource("alice", "", "serviceaccounts", "token"), auditinternal.LevelMetadata},
		"E2 reviews, whatever a rule says":     {resource("alice", "authentication.k8s.io", "tokenreviews", ""), auditinternal.LevelMetadata},
		"a service account itself is no token": {resource("alice", "", "serviceaccounts", ""), auditinternal.LevelRequestResponse},
	} {
		if got := p.Level(c.asked); got.Level != c.want {
			t.Errorf("%s: level = %s, want %s", name, got.Level, c.want)
		}
	}
}

func TestInvalidPolicyIsRejected(t *testing.T) {
	for name, text := range map[string]string{
		"no rules":       "apiVersion: audit.k8s.io/v1\nkind: Policy\n",
		"no such level":  "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Sometimes}]\n",
		"another kind":   "apiVersion: v1\nkind: ConfigMap\n",
		"not YAML":       "{",
		"an old version": "apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]\n",
	} {
		file := write(t, "policy.yaml", text)
		if _, err := LoadPolicy(file); err == nil || !strings.Contains(err.Error(), "audit policy") {
			t.Errorf("LoadPolicy of %s: error = %v, want an error that contains \"audit policy\"", name, err)
		}
	}
}

func event(uri string) *auditinternal.Event {
	return &auditinternal.Event{Level: auditinternal.LevelMetadata, AuditID: "id", Stage: auditinternal.StageResponseComplete, RequestURI: uri}
}

// start runs an auditor. stop waits for its end.
func start(t *testing.T, c Config) (a *Auditor, m *metrics.Audit, stop func()) {
	t.Helper()
	c.Metrics, c.Logger = metrics.NewAudit(prometheus.NewRegistry()), zap.NewNop()
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := a.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return a, c.Metrics, func() { cancel(); wg.Wait() }
}

func TestLogHasOneLinePerEvent(t *testing.T) {
	for _, mode := range []string{ModeBatch, ModeBlocking} {
		t.Run(mode, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "audit.log")
			a, m, stop := start(t, Config{LogPath: file, LogMode: mode})
			for range 1000 {
				a.Process(event("/api/\r\n\x1b[31mforged"), nil)
			}
			if mode == ModeBlocking {
				if n := len(linesOf(t, file)); n != 1000 {
					t.Errorf("log has %d lines before the end, want 1000", n)
				}
			}
			stop()
			lines := linesOf(t, file)
			if len(lines) != 1000 {
				t.Fatalf("log has %d lines, want 1000", len(lines))
			}
			var e auditv1.Event
			if err := json.Unmarshal(lines[0], &e); err != nil || e.Kind != "Event" || e.APIVersion != "audit.k8s.io/v1" || e.RequestURI != "/api/\r\n\x1b[31mforged" {
				t.Errorf("first line = %s, error %v, want the event", lines[0], err)
			}
			if n := testutil.ToFloat64(m.Written.WithLabelValues("log")); n != 1000 {
				t.Errorf("metric of written events = %v, want 1000", n)
			}
			if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("mode of the log = %v, error %v, want 0600", info.Mode(), err)
			}
		})
	}
}

func linesOf(t *testing.T, file string) [][]byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var lines [][]byte
	for s := bufio.NewScanner(f); s.Scan(); {
		lines = append(lines, []byte(s.Text()))
	}
	return lines
}

// A device is written and never renamed, independent of the amount of data.
func TestDevicesAreNotRotated(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "null")
	if err := os.Symlink(os.DevNull, path); err != nil {
		t.Fatal(err)
	}
	log, err := openLog(Config{LogPath: path, LogMaxSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	var event batch
	event.add(bytes.Repeat([]byte("x"), 100<<10))
	for range 30 {
		if n, err := log.send(t.Context(), &event); n != 1 || err != nil {
			t.Fatalf("send = %d, %v, want 1 event and no error", n, err)
		}
	}
	if err := log.close(); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("directory of the device = %v, error %v, want one entry", entries, err)
	}
}

func TestUnwritableLogPathPreventsStart(t *testing.T) {
	_, err := New(Config{LogPath: filepath.Join(t.TempDir(), "no", "such", "audit.log"), Metrics: metrics.NewAudit(prometheus.NewRegistry())})
	if err == nil || !strings.Contains(err.Error(), "--audit-log-path") {
		t.Error(err)
	}
}

// full fails like a full disk. hung never returns.
type full struct{ broken atomic.Bool }

func (f *full) send(_ context.Context, b *batch) (int, error) {
	if f.broken.Load() {
		return 0, errors.New("no space left on device")
	}
	return len(b.ends), nil
}
func (f *full) close() error { return nil }

type hung struct{ until chan struct{} }

func (h hung) send(context.Context, *batch) (int, error) {
	<-h.until
	return 0, errors.New("too late")
}
func (h hung) close() error { return nil }

func TestE7EventsLostOnFullDiskAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metrics.NewAudit(prometheus.NewRegistry())
		core, logs := observer.New(zap.InfoLevel)
		f := &full{}
		f.broken.Store(true)
		a := &Auditor{queues: []*queue{newQueue("log", f, batching{maxEvents: 10}, m, zap.New(core))}}
		a.SetPolicy(Everything())
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = a.Run(ctx) })
		for range 25 {
			a.Process(event("/api"), nil)
		}
		synctest.Wait()
		if n := testutil.ToFloat64(m.Dropped.WithLabelValues("log")); n != 25 {
			t.Errorf("%v events dropped, want 25", n)
		}
		if logs.FilterMessage("failed to write audit events").Len() != 1 {
			t.Errorf("log = %v, want one line \"failed to write audit events\"", logs.All())
		}
		f.broken.Store(false)
		a.Process(event("/api"), nil)
		synctest.Wait()
		if logs.FilterField(zap.Int("lost", 25)).Len() != 1 {
			t.Errorf("log after the disk has space again = %v, want one line with 25 lost events", logs.All())
		}
		cancel()
		wg.Wait()
	})
}

func TestE7HungSinkDelaysNoRequestAndDropsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metrics.NewAudit(prometheus.NewRegistry())
		h := hung{make(chan struct{})}
		a := &Auditor{queues: []*queue{newQueue("webhook", h, batching{maxEvents: 1}, m, zap.NewNop())}}
		a.SetPolicy(Everything())
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = a.Run(ctx) })
		a.Process(event("/api"), nil) // the event whose write hangs
		synctest.Wait()
		big := event("/" + strings.Repeat("x", 1<<19))
		line, err := encode(nil, big, nil)
		if err != nil {
			t.Fatal(err)
		}
		fits := maxQueued / len(line)
		for range fits + 7 {
			a.Process(big, nil)
		}
		if n := testutil.ToFloat64(m.Dropped.WithLabelValues("webhook")); n != 7 {
			t.Errorf("%v events dropped, want 7", n)
		}
		before := time.Now()
		cancel()
		wg.Wait() // The fake clock advances to the end of shutdownTimeout.
		if d := time.Since(before); d != shutdownTimeout {
			t.Errorf("shutdown took %s, want %s", d, shutdownTimeout)
		}
		if n := testutil.ToFloat64(m.Dropped.WithLabelValues("webhook")); n != float64(7+fits) {
			t.Errorf("%v events dropped at the end, want %d", n, 7+fits)
		}
		close(h.until)
	})
}

func TestWebhookReceivesEventLists(t *testing.T) {
	var mu sync.Mutex
	var got auditv1.EventList
	var dialled atomic.Int32
	refusals := 2
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if refusals--; refusals >= 0 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		var list auditv1.EventList
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &list); err != nil || list.Kind != "EventList" || r.URL.Path != "/sink" {
			t.Errorf("request = %s %s, error %v, want an EventList for /sink", r.URL, body, err)
		}
		got.Items = append(got.Items, list.Items...)
	}))
	defer server.Close()
	kubeconfig := write(t, "kubeconfig", `
apiVersion: v1
kind: Config
clusters: [{name: sink, cluster: {server: "`+server.URL+`/sink"}}]
contexts: [{name: sink, context: {cluster: sink, user: ""}}]
current-context: sink
`)
	a, m, stop := start(t, Config{WebhookConfigFile: kubeconfig, WebhookBatchMaxSize: 10, WebhookBatchMaxWait: time.Hour, WebhookInitialBackoff: time.Millisecond,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			dialled.Add(1)
			return new(net.Dialer).DialContext(ctx, network, address)
		}})
	for range 25 {
		a.Process(event("/api"), nil)
	}
	stop() // sends the last five events
	mu.Lock()
	defer mu.Unlock()
	if len(got.Items) != 25 || dialled.Load() == 0 {
		t.Errorf("webhook received %d events over %d connections, want 25 and at least one", len(got.Items), dialled.Load())
	}
	if n := testutil.ToFloat64(m.Dropped.WithLabelValues("webhook")); n != 0 {
		t.Errorf("%v events dropped, want 0", n)
	}
}

func TestOversizedEventIsSentWithoutBodies(t *testing.T) {
	e := event("/api")
	e.RequestObject = &runtime.Unknown{Raw: []byte(`"` + strings.Repeat("x", maxEvent) + `"`), ContentType: runtime.ContentTypeJSON}
	e.Annotations = map[string]string{"kept": "yes"}
	line, err := encode(nil, e, nil)
	if err != nil || len(line) > 1000 || !strings.Contains(string(line), truncatedAnnotation) || !strings.Contains(string(line), "kept") {
		t.Errorf("encoded event = %d bytes, error %v, want at most 1000 bytes with the truncated annotation", len(line), err)
	}
	if len(e.Annotations) != 1 {
		t.Errorf("annotations of the caller's event = %v, want them unchanged", e.Annotations)
	}
}

// The message of a refused secret may contain its values.
func TestE2ErrorsOmitSecretValues(t *testing.T) {
	for resource, quoted := range map[string]bool{"secrets": false, "configmaps": true} {
		e := event("/api/v1/namespaces/default/" + resource)
		e.ObjectRef = &auditinternal.ObjectReference{Resource: resource, Namespace: "default", Name: "x"}
		e.ResponseStatus = &metav1.Status{Status: metav1.StatusFailure, Code: 422, Reason: metav1.StatusReasonInvalid, Message: `Invalid value: "canary"`}
		line, err := encode(nil, e, nil)
		if err != nil || strings.Contains(string(line), "canary") != quoted || !strings.Contains(string(line), `"reason":"Invalid","code":422`) {
			t.Errorf("encoded event = %s, error %v, want the message: %t", line, err, quoted)
		}
		if e.ResponseStatus.Message == "" {
			t.Error("message of the caller's event is empty, want it unchanged")
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	e := event("/apis/metrics.k8s.io/v1beta1/nodes")
	e.User.Username, e.User.Groups = "alice", []string{"dev", "system:authenticated"}
	e.ObjectRef = &auditinternal.ObjectReference{Resource: "nodes", APIGroup: "metrics.k8s.io", APIVersion: "v1beta1"}
	e.Annotations = map[string]string{"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "RBAC: allowed by ClusterRoleBinding \"x\""}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := encode(nil, e, nil); err != nil {
			b.Fatal(err)
		}
	}
}
