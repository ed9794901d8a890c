package registration

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// frontDoor stores applied objects by path. A test can make it refuse requests.
type frontDoor struct {
	mu      sync.Mutex
	objects map[string]map[string]any
	refuse  func(r *http.Request) int
	bodies  []string // of deletions
}

func (f *frontDoor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		if code := f.refuse(r); code != 0 {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, `{"kind":"Status","message":"`+r.Method+` is forbidden"}`)
			return
		}
	}
	body, _ := io.ReadAll(r.Body)
	switch r.Method {
	case http.MethodPatch:
		var o map[string]any
		if json.Unmarshal(body, &o) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		o["metadata"].(map[string]any)["uid"] = "uid-of-" + r.URL.Path
		o["metadata"].(map[string]any)["resourceVersion"] = "7"
		f.objects[r.URL.Path] = o
	case http.MethodDelete:
		f.bodies = append(f.bodies, string(body))
		delete(f.objects, r.URL.Path)
	}
	o, ok := f.objects[r.URL.Path]
	if !ok && r.Method == http.MethodGet {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(o)
}

func (f *frontDoor) paths() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for path := range f.objects {
		out = append(out, path[strings.LastIndex(path, "/")+1:])
	}
	slices.Sort(out)
	return out
}

// keeping runs a registrar against a front door in synthetic time.
func keeping(t *testing.T, f *frontDoor, registration func() Registration, test func(k *Registrar)) error {
	t.Helper()
	k := &Registrar{config: RegistrarConfig{Registration: registration, Logger: zap.NewNop()}, ready: make(chan struct{}), trigger: make(chan struct{}, 1),
		client: once(func(r *http.Request) (*http.Response, error) {
			rec := httptest.NewRecorder()
			f.ServeHTTP(rec, r)
			return rec.Result(), nil
		}).client(t)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	synctest.Wait()
	test(k)
	cancel()
	return <-done
}

func TestUnservedAPIServicesAreUnregistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &frontDoor{objects: map[string]map[string]any{}}
		r := registration()
		extra := []schema.GroupVersion{{Group: "a.example.com", Version: "v1"}, {Group: "b.example.com", Version: "v1"}, {Group: "a.example.com", Version: "v1"}}
		r.GroupVersions = append(r.GroupVersions, extra...)
		must(t, keeping(t, f, func() Registration { return r }, func(k *Registrar) {
			if got := strings.Join(f.paths(), " "); got != "metrics v1.a.example.com v1.b.example.com v1.metrics.k8s.io v1beta1.metrics.k8s.io" {
				t.Fatalf("registered objects = %s, want metrics and 4 APIServices", got)
			}
			// Another client takes over b. This server stops serving a and b.
			f.mu.Lock()
			f.objects["/apis/apiregistration.k8s.io/v1/apiservices/v1.b.example.com"]["spec"].(map[string]any)["service"] = map[string]any{"namespace": "other", "name": "other"}
			f.mu.Unlock()
			r = registration()
			k.Trigger()
			synctest.Wait()
			if got := strings.Join(f.paths(), " "); got != "metrics v1.b.example.com v1.metrics.k8s.io v1beta1.metrics.k8s.io" {
				t.Errorf("objects = %s, want only v1.b.example.com and the metrics objects", got)
			}
			if len(f.bodies) != 1 || !strings.Contains(f.bodies[0], `"resourceVersion":"7"`) {
				t.Errorf("bodies of deletions = %s, want one with resourceVersion 7", f.bodies)
			}
		}))
	})
}

func TestAllMissingPermissionsAreReportedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &frontDoor{objects: map[string]map[string]any{}, refuse: func(*http.Request) int { return http.StatusForbidden }}
		err := keeping(t, f, registration, func(*Registrar) { time.Sleep(time.Minute) })
		var refused *RefusedError
		if !errors.As(err, &refused) {
			t.Fatalf("Run without permissions: error = %v, want a RefusedError", err)
		}
		if got := strings.Join(refused.Permissions, "; "); got != "patch services/metrics in kube-system; patch apiservices/v1.metrics.k8s.io; patch apiservices/v1beta1.metrics.k8s.io" {
			t.Errorf("missing permissions = %q, want all of them", got)
		}
		want := "register Service/kube-system/metrics: the front door answered 403: PATCH is forbidden (and 2 more); this server needs the right to patch services/metrics in kube-system, " +
			"to patch apiservices/v1.metrics.k8s.io, to patch apiservices/v1beta1.metrics.k8s.io; as an administrator: extserver manifests FLAGS | kubectl apply --server-side -f -, " +
			"with the flags of this server, or start it with --register=false"
		if err.Error() != want {
			t.Errorf("error\n%v\nwant\n%s", err, want)
		}
		text, err := YAML(refused.Objects)
		must(t, err)
		for _, part := range []string{"kind: ClusterRole\n", "name: v1beta1.metrics.k8s.io"} {
			if !strings.Contains(string(text), part) {
				t.Errorf("manifests lack %q, want it in\n%s", part, text)
			}
		}
	})
}

// updateOnly grants the rights of the printed role: existing objects may be read and patched. Only an administrator creates objects.
func (f *frontDoor) updateOnly(r *http.Request) int {
	_, there := f.objects[r.URL.Path]
	if r.Method == http.MethodGet || r.Method == http.MethodPatch && there && !strings.Contains(r.URL.Path, "/services/") {
		return 0
	}
	return http.StatusForbidden
}

