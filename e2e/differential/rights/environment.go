package rights

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"portico.dev/e2e/differential/kinds"
)

//go:embed testdata/objects.yaml
var objectsFile []byte

const (
	// unavailable is the group of the sample APIService, which has no backend.
	unavailable = "y.example.com"
	// sampled is the name of the samples, and absent a name without an object.
	sampled = "sample"
	absent  = "absent"
)

// sample is a valid object of a kind, or the body for a subresource.
type sample struct {
	manifest `json:",inline"`
	// Absent is true if the object is not created, because it would not stay unchanged.
	Absent bool `json:"absent"`
}

// environment contains the objects that exist during the requests.
type environment struct {
	// samples by the path of the collection or subresource
	samples map[string]sample
	// made contains all samples and other objects, in the order of creation.
	made []manifest

	lock  sync.Mutex // guards asked
	asked map[shape][]question
}

func newEnvironment() (*environment, error) {
	w := &environment{samples: map[string]sample{}, asked: map[shape][]question{}}
	var file struct {
		Samples []sample   `json:"samples"`
		Others  []manifest `json:"others"`
	}
	var order []string
	add := func(s sample) {
		if _, ok := w.samples[s.At]; !ok {
			order = append(order, s.At)
		}
		w.samples[s.At] = s
	}
	for _, namespace := range []string{own, foreign} {
		common, err := kinds.Samples(namespace)
		if err != nil {
			return nil, err
		}
		for _, c := range common {
			add(sample{manifest: manifest{c.At, c.Object}})
		}
		// Samples in objects.yaml replace the common ones.
		if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(string(objectsFile), "{ns}", namespace)), &file); err != nil {
			return nil, fmt.Errorf("objects.yaml: %w", err)
		}
		for _, s := range file.Samples {
			add(s)
		}
		w.made = append(w.made, file.Others...)
	}
	var first, last []manifest
	for _, at := range order {
		s := w.samples[at]
		if s.Absent {
			continue
		}
		if strings.HasSuffix(at, "/customresourcedefinitions") || strings.HasSuffix(at, "/namespaces") || strings.HasSuffix(at, "/ingressclasses") {
			first = append(first, s.manifest)
		} else {
			last = append(last, s.manifest)
		}
	}
	w.made = append(append(first, w.made...), last...)
	return w, nil
}

// make creates all objects, including the permissions of the personas.
func (s *server) make(ctx context.Context, w *environment, all []persona) error {
	for _, namespace := range []string{own, foreign} {
		if err := s.namespace(ctx, namespace); err != nil {
			return err
		}
	}
	var errs []error
	for _, m := range w.made {
		errs = append(errs, s.create(ctx, m))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	number := 0
	for _, p := range all {
		for _, g := range p.Rights {
			number++
			for _, m := range g.manifests(p.User, number) {
				if err := s.create(ctx, m); err != nil {
					return fmt.Errorf("%s: %w", p.Name, err)
				}
			}
		}
	}
	if err := s.settle(ctx, own); err != nil {
		return err
	}
	// A controller fills the rules of an aggregated role.
	return s.await(ctx, review("viewer", map[string]any{"namespace": own, "verb": "list", "group": "example.com", "resource": "widgets"}))
}

// namespace creates a namespace and waits for its default service account.
func (s *server) namespace(ctx context.Context, name string) error {
	if err := s.create(ctx, manifest{"/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": name}}}); err != nil {
		return err
	}
	return s.poll(ctx, func() (bool, error) {
		a, _, err := send(ctx, s.admin, s.host, question{Method: http.MethodGet, Path: "/api/v1/namespaces/" + name + "/serviceaccounts/default"}, nil)
		return a.Code == http.StatusOK, err
	})
}

// create creates an object. It ignores a conflict, because some kinds are served in several versions.
func (s *server) create(ctx context.Context, m manifest) error {
	return s.poll(ctx, func() (bool, error) {
		a, _, err := send(ctx, s.admin, s.host, question{Name: "make " + m.At, Method: http.MethodPost, Path: m.At, Body: m.Object}, nil)
		switch {
		case err != nil:
			return false, err
		case a.Code == http.StatusNotFound: // the kind is not served yet
			return false, nil
		case a.Code >= 400 && a.Code != http.StatusConflict:
			return false, fmt.Errorf("POST %s answered with %d: %s", m.At, a.Code, a.Message)
		}
		return true, nil
	})
}

// settle returns when all previously created permissions are in effect. It relies on the order in which the four RBAC
// informers deliver changes.
func (s *server) settle(ctx context.Context, namespace string) error {
	s.settled++
	user := fmt.Sprintf("settled-%d", s.settled)
	pods := []rule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}
	nodes := []rule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}}}
	for i, g := range []grant{{In: namespace, Rules: pods}, {Rules: nodes}} {
		for _, m := range g.manifests(user, 1_000_000+2*s.settled+i) {
			if err := s.create(ctx, m); err != nil {
				return err
			}
		}
	}
	if err := s.await(ctx, review(user, map[string]any{"namespace": namespace, "verb": "get", "resource": "pods"})); err != nil {
		return err
	}
	return s.await(ctx, review(user, map[string]any{"verb": "get", "resource": "nodes"}))
}

func review(user string, attributes map[string]any) map[string]any {
	return map[string]any{"spec": map[string]any{"user": user, "resourceAttributes": attributes}}
}

// await waits until a SubjectAccessReview is allowed.
func (s *server) await(ctx context.Context, review map[string]any) error {
	err := s.poll(ctx, func() (bool, error) {
		_, body, err := send(ctx, s.admin, s.host, question{Method: http.MethodPost, Path: "/apis/authorization.k8s.io/v1/subjectaccessreviews", Body: review}, nil)
		if err != nil {
			return false, err
		}
		var said struct {
			Status struct {
				Allowed bool `json:"allowed"`
			} `json:"status"`
		}
		text, _ := body.(json.RawMessage)
		if err := json.Unmarshal(text, &said); err != nil {
			return false, err
		}
		return said.Status.Allowed, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %v: %w", review, err)
	}
	return nil
}

func (s *server) poll(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
