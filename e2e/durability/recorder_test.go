package durability

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"portico.dev/internal/simulation/consistency"
)

const (
	namespace = "work"
	keys      = 6
	// filler is how often an object repeats its value, so that one that is half written shows.
	filler = 40
)

// recorder runs clients and records their operations.
type recorder struct {
	t testing.TB
	// clients has one client per front door. Every request uses any of them, also the next one of the same worker.
	clients []kubernetes.Interface
	began   time.Time
	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup
	serial  atomic.Int64
	// acknowledged counts successful writes, and failed counts writes of unknown outcome.
	acknowledged, failed atomic.Int64
	// seen counts events of watches.
	seen     atomic.Int64
	versions versions

	mu  sync.Mutex // guards the following fields
	all consistency.History
	// slowest answer to any request.
	slowest time.Duration
	// answers are the errors that were answered, by their text.
	answers map[string]int
	// states are the states of requests in which reads were answered with success, and how often.
	states map[string]int
}

// record makes the namespace and sets writers and watchers to work in it.
func record(t testing.TB, client kubernetes.Interface, writers, watchers int) *recorder {
	t.Helper()
	return recordAt(t, []kubernetes.Interface{client}, uint64(time.Now().UnixNano()), writers, watchers, 0)
}

// recordAt is record at several front doors, and with readers that request old and new versions.
func recordAt(t testing.TB, clients []kubernetes.Interface, seed uint64, writers, watchers, readers int) *recorder {
	t.Helper()
	r := &recorder{t: t, clients: clients, began: time.Now(), answers: map[string]int{}, states: map[string]int{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	t.Cleanup(r.stop)
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	if _, err := clients[0].CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for i := range watchers {
		r.work.Go(func() { r.watch(fmt.Sprintf("watcher %d", i), i%2 == 1) })
	}
	for i := range readers {
		r.work.Go(func() { r.readAll(rand.New(rand.NewPCG(seed, uint64(1000+i)))) })
	}
	t.Logf("seed %d", seed)
	for i := range writers {
		r.work.Go(func() { r.write(rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	return r
}

// client is that of any front door.
func (r *recorder) client() kubernetes.Interface { return r.clients[rand.IntN(len(r.clients))] }

func (r *recorder) stop() {
	r.cancel()
	r.work.Wait()
}

// until waits until so many more writes have been acknowledged.
func (r *recorder) until(writes int64) {
	r.t.Helper()
	want, deadline := r.acknowledged.Load()+writes, time.Now().Add(patience)
	for r.acknowledged.Load() < want {
		if time.Now().After(deadline) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.t.Fatalf("%d writes were acknowledged in time, want %d: %v", r.acknowledged.Load(), want, r.answers)
		}
		pause(context.Background(), lookAgain)
	}
}

// untilSeen waits until watches have delivered enough events, in all, for a verdict. A watch that is refused while the front door starts
// waits for a second before it is tried again, in which many writes succeed.
func (r *recorder) untilSeen() {
	r.t.Helper()
	for deadline := time.Now().Add(patience); r.seen.Load() < enough; {
		if time.Now().After(deadline) {
			r.t.Fatalf("watches delivered %d events, want %d", r.seen.Load(), enough)
		}
		pause(context.Background(), lookAgain)
	}
}

// usual is the slowest response so far, before the fault.
func (r *recorder) usual() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.slowest
}

func (r *recorder) now() int64 { return int64(time.Since(r.began)) }

// write is one writer: it reads an object and then creates, changes or deletes it, on the condition that it is unchanged.
func (r *recorder) write(random *rand.Rand) {
	for n := 0; r.ctx.Err() == nil; n++ {
		if n%10 == 9 {
			r.list()
		}
		name := fmt.Sprintf("k-%d", random.IntN(keys))
		there, err := r.read(name)
		if err != nil {
			pause(r.ctx, lookAgain)
			continue
		}
		if !r.change(random, name, there) {
			pause(r.ctx, lookAgain)
		}
	}
}

// read returns nil if the object does not exist.
func (r *recorder) read(name string) (*corev1.ConfigMap, error) {
	op := consistency.Op{Verb: consistency.Get, Key: name, Start: r.now()}
	var found corev1.ConfigMap
	err := r.do(http.MethodGet, name, nil, &found)
	op.End = r.now()
	switch {
	case apierrors.IsNotFound(err):
		op.Outcome = consistency.Acknowledged
		r.add(op)
		return nil, nil
	case err != nil:
		return nil, err
	}
	op.Outcome, op.Value, op.Version = consistency.Acknowledged, found.Data["value"], version(&found)
	r.add(op)
	return &found, nil
}

// change makes one write and reports whether it was answered.
func (r *recorder) change(random *rand.Rand, name string, there *corev1.ConfigMap) bool {
	op := consistency.Op{Key: name, Value: fmt.Sprintf("v%d", r.serial.Add(1)), Start: r.now()}
	var after string
	if there != nil {
		op.Basis, after = version(there), there.Data["value"]
		op.Replaces = after
	}
	next := object(name, op.Value, after)
	answer := &corev1.ConfigMap{}
	var err error
	switch n := random.IntN(10); {
	case there == nil:
		op.Verb = consistency.Create
		err = r.do(http.MethodPost, "", next, answer)
	case n < 2:
		op.Verb, op.Value = consistency.Delete, ""
		err = r.do(http.MethodDelete, name, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &there.ResourceVersion}}, nil)
	case n < 6:
		op.Verb = consistency.Update
		next.ResourceVersion = there.ResourceVersion
		err = r.do(http.MethodPut, name, next, answer)
	case n < 8:
		op.Verb = consistency.Patch
		next.ResourceVersion = there.ResourceVersion
		err = r.do(http.MethodPatch, name, next, answer)
	default:
		op.Verb = consistency.Patch
		next.ResourceVersion = there.ResourceVersion
		next.UID = there.UID // without the UID, an apply creates a deleted object again with any version, as at kube-apiserver
		err = r.do(apply, name, next, answer)
	}
	op.End, op.Outcome = r.now(), outcome(err)
	if op.Outcome == consistency.Acknowledged {
		r.acknowledged.Add(1)
		if op.Verb != consistency.Delete {
			op.Version = version(answer)
			r.versions.saw(op.Version)
		}
	} else if op.Outcome == consistency.Unknown {
		r.failed.Add(1)
	}
	r.add(op)
	return op.Outcome != consistency.Unknown
}

// outcome classifies an error. Every listed refusal happens before anything is stored. A full etcd is not one of them: the
// write that fills it is stored, and gets the error.
func outcome(err error) consistency.Outcome {
	switch {
	case err == nil:
		return consistency.Acknowledged
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err), apierrors.IsTooManyRequests(err):
		return consistency.Refused
	}
	return consistency.Unknown
}

func isFull(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	return ok && status.Status().Code == http.StatusInsufficientStorage
}

// do makes one request without retries: the recorder must see every attempt.
func (r *recorder) do(verb, name string, body, into any) error {
	ctx, cancel := context.WithTimeout(r.ctx, requestTimeout+5*time.Second)
	defer cancel()
	client := r.client().CoreV1().RESTClient()
	applied := verb == apply
	if applied {
		verb = http.MethodPatch
	}
	request := client.Verb(verb).Namespace(namespace).Resource("configmaps").MaxRetries(0)
	if name != "" {
		request = request.Name(name)
	}
	if verb == http.MethodPatch {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		kind := types.MergePatchType
		if applied {
			kind = types.ApplyYAMLPatchType
			request = request.Param("fieldManager", "durability").Param("force", "true")
		}
		request = request.SetHeader("Content-Type", string(kind)).Body(text)
	} else if body != nil {
		request = request.Body(body)
	}
	began := time.Now()
	result := request.Do(ctx)
	err := result.Error()
	if object, ok := into.(*corev1.ConfigMap); ok && err == nil {
		err = result.Into(object)
	}
	r.answered(time.Since(began), err)
	return err
}

func (r *recorder) answered(took time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slowest = max(r.slowest, took)
	if err != nil && r.ctx.Err() == nil {
		reason := apierrors.ReasonForError(err)
		if status, ok := err.(apierrors.APIStatus); ok {
			answer := fmt.Sprintf("%d %s", status.Status().Code, reason)
			if status.Status().Code == http.StatusInternalServerError {
				answer += ": " + status.Status().Message
			}
			r.answers[answer]++
		} else {
			r.answers["no answer"]++
		}
	}
}

func (r *recorder) list() {
	start := r.now()
	ctx, cancel := context.WithTimeout(r.ctx, requestTimeout+5*time.Second)
	defer cancel()
	var found corev1.ConfigMapList
	err := r.client().CoreV1().RESTClient().Get().Namespace(namespace).Resource("configmaps").
		VersionedParams(&metav1.ListOptions{LabelSelector: "durability"}, scheme.ParameterCodec).MaxRetries(0).Do(ctx).Into(&found)
	if err == nil {
		r.addList(consistency.List{Start: start}, found.ResourceVersion, found.Items)
	}
}

// addList adds a completed list with its start and its options.
func (r *recorder) addList(l consistency.List, at string, items []corev1.ConfigMap) {
	l.Version, l.Items, l.End = number(at), map[string]consistency.Item{}, r.now()
	r.versions.saw(l.Version)
	for i := range items {
		l.Items[items[i].Name] = consistency.Item{Value: items[i].Data["value"], Version: version(&items[i])}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.Lists = append(r.all.Lists, l)
}

func (r *recorder) add(op consistency.Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.Ops = append(r.all.Ops, op)
}

// apply is a PATCH by server-side apply.
const apply = "APPLY"

// object repeats its value in several fields.
func object(name, value, after string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"durability": value}},
		Data:       map[string]string{"value": value, "after": after, "filler": strings.Repeat(value+" ", filler)},
	}
}

// torn reports whether the fields of an object differ.
func torn(c *corev1.ConfigMap) bool {
	value := c.Data["value"]
	return c.Labels["durability"] != value || c.Data["filler"] != strings.Repeat(value+" ", filler)
}

func version(c *corev1.ConfigMap) int64 { return number(c.ResourceVersion) }

func number(resourceVersion string) int64 {
	n, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil {
		return -1
	}
	return n
}
