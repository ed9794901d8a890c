package frontdoor_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"portico.dev/pkg/frontdoor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a front door until the end of the test.
func start(t *testing.T, c frontdoor.Config) *frontdoor.FrontDoor {
	t.Helper()
	c.Storage.InMemory = true
	front, err := frontdoor.New(c)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- front.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run of the front door failed: %v, want no error", err)
		}
	})
	select {
	case <-front.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("front door stopped before it was ready: %v, want a ready server", err)
	case <-time.After(time.Minute):
		t.Fatal("front door is not ready after a minute, want a ready server")
	}
	return front
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func client(t *testing.T, config *rest.Config, err error) *kubernetes.Clientset {
	t.Helper()
	must(t, err)
	c, err := kubernetes.NewForConfig(config)
	must(t, err)
	return c
}

var masters = []string{user.SystemPrivilegedGroup}

func get(t *testing.T, config *rest.Config, path string) (int, string) {
	t.Helper()
	transport, err := rest.HTTPClientFor(config)
	must(t, err)
	defer transport.CloseIdleConnections()
	response, err := transport.Get(config.Host + path)
	must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(body)
}

func TestClientsConnectBySocketAndInProcess(t *testing.T) {
	t.Parallel()
	front := start(t, frontdoor.Config{})
	over, err := front.RESTConfig("admin", masters)
	socket := client(t, over, err)
	inside, err := front.InProcessConfig("alice", nil)
	alice := client(t, inside, err)
	ctx := t.Context()
	_, err = socket.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	must(t, err)
	if _, err := alice.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("Get of a ConfigMap as a user without rights: error = %v, want Forbidden", err)
	}
	local, err := front.LocalConfig()
	if _, err := client(t, local, err).CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if code, body := get(t, over, "/readyz"); code != http.StatusOK {
		t.Errorf("GET /readyz = %d %s, want 200", code, body)
	}
}

func TestTwoFrontDoorsInOneProcessAreIndependent(t *testing.T) {
	t.Parallel()
	one, two := start(t, frontdoor.Config{}), start(t, frontdoor.Config{NoListener: true})
	ctx := t.Context()
	c1, err := one.InProcessConfig("admin", masters)
	_, err = client(t, c1, err).CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
	must(t, err)
	c2, err := two.InProcessConfig("admin", masters)
	if _, err := client(t, c2, err).CoreV1().Namespaces().Get(ctx, "x", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get of the namespace of the other front door: error = %v, want NotFound", err)
	}
	if _, err := two.RESTConfig("admin", masters); err == nil || !strings.Contains(err.Error(), "in-process") {
		t.Errorf("RESTConfig without a listener: error = %v, want an error that contains \"in-process\"", err)
	}
}

func TestHandlerWorksInServerOfTheProgram(t *testing.T) {
	t.Parallel()
	front := start(t, frontdoor.Config{NoListener: true, TokenAuthenticators: []authenticator.Token{
		authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: "admin", Groups: masters}}, token == "mine", nil
		}),
	}})
	server := httptest.NewUnstartedServer(front.Handler())
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	config := &rest.Config{Host: server.URL, BearerToken: "mine", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	maps, ctx := client(t, config, nil).CoreV1().ConfigMaps("default"), t.Context()
	events, err := maps.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=a"})
	must(t, err)
	defer events.Stop()
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	must(t, err)
	if e := <-events.ResultChan(); e.Type != watch.Added {
		t.Errorf("event type = %v, want ADDED", e.Type)
	}
	if code, body := get(t, rest.AnonymousClientConfig(config), "/api/v1/namespaces"); code != http.StatusForbidden {
		t.Errorf("anonymous GET of namespaces = %d %s, want 403", code, body)
	}
}

func TestHandlerBeforeRunReturns503(t *testing.T) {
	front, err := frontdoor.New(frontdoor.Config{DataDir: t.TempDir()})
	must(t, err)
	w := httptest.NewRecorder()
	front.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api", nil))
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), `"kind":"Status"`) {
		t.Errorf("GET /api before Run = %d %s, want 503 with a Status", w.Code, w.Body)
	}
}

func TestFrontDoorRunsWithoutLocalGroups(t *testing.T) {
	t.Parallel()
	front := start(t, frontdoor.Config{ServedGroups: []string{}})
	config, err := front.RESTConfig("admin", masters)
	must(t, err)
	for path, want := range map[string]int{
		"/api/v1/namespaces": http.StatusNotFound, "/apis/apps/v1/deployments": http.StatusNotFound,
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions": http.StatusNotFound,
		"/apis/apiregistration.k8s.io/v1/apiservices":             http.StatusOK, "/readyz": http.StatusOK, "/openapi/v2": http.StatusOK,
	} {
		if code, body := get(t, config, path); code != want {
			t.Errorf("GET %s = %d, want %d; body: %s", path, code, want, body)
		}
	}
	c := client(t, config, nil)
	groups, err := c.Discovery().ServerGroups()
	must(t, err)
	if len(groups.Groups) != 1 || groups.Groups[0].Name != "apiregistration.k8s.io" {
		t.Errorf("groups in discovery = %v, want only apiregistration.k8s.io", groups.Groups)
	}
	_, document := get(t, config, "/openapi/v3")
	if strings.Contains(document, "api/v1\"") || !strings.Contains(document, "apis/apiregistration.k8s.io/v1") {
		t.Errorf("OpenAPI index = %s, want apiregistration.k8s.io and not the core group", document)
	}
	_, swagger := get(t, config, "/openapi/v2")
	if strings.Contains(swagger, `"/api/v1/`) { // The prefix of a path, not a parameter's description.
		t.Error("OpenAPI v2 document contains paths of the core group, want none")
	}
	local, err := front.LocalConfig()
	if _, err := client(t, local, err).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("Get of a namespace inside the process failed: %v, want no error", err)
	}
}

