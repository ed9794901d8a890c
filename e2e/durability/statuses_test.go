package durability

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"portico.dev/internal/simulation/consistency"
)

const (
	ingressDirectory = "/registry/ingress/" + namespace + "/"
	ingressKeys      = 4
	// noStatus is the status of an object without one, and ignored is the value in the part that a request must not change.
	noStatus = "none"
	ignored  = "ignored"
)

// statusRecorder runs clients that write the spec and the status of Ingresses, and records their operations. The value of an
// Ingress consists of both, because a write of one part must not change the other one.
type statusRecorder struct {
	*recorder

	mu  sync.Mutex // guards ops
	ops []consistency.Op
}

func (r *recorder) recordStatuses(seed uint64, writers int) *statusRecorder {
	s := &statusRecorder{recorder: r}
	for i := range writers {
		r.work.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(2000+i)))
			for r.ctx.Err() == nil {
				name := fmt.Sprintf("k-%d", random.IntN(ingressKeys))
				there, err := s.get(name)
				if err != nil || !s.change(random, name, there) {
					pause(r.ctx, lookAgain)
				}
			}
		})
	}
	return s
}

// judge checks the recorded operations against the stored changes.
func (s *statusRecorder) judge(stored []consistency.Event) {
	s.t.Helper()
	s.t.Logf("%d requests for Ingresses and their statuses; %d changes stored", len(s.ops), len(stored))
	if len(stored) < 50 {
		s.t.Errorf("%d stored changes of Ingresses, want at least 50", len(stored))
	}
	found := consistency.Check(consistency.History{Ops: s.ops, Stored: stored})
	for _, v := range found[:min(len(found), 20)] {
		s.t.Errorf("violation in the history of Ingresses: %s, want none", v)
	}
}

func (s *statusRecorder) note(op consistency.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops = append(s.ops, op)
}

// get returns nil if the object does not exist.
func (s *statusRecorder) get(name string) (*networkingv1.Ingress, error) {
	op := consistency.Op{Verb: consistency.Get, Key: name, Start: s.now(), Outcome: consistency.Acknowledged}
	var found networkingv1.Ingress
	err := s.send(http.MethodGet, name, "", nil, &found)
	op.End = s.now()
	switch {
	case apierrors.IsNotFound(err):
		s.note(op)
		return nil, nil
	case err != nil:
		return nil, err
	}
	op.Value, _, _ = readIngress(&found)
	op.Version = number(found.ResourceVersion)
	s.note(op)
	return &found, nil
}

// change makes one write to the object that was read, and reports whether there was a response.
func (s *statusRecorder) change(random *rand.Rand, name string, there *networkingv1.Ingress) bool {
	next := fmt.Sprintf("v%d", s.serial.Add(1))
	op := consistency.Op{Key: name, Start: s.now()}
	answer := &networkingv1.Ingress{}
	var err error
	if there == nil {
		op.Verb, op.Value = consistency.Create, next+"."+noStatus
		err = s.send(http.MethodPost, "", "", ingress(name, next, "", ignored, ""), answer)
	} else {
		before, _, _ := readIngress(there)
		spec, status, _ := strings.Cut(before, ".")
		op.Basis, op.Replaces = number(there.ResourceVersion), before
		ofSpec, ofStatus := ingress(name, next, before, ignored, before), ingress(name, ignored, before, next, before)
		for _, body := range []*networkingv1.Ingress{ofSpec, ofStatus} {
			body.ResourceVersion, body.UID = there.ResourceVersion, there.UID
		}
		switch n := random.IntN(10); {
		case n == 0:
			op.Verb = consistency.Delete
			err = s.send(http.MethodDelete, name, "", &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &there.ResourceVersion}}, nil)
		case n < 4:
			op.Verb, op.Value = consistency.Update, next+"."+status
			err = s.send(http.MethodPut, name, "", ofSpec, answer)
		case n < 5:
			op.Verb, op.Value = consistency.Patch, next+"."+status
			err = s.send(http.MethodPatch, name, "", ofSpec, answer)
		case n < 7:
			op.Verb, op.Value = consistency.Update, spec+"."+next
			err = s.send(http.MethodPut, name, "status", ofStatus, answer)
		case n < 9:
			op.Verb, op.Value = consistency.Patch, spec+"."+next
			err = s.send(http.MethodPatch, name, "status", ofStatus, answer)
		default:
			op.Verb, op.Value = consistency.Patch, spec+"."+next
			err = s.send(apply, name, "status", ofStatus, answer)
		}
	}
	op.End, op.Outcome = s.now(), outcome(err)
	if op.Outcome == consistency.Acknowledged && op.Verb != consistency.Delete {
		op.Version = number(answer.ResourceVersion)
	}
	s.note(op)
	return op.Outcome != consistency.Unknown
}

