package simulation

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/tools/drill/faulty"
)

// home is a namespace that a step creates.
type home struct {
	name      string
	uid       types.UID // empty if the creation had no definite result
	recreated bool      // an earlier namespace had the name
	things    []*thing  // objects that have been created for certain
	state     homeState
}

type homeState int

const (
	// living: the namespace may exist, and its deletion is not certain.
	living homeState = iota
	terminating
	removed
)

const namespacesPath = "/api/v1/namespaces"

func (n *home) path() string { return namespacesPath + "/" + n.name }

func (n *home) object() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
}

// deleteNamespace creates a namespace with objects, and deletes it in two of three cases. In half of these it creates a namespace
// of the same name afterwards.
func deleteNamespace(h *history, s step) {
	o := h.newOperation(s)
	n := o.createNamespace()
	if n == nil {
		return
	}
	o.fill(n, "first")
	o.pause()
	o.checkPresent(n.things)
	if s.choice%3 == 0 || !o.ongoing() {
		return
	}
	for _, t := range n.things {
		t.fate = open
	}
	if !o.delete(n.path(), n.name, n.uid, "") {
		return
	}
	n.state = terminating
	if o.awaitRemoval(n) && o.bit(3) {
		o.recreate(n)
	}
}

// createNamespace creates a namespace and returns it, or nil. As with objects, each attempt has another name.
func (o *operation) createNamespace() *home {
	for attempt := 0; attempt < createAttempts && o.ongoing(); attempt++ {
		n := &home{name: fmt.Sprintf("ns-%x-%d", o.step.choice, attempt)}
		o.addHome(n)
		if o.postNamespace(n) {
			return n
		}
	}
	return nil
}

func (h *history) addHome(n *home) {
	h.deletions.mu.Lock()
	defer h.deletions.mu.Unlock()
	h.deletions.homes = append(h.deletions.homes, n)
}

func (o *operation) postNamespace(n *home) bool {
	return o.send(http.MethodPost, namespacesPath, n.object()).uid(&n.uid)
}

// fill creates a ConfigMap in a namespace, and widgets at none, one or all of the backends that store.
func (o *operation) fill(n *home, role string) {
	places := []*backend{nil}
	for i, b := range o.backends {
		if b.stores && o.bit(8+i) {
			places = append(places, b)
		}
	}
	for _, b := range places {
		if t := o.create(thing{backend: b, namespace: n.name, name: role}); t != nil {
			n.things = append(n.things, t)
		}
	}
}

// awaitRemoval waits until a namespace is removed, and reports whether it is.
func (o *operation) awaitRemoval(n *home) bool {
	for o.ongoing() {
		a := o.send(http.MethodGet, n.path(), nil)
		if a.absent(n.name) {
			n.state = removed
			o.emptied(n)
			return true
		}
		if a.ok() {
			time.Sleep(time.Second)
		}
	}
	return false
}

// emptied requires that backends store nothing in a namespace that has just been removed, except a backend for which no namespace
// waits long.
func (h *history) emptied(n *home) {
	for _, b := range h.backends {
		if got, most := b.server.Stored(n.name), h.late(n, b); got > most && !h.finalizesWithout(b) {
			h.violate(ruleEmptied, "namespace %s is removed, and %s stores %d objects in it, want at most %d", n.name, b.name, got, most)
		}
	}
}

// checkEmptied returns an error while a backend stores objects of a namespace. All namespaces have been removed.
func (h *history) checkEmptied(context.Context) error {
	for _, n := range h.deletions.homes {
		for _, b := range h.backends {
			if got, most := b.server.Stored(n.name), h.late(n, b); got > most {
				return fmt.Errorf("namespace %s is removed, and %s stores %d objects in it, want at most %d", n.name, b.name, got, most)
			}
		}
	}
	return nil
}

// late returns how many objects may appear at a backend after their namespace was removed: requests without a definite result may
// arrive late, and these servers do not refuse objects of namespaces that do not exist.
func (h *history) late(n *home, b *backend) int {
	count := 0
	for _, t := range h.thingsIn(n.name) {
		if t.backend == b && t.uid == "" {
			count++
		}
	}
	return count
}