// apply stores the objects that an administrator applied.
func (f *frontDoor) apply(t *testing.T, objects []Manifest) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range objects {
		text, err := json.Marshal(o)
		must(t, err)
		var object map[string]any
		must(t, json.Unmarshal(text, &object))
		f.objects[o.path()] = object
	}
}

func TestAppliedManifestsNeedOnlyUpdateRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &frontDoor{objects: map[string]map[string]any{}}
		f.refuse = f.updateOnly
		applied := registration()
		applied.CABundle = nil // Only the running server has the bundle.
		applied.Addresses = []string{"192.0.2.7"}
		f.apply(t, applied.Objects())
		current := applied
		current.CABundle = []byte("PEM")
		must(t, keeping(t, f, func() Registration { return current }, func(k *Registrar) {
			<-k.Ready()
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, version := range []string{"v1", "v1beta1"} {
				spec := f.objects["/apis/apiregistration.k8s.io/v1/apiservices/"+version+".metrics.k8s.io"]["spec"].(map[string]any)
				if spec["caBundle"] != "UEVN" {
					t.Errorf("spec of %s = %v, want the caBundle UEVN", version, spec)
				}
			}
		}))
	})
}

func TestMissingObjectWithoutCreateRightIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &frontDoor{objects: map[string]map[string]any{}}
		f.refuse = f.updateOnly
		r := registration()
		f.apply(t, r.Objects()[:2]) // all except v1beta1
		err := keeping(t, f, func() Registration { return r }, func(*Registrar) { time.Sleep(time.Minute) })
		want := "register APIService/v1beta1.metrics.k8s.io: the front door answered 403: PATCH is forbidden; this server needs the right to create apiservices/v1beta1.metrics.k8s.io, " +
			"which is missing; as an administrator: extserver manifests FLAGS | kubectl apply --server-side -f -, with the flags of this server (with --create-registration among them it may " +
			"create what is missing itself), or start it with --register=false"
		if err == nil || err.Error() != want {
			t.Errorf("error\n%v\nwant\n%s", err, want)
		}
	})
}

// An administrator grants rights and starts the server at once. The front door applies the rights when it next reads them.
func TestDelayedRightsAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		granted := time.Now().Add(time.Second)
		f := &frontDoor{objects: map[string]map[string]any{}, refuse: func(*http.Request) int {
			if time.Now().Before(granted) {
				return http.StatusForbidden
			}
			return 0
		}}
		must(t, keeping(t, f, registration, func(k *Registrar) { <-k.Ready() }))
	})
}

func TestForbiddenDeletionDoesNotStopRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &frontDoor{objects: map[string]map[string]any{}, refuse: func(r *http.Request) int {
			if r.Method == http.MethodDelete {
				return http.StatusForbidden
			}
			return 0
		}}
		r := registration()
		must(t, keeping(t, f, func() Registration { return r }, func(k *Registrar) {
			r.GroupVersions = r.GroupVersions[:1]
			k.Trigger()
			synctest.Wait()
			if len(k.written) != 1 {
				t.Errorf("objects in k.written = %v, want 1", k.written)
			}
		}))
	})
}

// rotating is a certificate whose bundle changes.
type rotating struct {
	changed chan struct{}

	mu        sync.Mutex // guards the fields below
	published []string
}

func (c *rotating) Changed() <-chan struct{} { return c.changed }

func (c *rotating) Published(bundle []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.published = append(c.published, string(bundle))
}

func (c *rotating) bundles() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.published)
}

func TestBundleIsPublishedAfterAllRegistrationsHaveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards refuse and r
		refuse, r := "", registration()
		set := func(refused string, bundle string) {
			mu.Lock()
			defer mu.Unlock()
			refuse, r.CABundle = refused, []byte(bundle)
		}
		f := &frontDoor{objects: map[string]map[string]any{}, refuse: func(r *http.Request) int {
			mu.Lock()
			defer mu.Unlock()
			if refuse != "" && strings.HasSuffix(r.URL.Path, refuse) {
				return http.StatusForbidden
			}
			return 0
		}}
		c := &rotating{changed: make(chan struct{}, 1)}
		current := func() Registration {
			mu.Lock()
			defer mu.Unlock()
			return r
		}
		must(t, keeping(t, f, current, func(k *Registrar) {
			k.config.Certificate = c
			k.Trigger()
			synctest.Wait()
			set("v1beta1.metrics.k8s.io", "PEM and another")
			c.changed <- struct{}{}
			synctest.Wait()
			if got := strings.Join(c.bundles(), ", "); got != "PEM" {
				t.Errorf("published bundles = %s, want only PEM while one registration is refused", got)
			}
			set("", "PEM and another")
			time.Sleep(checkInterval * 2)
			synctest.Wait()
			if !slices.Contains(c.bundles(), "PEM and another") {
				t.Errorf("published bundles = %s, want \"PEM and another\" among them", c.bundles())
			}
		}))
	})
}

func TestDeletedRegistrationsAreRecreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &frontDoor{objects: map[string]map[string]any{}}
		must(t, keeping(t, f, registration, func(*Registrar) {
			f.mu.Lock()
			clear(f.objects)
			f.mu.Unlock()
			time.Sleep(checkInterval * 2)
			synctest.Wait()
			if len(f.paths()) != 3 {
				t.Errorf("objects after their deletion = %v, want 3", f.paths())
			}
		}))
	})
}
