package projects_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"portico.dev/internal/extserver/hosttest"
	"portico.dev/internal/extserver/projects"
)

func TestUsersSeeOnlyTheirProjects(t *testing.T) {
	d := newFakeFrontDoor("a", "b", "c")
	d.bind("a", "alice", "view")
	d.bind("b", "alice", "admin")
	d.bind("b", "bob", "view")
	s := serve(t, d, nil)
	for user, want := range map[string]string{"alice": "a b", "bob": "b", "carol": "", "root": "a b c"} {
		if got := seen(t, s, user); got != want {
			t.Errorf("projects of %s = %q, want %q", user, got, want)
		}
	}
	d.set(func() {
		if d.reviewed["root get a"] {
			t.Error("access review for root, who may list all namespaces, want none")
		}
	})
	if a := s.Get("bob", projectPath+"/b"); a.StatusCode != http.StatusOK || !strings.Contains(a.Body, `"phase":"Active"`) {
		t.Errorf("GET of bob's project b = %d %s, want 200 with phase Active", a.StatusCode, a.Body)
	}
	hidden, missing := s.Get("bob", projectPath+"/a"), s.Get("bob", projectPath+"/z")
	if hidden.StatusCode != http.StatusNotFound || strings.NewReplacer(`\"a\"`, `\"z\"`, `:"a"`, `:"z"`).Replace(hidden.Body) != missing.Body {
		t.Errorf("GET of a hidden project = %s, of a missing one = %s, want equal 404 responses", hidden.Body, missing.Body)
	}
	a := s.Get("alice", projectPath, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	if !strings.Contains(a.Body, `"name":"Display Name"`) || strings.Contains(a.Body, `"c"`) {
		t.Errorf("table as alice = %s, want the column Display Name and no project c", a.Body)
	}
}

func TestFailedAccessReviewReturns500(t *testing.T) {
	d := newFakeFrontDoor("a", "b")
	d.bind("a", "alice", "view")
	s := serve(t, d, nil)
	for _, path := range []string{"POST /apis/authorization.k8s.io/v1/subjectaccessreviews", "GET /api/v1/namespaces"} {
		for _, code := range []int{403, 503} {
			d.set(func() { d.refuse[path] = code })
			hosttest.Eventually(t, "the list fails", func() bool { return s.Get("alice", projectPath).StatusCode != http.StatusOK })
			if a := s.Get("alice", projectPath); a.StatusCode != http.StatusInternalServerError || strings.Contains(a.Body, `"items"`) {
				t.Errorf("list of projects while %s fails with %d = %d %s, want 500 without items", path, code, a.StatusCode, a.Body)
			}
		}
		d.set(func() { d.refuse = map[string]int{} })
	}
}

func TestAccessReviewsAreCachedPerCaller(t *testing.T) {
	d := newFakeFrontDoor("a", "b")
	d.bind("a", "alice", "view")
	s := serve(t, d, func(c *projects.Config) { c.ReviewAge = time.Hour })
	seen(t, s, "alice")
	var before int
	d.set(func() { before = d.reviews })
	seen(t, s, "alice")
	d.set(func() {
		if d.reviews != before {
			t.Errorf("%d access reviews after the second list as alice, want %d", d.reviews, before)
		}
	})
	if got := seen(t, s, "bob"); got != "" {
		t.Errorf("projects of bob = %q, want none", got)
	}
}

func (d *fakeFrontDoor) has(name string) (n *corev1.Namespace) {
	d.set(func() { n = d.namespaces[name] })
	return n
}

func TestProjectRequestCreatesNamespaceAndAdmin(t *testing.T) {
	d := newFakeFrontDoor("taken")
	s := serve(t, d, func(c *projects.Config) { c.Roles = []string{"admin", "project-owner"} })
	a := ask(s, "alice", request("shop"))
	if a.StatusCode != http.StatusCreated || !strings.Contains(a.Body, `"kind":"ProjectRequest"`) || !strings.Contains(a.Body, `"uid":"uid-2"`) {
		t.Fatalf("POST of a ProjectRequest = %d %s, want 201", a.StatusCode, a.Body)
	}
	n := d.has("shop")
	if n == nil || n.Annotations["portico.dev/requester"] != "alice" || n.Annotations["portico.dev/display-name"] != "Shop" || len(n.Labels) > 0 {
		t.Fatalf("namespace shop = %+v, want the annotations of the request and no labels", n)
	}
	d.set(func() {
		if b := d.bindings["shop"]; len(b) != 2 || b[0].Name != "project-admin" || b[0].Subjects[0].Name != "alice" || b[0].RoleRef.Name != "admin" || b[1].RoleRef.Name != "project-owner" {
			t.Errorf("bindings in shop = %+v, want project-admin for alice and project-owner", b)
		}
	})
	if seen(t, s, "alice") != "shop" || seen(t, s, "bob") != "" {
		t.Error("projects after the request of alice are wrong, want shop for alice and none for bob")
	}
	t.Run("and they may delete it", func(t *testing.T) {
		if a := s.Do("bob", http.MethodDelete, projectPath+"/shop", nil); a.StatusCode != http.StatusNotFound {
			t.Errorf("DELETE of the project as bob = %d %s, want 404", a.StatusCode, a.Body)
		}
		d.set(func() { d.bind("shop", "carol", "view") })
		if a := s.Do("carol", http.MethodDelete, projectPath+"/shop", nil); a.StatusCode != http.StatusForbidden {
			t.Errorf("DELETE of the project as carol = %d %s, want 403", a.StatusCode, a.Body)
		}
		if d.has("shop") == nil {
			t.Fatal("namespace shop is gone after refused deletions, want it kept")
		}
		if a := s.Do("alice", http.MethodDelete, projectPath+"/shop", nil); a.StatusCode != http.StatusOK {
			t.Errorf("DELETE of the project as alice = %d %s, want 200", a.StatusCode, a.Body)
		}
		if d.has("shop") != nil || seen(t, s, "alice") != "" {
			t.Error("project shop exists after its deletion, want it gone")
		}
	})
}

func TestInvalidProjectRequestsAreRejected(t *testing.T) {
	d := newFakeFrontDoor("taken")
	s := serve(t, d, nil)
	for _, c := range []struct {
		situation, user, body string
		code                  int
		want                  string
	}{
		{"a name that is taken", "alice", request("taken"), 409, "already exists"},
		{"a name that is none", "alice", request("No Name"), 422, "metadata.name"},
		{"a reserved prefix", "alice", request("kube-mine"), 422, "reserved"},
		{"a reserved name", "alice", request("default"), 422, "reserved"},
		{"nobody", "system:anonymous", request("x"), 403, "nobody knows who asks"},
		{"labels, which set policies", "alice", strings.Replace(request("x"), `"name"`, `"labels":{"pod-security.kubernetes.io/enforce":"privileged"},"name"`, 1), 422, "set policies"},
		{"a description without end", "alice", strings.Replace(request("x"), `"displayName"`, `"description":"`+strings.Repeat("x", 5000)+`","displayName"`, 1), 422, "description"},
	} {
		t.Run(c.situation, func(t *testing.T) {
			if a := ask(s, c.user, c.body); a.StatusCode != c.code || !strings.Contains(a.Body, c.want) {
				t.Errorf("request as %s = %d %s, want %d and a body that contains %q", c.user, a.StatusCode, a.Body, c.code, c.want)
			}
		})
	}
	if d.has("x") != nil || len(d.bindings) > 0 || d.has("taken").Annotations != nil {
		t.Errorf("after refused requests: namespaces = %v, bindings = %v, want no changes", d.namespaces, d.bindings)
	}
}

// A namespace without an admin must not stay and block the name.
func TestFailedProjectRequestIsRolledBack(t *testing.T) {
	for situation, c := range map[string]struct {
		path string
		lose bool
	}{
		"the binding is refused":               {"POST /apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings", false},
		"the binding's answer is lost":         {"POST /apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings", true},
		"the namespace is refused":             {"POST /api/v1/namespaces", false},
		"the answer to the namespace was lost": {"POST /api/v1/namespaces", true},
	} {
		t.Run(situation, func(t *testing.T) {
			d := newFakeFrontDoor()
			s := serve(t, d, nil)
			d.set(func() {
				d.lose[c.path] = c.lose
				if !c.lose {
					d.refuse[c.path] = 403
				}
			})
			if a := ask(s, "alice", request("shop")); a.StatusCode != http.StatusInternalServerError {
				t.Errorf("request that cannot be completed = %d %s, want 500", a.StatusCode, a.Body)
			}
			if n := d.has("shop"); n != nil {
				t.Errorf("namespace after a failed request = %+v, want none", n)
			}
			d.set(func() { d.lose, d.refuse = map[string]bool{}, map[string]int{} })
			if a := ask(s, "bob", request("shop")); a.StatusCode != http.StatusCreated {
				t.Errorf("request after a failed request = %d %s, want 201", a.StatusCode, a.Body)
			}
		})
	}
}

func TestConcurrentRequestsForOneNameGiveOneOwner(t *testing.T) {
	d := newFakeFrontDoor()
	s := serve(t, d, nil)
	codes := make([]int, 12)
	var wg sync.WaitGroup
	for i := range codes {
		wg.Go(func() { codes[i] = ask(s, fmt.Sprint("user-", i), request("shop")).StatusCode })
	}
	wg.Wait()
	owner := -1
	for i, code := range codes {
		switch {
		case code == http.StatusCreated && owner < 0:
			owner = i
		case code != http.StatusConflict:
			t.Errorf("request of user-%d for a name in use = %d, want 409", i, code)
		}
	}
	d.set(func() {
		if b := d.bindings["shop"]; owner < 0 || len(b) != 1 || b[0].Subjects[0].Name != fmt.Sprint("user-", owner) {
			t.Errorf("owner = user-%d, bindings = %+v, want one binding for the owner", owner, b)
		}
	})
}

func TestProjectLimitHoldsForConcurrentRequests(t *testing.T) {
	d := newFakeFrontDoor()
	s := serve(t, d, func(c *projects.Config) { c.MaxPerUser = 3 })
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() { ask(s, "alice", request(fmt.Sprint("p", i))) })
	}
	wg.Wait()
	d.set(func() {
		if len(d.namespaces) != 3 {
			t.Errorf("%d namespaces after simultaneous requests of alice, want 3", len(d.namespaces))
		}
	})
	if a := ask(s, "alice", request("more")); a.StatusCode != http.StatusForbidden || !strings.Contains(a.Body, "3 is the limit; delete one first") {
		t.Errorf("request over the limit = %d %s, want 403 that names the limit", a.StatusCode, a.Body)
	}
	if a := ask(s, "bob", request("mine")); a.StatusCode != http.StatusCreated {
		t.Errorf("request as bob = %d %s, want 201", a.StatusCode, a.Body)
	}
}

