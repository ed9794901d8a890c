package simulation

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// users send the requests of a history.
var users = []string{"alice", "bob", "carol"}

const (
	ruleIdentity = "a request carries the identity of its user, and its user gets the response"
	ruleOnce     = "a request that succeeded reached a backend once, or at least once if it is safe to repeat"
	ruleBound    = "discovery and local requests do not wait for a backend"
	ruleNoReason = "a request fails only because of a fault"
	ruleServed   = "only a backend answers that its objects do not exist"
)

// localBound bounds requests that need no backend, while the front door and etcd have no fault.
const localBound = 5 * time.Second

// requests are single requests of users.
func requests() []action {
	return []action{
		{name: "read", weight: 20, begin: read},
		{name: "create", weight: 12, begin: create},
		{name: "local", weight: 8, begin: local},
		{name: "discovery", weight: 6, begin: discovery},
	}
}

// pick returns the client and the backend of a step, and nil if the front door does not run.
func (h *history) pick(s step) (*client, *backend) {
	f := h.front(s.target)
	if f.server == nil {
		return nil, nil
	}
	return h.client(users[s.choice%uint64(len(users))], f), h.backend(s.other)
}

// read gets an object that exists, from a backend.
func read(h *history, s step) {
	c, b := h.pick(s)
	if c == nil {
		return
	}
	name := fmt.Sprintf("read-%x", s.choice)
	path := b.path("default") + "/" + name
	if b.stores {
		path = b.path("default")
	}
	a := c.do(h.ctx, http.MethodGet, path, nil)
	h.judge(c, b, a)
	if !a.ok() || b.stores {
		return
	}
	var got metav1.PartialObjectMetadata
	if err := json.Unmarshal(a.body, &got); err != nil || got.Name != name {
		h.violate(ruleIdentity, "%s: got %.200s, want the object %s (%v)", a.request, a.body, name, err)
	}
}

// padding returns text for the body of a request. In one of four steps it is so large that front doors charge its memory: more than
// 32 KiB are kept while they are sent to a backend, and more than 64 KiB are counted for local groups.
func padding(s step) string {
	if s.choice>>16%4 != 0 {
		return ""
	}
	return strings.Repeat("padding ", int(8<<10+s.choice>>18%(24<<10))) // 64 KiB to 256 KiB
}

// paddedObject has a field that backends do not store.
type paddedObject struct {
	metav1.PartialObjectMetadata `json:",inline"`
	Padding                      string `json:"padding,omitempty"`
}

// create creates an object at a backend that stores.
func create(h *history, s step) {
	c, b := h.pick(s)
	if c == nil || !b.stores {
		return
	}
	object := paddedObject{PartialObjectMetadata: metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{Kind: "Widget", APIVersion: b.group + "/v1"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("w-%x", s.choice)},
	}, Padding: padding(s)}
	a := c.do(h.ctx, http.MethodPost, b.path("default"), object)
	h.judge(c, b, a)
	if arrived := h.ledger.of(a.number); arrived.count > 1 || a.ok() && arrived.count != 1 {
		h.violate(ruleOnce, "%s by %s: answer %d, and it arrived %d times, want once", a.request, c.user, a.status, arrived.count)
	}
}

// judge checks the rules for every request to a backend.
func (h *history) judge(c *client, b *backend, a *answer) {
	arrived := h.ledger.of(a.number)
	h.log.addf("%s of %s through %s: %d after %.3fs, arrived %d times%s", a.request, c.user, c.front.name, a.status, a.took.Seconds(), arrived.count, explain(a))
	if len(arrived.others) > 0 {
		h.violate(ruleIdentity, "%s by %s arrived as a request of %v", a.request, c.user, arrived.others)
	}
	h.checkHop(a, arrived)
	if a.ok() && arrived.count == 0 {
		h.violate(ruleOnce, "%s: answer %d, and it never arrived", a.request, a.status)
	}
	if a.err == nil && a.status == http.StatusNotFound && arrived.count == 0 {
		// Controllers delete objects after such an answer.
		h.violate(ruleServed, "%s by %s: answer 404 %.200s, and it never arrived; want 503 if %s is unavailable", a.request, c.user, a.body, b.name)
	}
	if !a.ok() && h.ctx.Err() == nil && h.calm(a.began, append(h.gatewayNames(), c.front.name, b.name, "etcd")...) {
		h.violate(ruleNoReason, "%v, and neither %s nor %s nor a gateway nor etcd has had a fault", a.failure(), c.front.name, b.name)
	}
}

func explain(a *answer) string {
	if err := a.failure(); err != nil {
		return ": " + err.Error()
	}
	return ""
}

// local creates, reads and deletes a ConfigMap.
func local(h *history, s step) {
	c, _ := h.pick(s)
	if c == nil {
		return
	}
	name := fmt.Sprintf("local-%x", s.choice)
	home := "/api/v1/namespaces/default/configmaps"
	var expected []int
	for _, r := range []struct {
		method, path string
		object       any
	}{
		{http.MethodPost, home, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"padding": padding(s)}}},
		{http.MethodGet, home + "/" + name, nil},
		{http.MethodDelete, home + "/" + name, nil},
	} {
		a := c.do(h.ctx, r.method, r.path, r.object)
		h.bounded(c, a, expected...)
		if r.method == http.MethodPost && !a.ok() {
			expected = []int{http.StatusNotFound}
		}
	}
}

const aggregatedDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// discovery gets the documents of discovery and OpenAPI.
func discovery(h *history, s step) {
	c, _ := h.pick(s)
	if c == nil {
		return
	}
	for _, path := range []string{"/api", "/apis", "/openapi/v3"} {
		h.bounded(c, c.do(h.ctx, http.MethodGet, path, nil))
	}
}

// bounded checks a request that needs no backend. Its status may be one of expected without a fault.
func (h *history) bounded(c *client, a *answer, expected ...int) {
	h.log.addf("%s of %s through %s: %d after %.3fs%s", a.request, c.user, c.front.name, a.status, a.took.Seconds(), explain(a))
	if h.ctx.Err() != nil || !h.calm(a.began, c.front.name, "etcd") {
		return
	}
	if a.isWrite() && !h.calm(a.began, etcdSpace) {
		if err := a.checkRefused(); err != nil && h.isFullSince(a.began) && !slices.Contains(expected, a.status) {
			h.violate(ruleSpace, "%v", err)
		}
		return
	}
	if !a.ok() && !slices.Contains(expected, a.status) {
		h.violate(ruleNoReason, "%v, and neither %s nor etcd has had a fault", a.failure(), c.front.name)
	}
	if a.took > localBound {
		h.violate(ruleBound, "%s took %s, want at most %s", a.request, a.took, localBound)
	}
}
