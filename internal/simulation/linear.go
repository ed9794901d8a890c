package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"portico.dev/internal/simulation/consistency"
)

const (
	// ruleRegister exists because a client may send each request to another front door, and replicas share only etcd.
	ruleRegister = "local objects are linearizable over all front doors, and acknowledged writes survive"
	// ruleCode exists because clients repeat requests after some codes, and alerts count a 500 as an error of the front door.
	ruleCode = "a failure of etcd is answered with 503, 504 or 507"
)

const (
	// registerObjects is the number of objects of a history that users write concurrently. Few objects have many conflicts.
	registerObjects = 2
	// registerCalls is the number of requests of each user in a step, and registerPause the longest time between two of them.
	registerCalls = 6
	registerPause = 2 * time.Second
	// registerRecord bounds the recorded requests of a history, and therefore the CPU time of the search for their order.
	registerRecord = 200

	registerHome = "/api/v1/namespaces/" + sharedNamespace + "/configmaps"
	registerKeys = "/registry/configmaps/" + sharedNamespace + "/" // in etcd
)

// registers are the requests for objects that users write and read concurrently.
type registers struct {
	since int64 // the revision of etcd before the history

	mu     sync.Mutex // guards the fields below
	record consistency.History
	serial int   // number of values
	newest int64 // greatest resourceVersion in a response
}

var registersAtRest = []condition{
	{ruleRegister, (*history).checkRegisters},
	{ruleCleaned, (*history).deleteRegisters},
}

// registerActions are the uses of registers.
func registerActions() []action { return []action{{name: "register", weight: 4, begin: register}} }

// register lets users write and read the same objects through all front doors at the same time.
func register(h *history, s step) {
	var work sync.WaitGroup
	for i, user := range users {
		u := &registerUser{h, user, rand.New(rand.NewPCG(s.choice, uint64(i))), make(map[string]*corev1.ConfigMap)}
		work.Go(u.act)
	}
	work.Wait()
}

// registerUser is a user in one step.
type registerUser struct {
	*history
	user   string
	random *rand.Rand
	known  map[string]*corev1.ConfigMap // what the user has read, by name; nil for an object that did not exist
}

func (u *registerUser) act() {
	for range registerCalls {
		if u.recorded() >= registerRecord {
			return
		}
		name := u.registerName(u.random.IntN(registerObjects))
		_, known := u.known[name]
		switch n := u.random.IntN(10); {
		case n < 1:
			u.list()
		case n < 4 || !known && n < 7: // others create the object
			u.read(name)
		default:
			u.write(name)
		}
		// Half of the requests follow at once, so that those of several users overlap.
		if u.random.IntN(2) == 0 && !pause(u.ctx, time.Duration(u.random.Int64N(int64(registerPause))).Round(time.Millisecond)) {
			return
		}
	}
}

func (h *history) registerLabel() string { return fmt.Sprintf("register-%d", h.seed) }

func (h *history) registerName(n int) string { return fmt.Sprintf("%s-%d", h.registerLabel(), n) }

// send sends a request through any front door. It returns the process that answered, or "" if it is not known.
func (u *registerUser) send(method, path string, object any) (a *answer, server string) {
	f := u.front(u.random.IntN(len(u.fronts)))
	launch := f.launches.Load()
	ctx, cancel := context.WithTimeout(u.ctx, attemptTimeout)
	defer cancel()
	c := u.client(u.user, f)
	a = c.do(ctx, method, path, object)
	u.bounded(c, a, http.StatusNotFound, http.StatusConflict)
	if a.status == http.StatusInternalServerError {
		u.violate(ruleCode, "%v", a.failure())
	}
	if f.launches.Load() == launch {
		server = fmt.Sprintf("%s.%d", f.name, launch)
	}
	return a, server
}