type denySecrets struct{ *admission.Handler }

func (denySecrets) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().Resource == "secrets" && a.GetName() == "forbidden" {
		return admission.NewForbidden(a, fmt.Errorf("not with this name"))
	}
	return nil
}

func TestProgramAddsComponentsHandlersAndPlugins(t *testing.T) {
	t.Parallel()
	started, stopped := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { // Runs after the cleanup of start.
		select {
		case <-stopped:
		default:
			t.Error("component still runs after the front door stopped, want it stopped")
		}
	})
	front := start(t, frontdoor.Config{
		TokenAuthenticators: []authenticator.Token{authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: "by-token"}}, token == "mine", nil
		})},
		Authenticators: []authenticator.Request{authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			name := r.Header.Get("X-Person")
			return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, name != "", nil
		})},
		Authorizers: []authorizer.Authorizer{authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetUser().GetName() == "by-token" || a.GetUser().GetName() == "person" {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		})},
		Admission: []frontdoor.AdmissionPlugin{{Name: "DenySecrets", Plugin: denySecrets{admission.NewHandler(admission.Create)}}},
		Handlers: map[string]http.Handler{"/hello/": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "hello at "+r.URL.Path)
		})},
		Components: []frontdoor.Component{{Name: "mine", Ready: started, Run: func(ctx context.Context) error {
			close(started)
			<-ctx.Done()
			close(stopped)
			return nil
		}}},
	})
	admin, err := front.RESTConfig("admin", masters)
	must(t, err)
	anonymous := rest.AnonymousClientConfig(admin)
	token := rest.CopyConfig(anonymous)
	token.BearerToken = "mine"
	if code, body := get(t, token, "/hello/world"); code != http.StatusOK || body != "hello at /hello/world" {
		t.Errorf("GET /hello/world with the token = %d %s, want 200 and \"hello at /hello/world\"", code, body)
	}
	if code, body := get(t, anonymous, "/hello/world"); code != http.StatusForbidden {
		t.Errorf("anonymous GET /hello/world = %d %s, want 403", code, body)
	}
	person := rest.CopyConfig(anonymous)
	person.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Set("X-Person", "person")
			return next.RoundTrip(r)
		})
	})
	c := client(t, person, nil)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "forbidden"}}
	if _, err := c.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "not with this name") {
		t.Errorf("Create of a Secret that admission denies: error = %v, want Forbidden with \"not with this name\"", err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestSnapshotsAndTime(t *testing.T) {
	t.Parallel()
	front := start(t, frontdoor.Config{})
	config, err := front.InProcessConfig("admin", masters)
	c := client(t, config, err)
	ctx := t.Context()
	kept, err := c.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{})
	must(t, err)
	snapshot, err := front.Snapshot(ctx)
	must(t, err)
	must(t, c.CoreV1().ConfigMaps("default").Delete(ctx, "kept", metav1.DeleteOptions{}))
	_, err = c.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "later"}}, metav1.CreateOptions{})
	must(t, err)
	must(t, front.Restore(ctx, snapshot))
	again, err := c.CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{})
	if err != nil || again.UID != kept.UID {
		t.Errorf("Get of a ConfigMap after the restore = %v, error %v, want UID %s", again, err, kept.UID)
	}
	if _, err := c.CoreV1().ConfigMaps("default").Get(ctx, "later", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get of a ConfigMap created after the snapshot: error = %v, want NotFound", err)
	}

	_, err = c.CoreV1().Events("default").Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "e"}, InvolvedObject: corev1.ObjectReference{Namespace: "default"},
	}, metav1.CreateOptions{})
	must(t, err)
	must(t, front.Advance(ctx, 30*time.Minute))
	if _, err := c.CoreV1().Events("default").Get(ctx, "e", metav1.GetOptions{}); err != nil {
		t.Errorf("Get of an Event after 30 minutes failed: %v, want no error", err)
	}
	must(t, front.Advance(ctx, 31*time.Minute))
	if _, err := c.CoreV1().Events("default").Get(ctx, "e", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get of an Event after 61 minutes: error = %v, want NotFound", err)
	}
}

func TestInvalidConfigReturnsError(t *testing.T) {
	for _, c := range []struct {
		situation string
		config    frontdoor.Config
		want      string
	}{
		{"nowhere to store", frontdoor.Config{}, "DataDir"},
		{"unknown group", frontdoor.Config{DataDir: "x", ServedGroups: []string{"aps"}}, `"aps"`},
		{"unknown flag", frontdoor.Config{DataDir: "x", Flags: []string{"--colour"}}, "colour"},
		{"reserved path", frontdoor.Config{DataDir: "x", Handlers: map[string]http.Handler{"/apis/x": nil}}, "/apis"},
		{"external and in memory", frontdoor.Config{Storage: frontdoor.Storage{InMemory: true, EtcdServers: []string{"https://x"}}}, "volatile"},
		{"a plugin that is built in", frontdoor.Config{DataDir: "x", Admission: []frontdoor.AdmissionPlugin{{Name: "NamespaceLifecycle", Plugin: denySecrets{}}}}, "NamespaceLifecycle"},
	} {
		t.Run(c.situation, func(t *testing.T) {
			if _, err := frontdoor.New(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want it to say %q", err, c.want)
			}
		})
	}
}