// thingsIn returns the objects of the model in a namespace.
func (h *history) thingsIn(namespace string) []*thing {
	h.deletions.mu.Lock()
	defer h.deletions.mu.Unlock()
	var in []*thing
	for _, t := range h.deletions.things {
		if t.namespace == namespace {
			in = append(in, t)
		}
	}
	return in
}

// recreate creates a namespace of the same name. It has only one attempt: a later one could not distinguish its result.
func (o *operation) recreate(before *home) {
	n := &home{name: before.name, recreated: true}
	o.addHome(n)
	if !o.postNamespace(n) {
		return
	}
	if n.uid == before.uid {
		o.violate(ruleRecreated, "namespace %s has UID %s, which the removed namespace of this name had", n.name, n.uid)
	}
	o.fill(n, "second")
	for _, t := range n.things {
		if t.backend != nil {
			// A deletecollection of the earlier namespace that its server receives late deletes these objects too. It has
			// no precondition that could prevent this.
			t.fate = open
		}
	}
}

// checkRemoved returns an error while a deleted namespace exists.
func (h *history) checkRemoved(ctx context.Context) error {
	for i, n := range h.deletions.homes {
		if n.state != terminating {
			continue
		}
		var got corev1.Namespace
		a := h.client(admin, h.front(i)).do(ctx, http.MethodGet, n.path(), nil)
		if !a.absent(n.name) {
			if err := a.decode(&got); err != nil {
				return err
			}
			return fmt.Errorf("namespace %s exists, want 404; its conditions are %s", n.name, failing(&got))
		}
		n.state = removed
		h.emptied(n)
	}
	return nil
}

// failing describes the conditions with which a namespace explains why it exists.
func failing(n *corev1.Namespace) string {
	var all []string
	for _, c := range n.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			all = append(all, fmt.Sprintf("%s: %s", c.Type, c.Message))
		}
	}
	return fmt.Sprintf("%q (deleted %v)", all, n.DeletionTimestamp)
}

// checkRecreated returns an error while a namespace has objects of the earlier one of its name.
func (h *history) checkRecreated(ctx context.Context) error {
	for i, n := range h.deletions.homes {
		if !n.recreated || n.state != living || n.uid == "" {
			continue
		}
		c := h.client(admin, h.front(i))
		own := map[types.UID]bool{}
		late := map[string]bool{} // objects that a request without a definite result may have created
		for _, t := range h.thingsIn(n.name) {
			if t.uid == "" {
				late[t.path()] = t.backend != nil || strings.HasPrefix(t.name, "second")
			}
		}
		for _, t := range n.things {
			own[t.uid] = true
		}
		for _, b := range append([]*backend{nil}, h.backends...) {
			if b != nil && !b.stores {
				continue
			}
			at := thing{backend: b, namespace: n.name}
			var list metav1.PartialObjectMetadataList
			if err := c.do(ctx, http.MethodGet, at.collection(), nil).decode(&list); err != nil {
				return err
			}
			for _, got := range list.Items {
				if at.name = got.Name; !own[got.UID] && !late[at.path()] && got.Name != "kube-root-ca.crt" {
					return fmt.Errorf("namespace %s contains %s with UID %s, which was not created in it", n.name, at.path(), got.UID)
				}
			}
		}
	}
	return nil
}

// deleteNamespaces deletes the remaining namespaces. In half of the histories a server is unavailable meanwhile: one that stores
// nothing, for which none waits, or one that stores objects in them.
func (h *history) deleteNamespaces(ctx context.Context) error {
	all := slices.DeleteFunc(slices.Clone(h.deletions.homes), func(n *home) bool { return n.state != living })
	if len(all) > 0 && h.deletions.dead == nil && h.seed%2 == 0 {
		h.deletions.dead = h.backends[h.seed/2%uint64(len(h.backends))]
		h.disturb(h.deletions.dead.name)
		h.check(h.deletions.dead.server.SetFault([]faulty.Fault{faulty.Refuse, faulty.Hang, faulty.Blackhole}[h.seed/6%3]))
	}
	if dead := h.deletions.dead; dead != nil && !h.deletions.returned {
		if err := h.checkUnavailable(ctx, dead); err != nil {
			return err
		}
	}
	for i, n := range all {
		a := h.client(admin, h.front(i)).do(ctx, http.MethodDelete, n.path(), deleteOptions(n.uid, ""))
		switch {
		case a.absent(n.name):
			n.state = removed // its creation or an earlier deletion had no definite result
		case a.ok():
			n.state = terminating
		default:
			return a.failure()
		}
	}
	return nil
}