// read reads an object as it is now, or at any earlier time, or not before the newest known time.
func (u *registerUser) read(name string) {
	op := consistency.Op{Verb: consistency.Get, Key: name, Outcome: consistency.Acknowledged, Start: u.elapsed()}
	path := registerHome + "/" + name
	u.registers.mu.Lock()
	newest := u.registers.newest
	u.registers.mu.Unlock()
	switch n := u.random.IntN(6); {
	case n == 0:
		op.Asked, path = consistency.Any, path+"?resourceVersion=0"
	case n == 1 && newest > 0:
		op.Asked, op.At, path = consistency.AtLeast, newest, path+"?resourceVersion="+strconv.FormatInt(newest, 10)
	}
	a, server := u.send(http.MethodGet, path, nil)
	if op.Asked == consistency.Any {
		op.Server = server
	}
	object, ok := u.readAnswer(&op, a)
	if ok && op.Asked == consistency.Latest {
		u.known[name] = object
	}
}

// readAnswer records a read. It returns nil for an object that does not exist, and false if the read failed.
func (h *history) readAnswer(op *consistency.Op, a *answer) (*corev1.ConfigMap, bool) {
	op.End = h.elapsed()
	var object *corev1.ConfigMap
	if !a.absent(op.Key) {
		object = new(corev1.ConfigMap)
		if a.decode(object) != nil {
			return nil, false
		}
		op.Value, op.Version = object.Data["value"], revisionOf(object)
	}
	h.recordOp(*op)
	return object, true
}

// write creates an object that does not exist, and updates or deletes one that exists.
func (u *registerUser) write(name string) {
	known := u.known[name]
	delete(u.known, name)
	u.registers.mu.Lock()
	u.registers.serial++
	value := fmt.Sprint("value ", u.registers.serial)
	u.registers.mu.Unlock()
	op := consistency.Op{Key: name, Value: value, Start: u.elapsed()}
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"register": u.registerLabel()}},
		Data:       map[string]string{"value": value, "replaces": ""},
	}
	method, path, body := http.MethodPut, registerHome+"/"+name, any(object)
	if known != nil {
		op.Basis, op.Replaces = revisionOf(known), known.Data["value"]
		object.ResourceVersion, object.Data["replaces"] = known.ResourceVersion, op.Replaces
	}
	switch n := u.random.IntN(10); {
	case known == nil:
		op.Verb, method, path = consistency.Create, http.MethodPost, registerHome
	case n < 3:
		op.Verb, op.Value, method = consistency.Delete, "", http.MethodDelete
		body = &metav1.DeleteOptions{
			TypeMeta:      metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"},
			Preconditions: &metav1.Preconditions{ResourceVersion: &known.ResourceVersion},
		}
	case n < 6:
		op.Verb, op.Unconditional, op.Basis, op.Replaces = consistency.Update, true, 0, ""
		object.ResourceVersion, object.Data["replaces"] = "", unconditional
	default:
		op.Verb = consistency.Update
	}
	a, _ := u.send(method, path, body)
	u.written(&op, a)
}

// unconditional is the predecessor that an update without a resourceVersion names.
const unconditional = "any"

// written records a write.
func (u *registerUser) written(op *consistency.Op, a *answer) {
	op.End, op.Outcome = u.elapsed(), outcomeOf(a)
	if op.Outcome == consistency.Acknowledged {
		object := new(corev1.ConfigMap)
		if op.Verb == consistency.Delete {
			object = nil
		} else if err := a.decode(object); err != nil {
			u.violate(ruleRegister, "%v", err)
			return
		} else {
			op.Version = revisionOf(object)
		}
		u.known[op.Key] = object
	}
	u.recordOp(*op)
}

// outcomeOf classifies the response to a write. Each listed refusal happens before anything is stored.
func outcomeOf(a *answer) consistency.Outcome {
	switch {
	case a.ok():
		return consistency.Acknowledged
	case a.err == nil && (a.status == http.StatusConflict || a.status == http.StatusNotFound || a.status == http.StatusTooManyRequests):
		return consistency.Refused
	}
	return consistency.Unknown
}