func TestProjectsAreServedInOpenShiftGroup(t *testing.T) {
	d := newFakeFrontDoor()
	s := serve(t, d, func(c *projects.Config) { c.Group = projects.OpenShiftGroup })
	body := strings.Replace(request("shop"), "project.portico.dev", "project.openshift.io", 1)
	a := s.Do("alice", http.MethodPost, "/apis/project.openshift.io/v1/projectrequests", strings.NewReader(body), "Content-Type", "application/json")
	if a.StatusCode != http.StatusCreated || d.has("shop").Annotations["openshift.io/requester"] != "alice" {
		t.Errorf("request in the OpenShift group = %d %s, want 201 and the requester alice", a.StatusCode, a.Body)
	}
	if _, err := projects.New(projects.Config{Group: "other"}); err == nil {
		t.Error("New with an unknown group: error = nil, want an error")
	}
}

// Callers connect and disconnect while rights change. No caller may receive a namespace that it was never allowed to get. Run this
// test with -race.
func TestCallersReceiveOnlyTheirNamespaces(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	d := newFakeFrontDoor()
	users := []string{"alice", "bob", "carol", "dave"}
	for _, u := range users {
		for i := range 3 {
			name := fmt.Sprint(u, "-", i)
			d.add(name, nil)
			d.bind(name, u, "view")
		}
	}
	s := serve(t, d, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	gained := make([]bool, len(users))
	for i, u := range users {
		watcher := watchAs(t, s, u)
		wg.Go(func() {
			defer watcher.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case e, ok := <-watcher.ResultChan():
					if !ok {
						return
					}
					if e.Type == watch.Bookmark {
						continue
					}
					o, isObject := e.Object.(metav1.Object)
					if !isObject || !strings.HasPrefix(o.GetName(), u+"-") {
						t.Errorf("event of %s = %+v, want only namespaces with the prefix %s-", u, e.Object, u)
					}
					if isObject && o.GetName() == u+"-new" && e.Type == watch.Added {
						gained[i] = true
						return
					}
				}
			}
		})
		wg.Go(func() {
			for range 10 {
				for name := range strings.FieldsSeq(seen(t, s, u)) {
					if !strings.HasPrefix(name, u+"-") {
						t.Errorf("list of %s contains %s, want only namespaces with the prefix %s-", u, name, u)
					}
				}
			}
		})
	}
	for _, u := range users {
		d.set(func() {
			d.add(u+"-new", nil)
			d.bind(u+"-new", u, "view")
		})
	}
	wg.Wait()
	for i, ok := range gained {
		if !ok {
			t.Errorf("%s received no event for the new namespace, want one", users[i])
		}
	}
}