// send makes one request, once.
func (s *statusRecorder) send(verb, name, subresource string, body, into any) error {
	ctx, cancel := context.WithTimeout(s.ctx, requestTimeout+5*time.Second)
	defer cancel()
	method, contentType := verb, types.MergePatchType
	if verb == apply {
		method, contentType = http.MethodPatch, types.ApplyYAMLPatchType
	}
	request := s.client().NetworkingV1().RESTClient().Verb(method).Namespace(namespace).Resource("ingresses").MaxRetries(0)
	if name != "" {
		request = request.Name(name)
	}
	if subresource != "" {
		request = request.SubResource(subresource)
	}
	switch {
	case method == http.MethodPatch:
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		request = request.SetHeader("Content-Type", string(contentType)).Body(text)
		if verb == apply {
			request = request.Param("fieldManager", "durability").Param("force", "true")
		}
	case body != nil:
		request = request.Body(body)
	}
	began := time.Now()
	result := request.Do(ctx)
	err := result.Error()
	if object, ok := into.(*networkingv1.Ingress); ok && err == nil {
		err = result.Into(object)
	}
	s.answered(time.Since(began), err)
	return err
}

// ingress has a value in its spec and one in its status, each with the value of both parts that it replaces.
func ingress(name, spec, specAfter, status, statusAfter string) *networkingv1.Ingress {
	i := &networkingv1.Ingress{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       networkingv1.IngressSpec{IngressClassName: &spec, Rules: []networkingv1.IngressRule{{Host: specAfter}}},
	}
	i.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{Hostname: status}, {Hostname: statusAfter}}
	return i
}

// readIngress returns the value of both parts, and the value that the last write replaced: that write left the other part
// unchanged.
func readIngress(object runtime.Object) (value, after string, torn bool) {
	i := object.(*networkingv1.Ingress)
	if i.Spec.IngressClassName == nil || len(i.Spec.Rules) != 1 {
		return "", "", true
	}
	spec, specAfter := *i.Spec.IngressClassName, i.Spec.Rules[0].Host
	points := i.Status.LoadBalancer.Ingress
	if len(points) == 0 {
		return spec + "." + noStatus, specAfter, false
	}
	if len(points) != 2 {
		return "", "", true
	}
	status, statusAfter := points[0].Hostname, points[1].Hostname
	specBefore, _, _ := strings.Cut(statusAfter, ".")
	_, statusBefore, _ := strings.Cut(specAfter, ".")
	if specBefore == spec && statusBefore != status {
		specAfter = statusAfter
	}
	return spec + "." + status, specAfter, false
}

// The check finds a server that lets a write of one part change the second one.
func TestAWriteOfThePartThatItMustLeaveIsFound(t *testing.T) {
	type stored struct{ spec, specAfter, status, statusAfter string }
	check := func(second stored) []consistency.Violation {
		h := consistency.History{Ops: []consistency.Op{
			{Verb: consistency.Create, Key: "k-0", Value: "v1.none", Version: 10, Outcome: consistency.Acknowledged, Start: 1, End: 2},
			{Verb: consistency.Update, Key: "k-0", Value: "v1.v2", Basis: 10, Replaces: "v1.none", Version: 11, Outcome: consistency.Acknowledged, Start: 3, End: 4},
		}}
		created := ingress("k-0", "v1", "", "", "")
		created.Status = networkingv1.IngressStatus{}
		for n, object := range []*networkingv1.Ingress{created, ingress("k-0", second.spec, second.specAfter, second.status, second.statusAfter)} {
			e := consistency.Event{Kind: []consistency.Kind{consistency.Added, consistency.Modified}[n], Key: "k-0", Version: int64(10 + n)}
			e.Value, e.After, e.Torn = readIngress(object)
			h.Stored = append(h.Stored, e)
		}
		return consistency.Check(h)
	}
	if found := check(stored{"v1", "", "v2", "v1.none"}); len(found) > 0 {
		t.Errorf("violations in a valid history = %v, want none", found)
	}
	for what, second := range map[string]stored{
		"the spec of a write of the status is stored": {ignored, "v1.none", "v2", "v1.none"}, "its status is not stored": {"v1", "", ignored, "v1.none"},
	} {
		found := check(second)
		for _, rule := range []consistency.Rule{consistency.Lost, consistency.Unasked} {
			if !slices.ContainsFunc(found, func(v consistency.Violation) bool { return v.Rule == rule }) {
				t.Errorf("violations with %s: want %q, found %v", what, rule, found)
			}
		}
	}
}