// list reads all objects as they are now.
func (u *registerUser) list() {
	l := consistency.List{Start: u.elapsed(), Items: make(map[string]consistency.Item)}
	a, _ := u.send(http.MethodGet, registerHome+"?labelSelector=register%3D"+u.registerLabel(), nil)
	l.End = u.elapsed()
	var found corev1.ConfigMapList
	if a.decode(&found) != nil {
		return
	}
	l.Version = revisionOf(&found)
	for i := range found.Items {
		l.Items[found.Items[i].Name] = consistency.Item{Value: found.Items[i].Data["value"], Version: revisionOf(&found.Items[i])}
	}
	u.registers.mu.Lock()
	defer u.registers.mu.Unlock()
	u.registers.record.Lists = append(u.registers.record.Lists, l)
	u.registers.newest = max(u.registers.newest, l.Version)
}

func (h *history) recordOp(op consistency.Op) {
	h.registers.mu.Lock()
	defer h.registers.mu.Unlock()
	h.registers.record.Ops = append(h.registers.record.Ops, op)
	h.registers.newest = max(h.registers.newest, op.Version)
}

// recorded returns the number of recorded requests.
func (h *history) recorded() int {
	h.registers.mu.Lock()
	defer h.registers.mu.Unlock()
	return len(h.registers.record.Ops)
}

func (h *history) elapsed() int64 { return int64(time.Since(h.began)) }

// revisionOf returns the resourceVersion of an object or a list. Front doors return revisions of etcd.
func revisionOf(object interface{ GetResourceVersion() string }) int64 {
	n, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// checkRegisters reads every object through every front door, and compares the record with every change in etcd.
func (h *history) checkRegisters(ctx context.Context) error {
	if h.recorded() == 0 {
		return nil
	}
	for _, f := range h.fronts {
		for n := range registerObjects {
			op := consistency.Op{Verb: consistency.Get, Key: h.registerName(n), Outcome: consistency.Acknowledged, Start: h.elapsed()}
			a := h.client(admin, f).do(ctx, http.MethodGet, registerHome+"/"+op.Key, nil)
			if _, ok := h.readAnswer(&op, a); !ok {
				return a.failure()
			}
		}
	}
	changes, err := h.etcd.changes(ctx, registerKeys+h.registerLabel()+"-", h.registers.since)
	if err != nil {
		return err
	}
	if h.registers.record.Stored, err = storedEvents(changes); err != nil {
		return err
	}
	for _, v := range consistency.Check(h.registers.record) {
		h.violate(ruleRegister, "%v", v)
	}
	return nil
}

// storedEvents decodes changes in etcd.
func storedEvents(changes []*mvccpb.Event) ([]consistency.Event, error) {
	var all []consistency.Event
	latest := make(map[string]string)
	for _, c := range changes {
		key := strings.TrimPrefix(string(c.Kv.Key), registerKeys)
		e := consistency.Event{Kind: consistency.Modified, Key: key, Version: c.Kv.ModRevision}
		if c.Type == mvccpb.Event_DELETE {
			e.Kind, e.Value = consistency.Deleted, latest[key]
			all = append(all, e)
			continue
		}
		if c.Kv.CreateRevision == c.Kv.ModRevision {
			e.Kind = consistency.Added
		}
		object := new(corev1.ConfigMap)
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(c.Kv.Value, nil, object); err != nil {
			return nil, fmt.Errorf("decode %s at revision %d: %w", c.Kv.Key, c.Kv.ModRevision, err)
		}
		e.Value, e.After = object.Data["value"], object.Data["replaces"]
		if e.After == unconditional {
			e.After, e.Unconditional = "", true
		}
		latest[key] = e.Value
		all = append(all, e)
	}
	return all, nil
}

// deleteRegisters deletes the objects, so that they do not accumulate.
func (h *history) deleteRegisters(ctx context.Context) error {
	if h.recorded() == 0 {
		return nil
	}
	return h.client(admin, h.fronts[0]).do(ctx, http.MethodDelete, registerHome+"?labelSelector=register%3D"+h.registerLabel(), nil).failure()
}