// watchAs opens a watch like client-go's informers.
func watchAs(t *testing.T, s *hosttest.Server, user string) watch.Interface {
	t.Helper()
	config := s.As(user)
	client, err := dynamic.NewForConfig(config)
	must(t, err)
	yes := true
	w, err := client.Resource(schema.GroupVersionResource{Group: "project.portico.dev", Version: "v1", Resource: "projects"}).
		Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	must(t, err)
	return w
}

func TestRevokedRightCausesDeletedEvent(t *testing.T) {
	d := newFakeFrontDoor("a")
	d.bind("a", "alice", "view")
	s := serve(t, d, nil)
	w := watchAs(t, s, "alice")
	defer w.Stop()
	next := func() string {
		select {
		case e := <-w.ResultChan():
			raw, _ := json.Marshal(e.Object)
			return string(e.Type) + " " + string(raw)
		case <-time.After(time.Minute):
			return "nothing"
		}
	}
	if e := next(); !strings.HasPrefix(e, "ADDED") {
		t.Fatalf("first event = %s, want ADDED", e)
	}
	if e := next(); !strings.HasPrefix(e, "BOOKMARK") {
		t.Fatalf("second event = %s, want BOOKMARK", e)
	}
	d.set(func() { delete(d.bindings, "a") })
	if e := next(); !strings.HasPrefix(e, "DELETED") || !strings.Contains(e, `"name":"a"`) {
		t.Errorf("event after the binding was removed = %s, want DELETED of a", e)
	}
}
