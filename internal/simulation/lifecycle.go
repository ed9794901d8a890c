package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	ruleKept      = "an object is not deleted while its owner exists and its namespace is not deleted"
	ruleCollected = "the dependents of a deleted owner are deleted, or kept if they are orphaned or have another owner"
	ruleEmptied   = "nothing is left in a namespace that has been removed"
	ruleRemoved   = "a deleted namespace is removed, and does not wait for a server that stores nothing"
	ruleRecreated = "a namespace of the same name has its own objects and no earlier ones"
	ruleNamed     = "a deleted namespace names the server that it waits for"
	ruleCleaned   = "the objects of a history can be deleted"
)

// lifecycle are deletions of namespaces and of owners, and owners that seem to be deleted.
func lifecycle() []action {
	return []action{
		{name: "delete-namespace", weight: 3, begin: deleteNamespace},
		{name: "delete-owner", weight: 4, begin: deleteOwner},
		{name: "hide-owner", weight: 2, begin: hideOwner},
	}
}

// lifecycleAtRest compares the objects with the model, and then deletes them, so that the next history begins without them.
var lifecycleAtRest = []condition{
	{ruleKept, (*history).checkKept},
	{ruleCollected, (*history).checkCollected},
	{ruleRemoved, (*history).checkRemoved},
	{ruleRecreated, (*history).checkRecreated},
	{ruleKept, (*history).checkRetracted},
	{ruleCleaned, (*history).deleteNamespaces},
	{ruleNamed, (*history).checkNamed},
	{ruleRemoved, (*history).checkRemoved},
	{"every APIService is available after its server's return", (*history).checkReturned},
	{ruleRecreated, (*history).checkRecreated},
	{ruleCleaned, (*history).deleteNamespaces},
	{ruleRemoved, (*history).checkRemoved},
	{ruleCleaned, (*history).deleteThings},
	{ruleEmptied, (*history).checkEmptied},
}

// deletions is the model of the objects that a history creates and deletes.
type deletions struct {
	mu     sync.Mutex // guards things and homes; an entry belongs to its step, and to the history at rest
	things []*thing
	homes  []*home
	// dead is the server that is unavailable while namespaces are deleted at rest, until it has returned.
	dead     *backend
	returned bool
}

// add adds an object to the model, before it is created.
func (h *history) add(t *thing) {
	h.deletions.mu.Lock()
	defer h.deletions.mu.Unlock()
	h.deletions.things = append(h.deletions.things, t)
}

// storing returns a backend that stores objects.
func (h *history) storing(n int) *backend {
	for !h.backend(n).stores {
		n++
	}
	return h.backend(n)
}

// fate is the state of an object at rest.
type fate int

const (
	// open: the object may exist or not, because a request had no definite result.
	open fate = iota
	// kept: the object exists.
	kept
	// collected: the object does not exist.
	collected
)

// thing is an object: a local ConfigMap, or a widget at a backend.
type thing struct {
	backend         *backend // nil for a ConfigMap
	namespace, name string
	uid             types.UID
	fate            fate
	orphanOf        types.UID // the owner to which it has no reference any more
	settled         bool      // the check at rest has succeeded
}

func (t *thing) collection() string {
	if t.backend == nil {
		return "/api/v1/namespaces/" + t.namespace + "/configmaps"
	}
	return t.backend.path(t.namespace)
}

func (t *thing) path() string { return t.collection() + "/" + t.name }

func (t *thing) kind() metav1.TypeMeta {
	if t.backend == nil {
		return metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}
	}
	return metav1.TypeMeta{Kind: "Widget", APIVersion: t.backend.group + "/v1"}
}

// reference returns the reference of a dependent to t.
func (t *thing) reference() metav1.OwnerReference {
	block := true
	return metav1.OwnerReference{APIVersion: t.kind().APIVersion, Kind: t.kind().Kind, Name: t.name, UID: t.uid, BlockOwnerDeletion: &block}
}

const (
	// operationBound bounds a step. The step and the last fault end at about the same time.
	operationBound = 40 * time.Second
	// attemptTimeout bounds one request of a step.
	attemptTimeout = 8 * time.Second
	// createAttempts is the number of attempts to create an object.
	createAttempts = 3
	// longestPause bounds the time between the creation and the deletion in a step.
	longestPause = 12 * time.Second
)

