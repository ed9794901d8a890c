package projects_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"portico.dev/internal/auth/authtest"
	"portico.dev/internal/clients/apiclient"
	"portico.dev/internal/extserver/hosttest"
	"portico.dev/internal/extserver/projects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeFrontDoor is a front door with namespaces and RoleBindings. A user with any binding in a namespace may get it. A "project-owner"
// may also delete it. The user root may list all namespaces.
type fakeFrontDoor struct {
	mu         sync.Mutex
	namespaces map[string]*corev1.Namespace
	bindings   map[string][]rbacv1.RoleBinding
	made       int
	reviews    int
	reviewed   map[string]bool // "user verb namespace"
	// refuse maps "METHOD path" to a status code. lose executes the request and drops the response.
	refuse map[string]int
	lose   map[string]bool
}

func newFakeFrontDoor(names ...string) *fakeFrontDoor {
	d := &fakeFrontDoor{namespaces: map[string]*corev1.Namespace{}, bindings: map[string][]rbacv1.RoleBinding{},
		reviewed: map[string]bool{}, refuse: map[string]int{}, lose: map[string]bool{}}
	for _, name := range names {
		d.add(name, nil)
	}
	return d
}

func (d *fakeFrontDoor) add(name string, annotations map[string]string) *corev1.Namespace {
	d.made++
	n := &corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprint("uid-", d.made)), ResourceVersion: fmt.Sprint(d.made),
			Annotations: annotations, CreationTimestamp: metav1.NewTime(time.Unix(1700000000, 0))},
		Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}
	d.namespaces[name] = n
	return n
}

func (d *fakeFrontDoor) bind(namespace, user, role string) {
	d.bindings[namespace] = append(d.bindings[namespace], rbacv1.RoleBinding{
		Subjects: []rbacv1.Subject{{Kind: "User", Name: user}}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: role}})
}

func (d *fakeFrontDoor) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

func (d *fakeFrontDoor) may(s authorizationv1.SubjectAccessReviewSpec) bool {
	a := s.ResourceAttributes
	if s.User == "root" {
		return true
	}
	for _, b := range d.bindings[a.Namespace] {
		if b.Subjects[0].Name == s.User && (a.Verb == "get" || a.Verb == "delete" && b.RoleRef.Name == "project-owner") {
			return true
		}
	}
	return false
}

func (d *fakeFrontDoor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	what := r.Method + " " + r.URL.Path
	if code := d.refuse[what]; code != 0 {
		status(w, code, "", "refused by the test")
		return
	}
	if d.lose[what] {
		w.Header().Set("Connection", "close")
		defer panic(http.ErrAbortHandler)
		w = discard{w.Header()}
	}
	path := strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces")
	switch {
	case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
		var review authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		d.reviews++
		d.reviewed[fmt.Sprint(review.Spec.User, " ", review.Spec.ResourceAttributes.Verb, " ", review.Spec.ResourceAttributes.Name)] = true
		review.Status.Allowed = d.may(review.Spec)
		reply(w, http.StatusCreated, review)
	case strings.HasSuffix(r.URL.Path, "/rolebindings"):
		var binding rbacv1.RoleBinding
		_ = json.NewDecoder(r.Body).Decode(&binding)
		d.bindings[binding.Namespace] = append(d.bindings[binding.Namespace], binding)
		reply(w, http.StatusCreated, binding)
	case path == "" && r.Method == http.MethodGet:
		list := corev1.NamespaceList{}
		for _, n := range d.namespaces {
			list.Items = append(list.Items, *n)
		}
		reply(w, http.StatusOK, list)
	case path == "":
		var n corev1.Namespace
		_ = json.NewDecoder(r.Body).Decode(&n)
		if d.namespaces[n.Name] != nil {
			status(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, "namespaces already exists")
			return
		}
		reply(w, http.StatusCreated, d.add(n.Name, n.Annotations))
	default:
		d.one(w, r, strings.TrimPrefix(path, "/"))
	}
}

func (d *fakeFrontDoor) one(w http.ResponseWriter, r *http.Request, name string) {
	n := d.namespaces[name]
	if n == nil {
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, "namespaces not found")
		return
	}
	if r.Method == http.MethodDelete {
		var options metav1.DeleteOptions
		_ = json.NewDecoder(r.Body).Decode(&options)
		if options.Preconditions == nil || *options.Preconditions.UID != n.UID {
			status(w, http.StatusConflict, metav1.StatusReasonConflict, "another UID")
			return
		}
		delete(d.namespaces, name)
		delete(d.bindings, name)
	}
	reply(w, http.StatusOK, n)
}

// discard is a response writer that drops the response.
type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

func reply(w http.ResponseWriter, code int, v any) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func status(w http.ResponseWriter, code int, reason metav1.StatusReason, text string) {
	reply(w, code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason, Message: text})
}

// serve hosts projects in front of d.
func serve(t *testing.T, d *fakeFrontDoor, change func(*projects.Config)) *hosttest.Server {
	t.Helper()
	s := authtest.Serve(t, d)
	client, err := apiclient.New(&rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: s.RootPEM}})
	must(t, err)
	c := projects.Config{Client: client, PollInterval: 20 * time.Millisecond, ReviewAge: time.Nanosecond}
	if change != nil {
		change(&c)
	}
	p, err := projects.New(c)
	must(t, err)
	hosttest.Run(t, p.Run, nil)
	return hosttest.Serve(t, nil, p.Resources()...)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const (
	projectPath = "/apis/project.portico.dev/v1/projects"
	requestPath = "/apis/project.portico.dev/v1/projectrequests"
)

// seen returns the names of the projects in the list of a user.
func seen(t *testing.T, s *hosttest.Server, user string) string {
	t.Helper()
	a := s.Get(user, projectPath)
	var list struct{ Items []projects.Project }
	if err := json.Unmarshal([]byte(a.Body), &list); err != nil || a.StatusCode != http.StatusOK {
		t.Fatalf("list of projects as %s = %d %s, want 200 with a list", user, a.StatusCode, a.Body)
	}
	var names []string
	for _, p := range list.Items {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func ask(s *hosttest.Server, user, body string) hosttest.Answer {
	return s.Do(user, http.MethodPost, requestPath, strings.NewReader(body), "Content-Type", "application/json")
}

func request(name string) string {
	return fmt.Sprintf(`{"apiVersion":"project.portico.dev/v1","kind":"ProjectRequest","metadata":{"name":%q},"displayName":"Shop"}`, name)
}
