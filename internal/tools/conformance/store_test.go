package conformance_test

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/pkg/extension"
)

// Widget is a resource with everything: a watch, writes, namespaces.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Size              int64 `json:"size,omitempty"`
}

// Gauge is a resource with only a list.
type Gauge struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Value             int64 `json:"value"`
}

var group = "test.portico.dev"

// widgetStore keeps widgets.
type widgetStore struct {
	mu    sync.Mutex
	items []Widget
}

func (s *widgetStore) List(context.Context, extension.Query) ([]Widget, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.items), nil
}

func (s *widgetStore) find(namespace, name string) int {
	return slices.IndexFunc(s.items, func(w Widget) bool { return w.Namespace == namespace && w.Name == name })
}

func (s *widgetStore) Create(_ context.Context, q extension.Query, w Widget) (Widget, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.find(w.Namespace, w.Name) >= 0 {
		return w, extension.ErrExists
	}
	if !q.DryRun {
		s.items = append(s.items, w)
	}
	return w, nil
}

func (s *widgetStore) Delete(_ context.Context, q extension.Query) (Widget, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(q.Namespace, q.Name)
	if i < 0 {
		return Widget{}, extension.ErrNotFound
	}
	w := s.items[i]
	if !q.DryRun {
		s.items = slices.Delete(s.items, i, i+1)
	}
	return w, nil
}

// Connect makes widgets have a subresource.
func (s *widgetStore) Connect(_ context.Context, _ extension.Query, w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusNoContent)
}

func widget(namespace, name, color string) Widget {
	return Widget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"color": color}}}
}

func resources() []extension.Resource {
	widgets := &widgetStore{items: []Widget{
		widget("team-a", "cog", "red"), widget("team-a", "gear", "blue"), widget("team-b", "cog", "red"), widget("team-b", "wheel", "green"),
	}}
	gauges := extension.ListFunc[Gauge](func(context.Context, extension.Query) ([]Gauge, error) {
		return []Gauge{{ObjectMeta: metav1.ObjectMeta{Name: "heat"}, Value: 7}, {ObjectMeta: metav1.ObjectMeta{Name: "noise"}}}, nil
	})
	return []extension.Resource{
		extension.Of(extension.Definition[Widget]{Group: group, Version: "v1", Plural: "widgets", Kind: "Widget", Singular: "widget",
			Namespaced: true, PollInterval: 100 * time.Millisecond, DryRun: true, Connects: []string{"spin"}}, widgets),
		extension.Of(extension.Definition[Gauge]{Group: group, Version: "v1", Plural: "gauges", Kind: "Gauge"}, gauges),
	}
}