// operation is the execution of a step with several requests, which continues at another front door after a failure.
type operation struct {
	*history
	step   step
	until  time.Time
	failed int // requests
}

func (h *history) newOperation(s step) *operation {
	return &operation{history: h, step: s, until: time.Now().Add(operationBound)}
}

// ongoing reports whether the step may send another request.
func (o *operation) ongoing() bool { return o.ctx.Err() == nil && time.Now().Before(o.until) }

// bit returns a decision of the step.
func (o *operation) bit(n int) bool { return o.step.choice>>n&1 == 1 }

// pause waits between the creation and the deletion.
func (o *operation) pause() {
	time.Sleep(time.Duration(o.step.choice % uint64(longestPause)).Round(time.Millisecond))
}

// send sends a request. After a failure it waits for a second, and the next request goes to the next front door.
func (o *operation) send(method, path string, object any) *answer {
	ctx, cancel := context.WithTimeout(o.ctx, attemptTimeout)
	defer cancel()
	c := o.client(users[o.step.choice%uint64(len(users))], o.front(o.step.target+o.failed))
	a := c.do(ctx, method, path, object)
	o.log.addf("%s: %s through %s: %d after %.3fs%s", o.step.action, a.request, c.front.name, a.status, a.took.Seconds(), explain(a))
	if !a.ok() {
		o.failed++
		time.Sleep(time.Second)
	}
	return a
}

// create creates an object like t and returns it, or nil. The object has another name in each attempt: an attempt without a
// definite result may create its object at any later time.
func (o *operation) create(t thing, owners ...*thing) *thing {
	name := t.name
	for attempt := 0; attempt < createAttempts && o.ongoing(); attempt++ {
		t.name = fmt.Sprintf("%s-%d", name, attempt)
		created := t
		o.add(&created)
		object := metav1.PartialObjectMetadata{TypeMeta: t.kind(), ObjectMeta: metav1.ObjectMeta{Name: t.name}}
		for _, owner := range owners {
			object.OwnerReferences = append(object.OwnerReferences, owner.reference())
		}
		if o.send(http.MethodPost, t.collection(), object).uid(&created.uid) {
			created.fate = kept
			return &created
		}
	}
	return nil
}

// uid reads the UID in a successful answer.
func (a *answer) uid(uid *types.UID) bool {
	var object metav1.PartialObjectMetadata
	if a.decode(&object) != nil || object.UID == "" {
		return false
	}
	*uid = object.UID
	return true
}

// absent reports whether the answer proves that the named object does not exist.
func (a *answer) absent(name string) bool {
	var status metav1.Status
	return a.err == nil && a.status == http.StatusNotFound && json.Unmarshal(a.body, &status) == nil &&
		status.Reason == metav1.StatusReasonNotFound && status.Details != nil && status.Details.Name == name
}

// delete deletes an object and reports whether its deletion is certain.
func (o *operation) delete(path, name string, uid types.UID, policy metav1.DeletionPropagation) bool {
	for o.ongoing() {
		if a := o.send(http.MethodDelete, path, deleteOptions(uid, policy)); a.ok() || a.absent(name) {
			return true
		}
	}
	return false
}

// deleteOptions require the UID: a request may arrive after an object of the same name was created.
func deleteOptions(uid types.UID, policy metav1.DeletionPropagation) *metav1.DeleteOptions {
	options := &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"}}
	if uid != "" {
		options.Preconditions = metav1.NewUIDPreconditions(string(uid))
	}
	if policy != "" {
		options.PropagationPolicy = &policy
	}
	return options
}

// checkPresent requires objects to exist that nothing has deleted. A failed request proves nothing.
func (o *operation) checkPresent(things []*thing) {
	for _, t := range things {
		if !o.ongoing() {
			return
		}
		if a := o.send(http.MethodGet, t.path(), nil); a.absent(t.name) {
			o.violate(ruleKept, "%s through a front door: got 404, want the object with UID %s: nothing has deleted it", a.request, t.uid)
		}
	}
}
