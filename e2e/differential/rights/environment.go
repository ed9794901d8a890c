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
	// unavailable is the group of the sample APIService, behind which nobody is.
	unavailable = "y.example.com"
	// sampled and absent are names: of the sample, and of what is not there.
	sampled = "sample"
	absent  = "absent"
)

// sample is a valid object of a kind, or what is sent to a subresource.
type sample struct {
	manifest `json:",inline"`
	// Absent says that it is not made: it would not stay as it is.
	Absent bool `json:"absent"`
}

// environment is what there is when questions are asked.
type environment struct {
	// samples by the collection, or by the path of the subresource.
	samples map[string]sample
	// made are all samples and whatever else there is, in the order in which they are made.
	made []manifest

	lock  sync.Mutex // protects asked
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
		// Ours take the place of the common ones.
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

// make makes everything, with the rights of the personas.
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
	// A role that is made of others is ready when its controller has been there.
	return s.await(ctx, review("viewer", map[string]any{"namespace": own, "verb": "list", "group": "example.com", "resource": "widgets"}))
}

// namespace makes one and waits for the service account in it.
func (s *server) namespace(ctx context.Context, name string) error {
	if err := s.create(ctx, manifest{"/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": name}}}); err != nil {
		return err
	}
	return s.poll(ctx, func() (bool, error) {
		a, _, err := ask(ctx, s.admin, s.host, question{Method: http.MethodGet, Path: "/api/v1/namespaces/" + name + "/serviceaccounts/default"}, nil)
		return a.Code == http.StatusOK, err
	})
}

// create makes an object. The kinds of one that was made before by another version are the same.
func (s *server) create(ctx context.Context, m manifest) error {
	return s.poll(ctx, func() (bool, error) {
		a, _, err := ask(ctx, s.admin, s.host, question{Name: "make " + m.At, Method: http.MethodPost, Path: m.At, Body: m.Object}, nil)
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

// settle returns when all rights that were given before count: the caches of the four kinds are ordered.
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

// await waits until a SubjectAccessReview allows.
func (s *server) await(ctx context.Context, review map[string]any) error {
	err := s.poll(ctx, func() (bool, error) {
		_, body, err := ask(ctx, s.admin, s.host, question{Method: http.MethodPost, Path: "/apis/authorization.k8s.io/v1/subjectaccessreviews", Body: review}, nil)
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