// checkUnavailable returns an error while a front door reports a backend as available. Before that, a namespace could be removed
// because the failure is not known. With gateways, their condition is the one about the backend.
func (h *history) checkUnavailable(ctx context.Context, b *backend) error {
	kind := apiregistrationv1.Available
	if h.adopted {
		kind = adoption.BackendAvailable
	}
	for _, f := range h.fronts {
		var got apiregistrationv1.APIService
		path := "/apis/apiregistration.k8s.io/v1/apiservices/" + b.apiService()
		if err := h.client(admin, f).do(ctx, http.MethodGet, path, nil).decode(&got); err != nil {
			return err
		}
		for _, c := range got.Status.Conditions {
			if c.Type == kind && c.Status == apiregistrationv1.ConditionTrue {
				return fmt.Errorf("%s: %s of %s is True, want False, because its server is unavailable", f.name, kind, b.apiService())
			}
		}
	}
	return nil
}

// checkNamed returns an error while a namespace does not name the unavailable server that stores objects in it. Then the server
// returns. A server that stores nothing returns later, when the namespaces are removed. If no namespace waits long for the server,
// they are removed and created again first.
func (h *history) checkNamed(ctx context.Context) error {
	dead := h.deletions.dead
	if dead == nil || !dead.stores || h.deletions.returned {
		return nil
	}
	for i, n := range slices.Clone(h.deletions.homes) {
		if n.state != terminating || dead.server.Stored(n.name) == 0 {
			continue
		}
		c := h.client(admin, h.front(i))
		if h.finalizesWithout(dead) {
			if err := h.replace(ctx, c, n); err != nil {
				return err
			}
			continue
		}
		var got corev1.Namespace
		if err := c.do(ctx, http.MethodGet, n.path(), nil).decode(&got); err != nil {
			return fmt.Errorf("%s is unavailable and stores objects of namespace %s: %w", dead.name, n.name, err)
		}
		if message := failing(&got); !strings.Contains(message, dead.apiService()) {
			return fmt.Errorf("namespace %s waits with the conditions %s, want one that contains %s", n.name, message, dead.apiService())
		}
	}
	return h.revive()
}

// finalizeAfter is how long a namespace waits for the last backend.
const finalizeAfter = "10s"

// finalizesWithout reports whether namespaces are removed while a backend is unavailable that stores objects in them. Behind a gateway
// none is: the API server finds the gateway available, and the annotation has no effect (docs/gateway.md).
func (w *world) finalizesWithout(b *backend) bool {
	return w.shape.gateways == 0 && b == w.backends[len(w.backends)-1]
}

// annotationsOf returns the annotations of a backend's APIService.
func (w *world) annotationsOf(b *backend) map[string]string {
	if w.finalizesWithout(b) {
		return map[string]string{"portico.dev/finalize-namespaces-after": finalizeAfter}
	}
	return nil
}

// replace returns an error until a namespace has been removed and another one of its name created.
func (h *history) replace(ctx context.Context, c *client, n *home) error {
	if a := c.do(ctx, http.MethodGet, n.path(), nil); !a.absent(n.name) {
		var got corev1.Namespace
		if err := a.decode(&got); err != nil {
			return err
		}
		return fmt.Errorf("namespace %s exists with the conditions %s, want 404 after %s without %s", n.name, failing(&got), finalizeAfter, h.deletions.dead.name)
	}
	next := &home{name: n.name, recreated: true}
	a := c.do(ctx, http.MethodPost, namespacesPath, next.object())
	if !a.uid(&next.uid) {
		return a.failure()
	}
	n.state = removed
	h.addHome(next)
	return nil
}

// revive ends the unavailability of a server.
func (h *history) revive() error {
	h.deletions.returned = true
	h.disturb(h.deletions.dead.name)
	return h.deletions.dead.server.SetFault(faulty.Healthy)
}

// checkReturned returns an error while the server that was unavailable is not available everywhere.
func (h *history) checkReturned(ctx context.Context) error {
	if h.deletions.dead == nil {
		return nil
	}
	if !h.deletions.returned {
		if err := h.revive(); err != nil {
			return err
		}
	}
	return h.checkAvailable(ctx)
}
