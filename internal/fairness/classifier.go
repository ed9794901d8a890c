package fairness

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	informers "k8s.io/client-go/informers/flowcontrol/v1"
	listers "k8s.io/client-go/listers/flowcontrol/v1"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/metrics"
)

// ranks keeps the levels that the library's controller makes, and the snapshot by which requests are told apart.
type ranks struct {
	metrics  *metrics.Fairness
	schemas  listers.FlowSchemaLister
	objects  listers.PriorityLevelConfigurationLister
	snapshot atomic.Pointer[[]schema] // in the order in which they are asked; the last one takes everything

	mu     sync.Mutex // guards levels, and that the snapshot is of the latest objects
	levels map[string]*level
}

// follow compiles the snapshot anew whenever an object has changed.
func follow(known informers.Interface, m *metrics.Fairness) (*ranks, error) {
	r := &ranks{
		metrics: m,
		schemas: known.FlowSchemas().Lister(), objects: known.PriorityLevelConfigurations().Lister(), levels: map[string]*level{},
	}
	changed := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { r.compile() }, UpdateFunc: func(any, any) { r.compile() }, DeleteFunc: func(any) { r.compile() },
	}
	for _, informer := range []cache.SharedIndexInformer{known.FlowSchemas().Informer(), known.PriorityLevelConfigurations().Informer()} {
		if _, err := informer.AddEventHandler(changed); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// level is known, or the one of that name, or a new one.
func (r *ranks) level(name string, known *level) *level {
	if known != nil {
		return known
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.levels[name]; l != nil {
		return l
	}
	return &level{name: name}
}

// put makes l the level of its name.
func (r *ranks) put(l *level) {
	r.mu.Lock()
	known := r.levels[l.name] == l
	r.levels[l.name] = l
	r.mu.Unlock()
	if !known {
		r.compile()
	}
}

// compile makes the snapshot of what is stored. What must exist and does not is taken to be as upstream's.
func (r *ranks) compile() {
	r.mu.Lock()
	defer r.mu.Unlock()
	objects := map[string]*flowcontrolv1.PriorityLevelConfiguration{}
	stored, _ := r.objects.List(labels.Everything()) // a cache has no errors
	for _, o := range stored {
		objects[o.Name] = o
	}
	schemas := r.inOrder(objects)
	for _, o := range bootstrap.MandatoryPriorityLevelConfigurations {
		if objects[o.Name] == nil {
			objects[o.Name] = o
		}
	}
	for name, l := range r.levels {
		if objects[name] == nil && l.state.Load() == 0 {
			delete(r.levels, name)
		}
	}
	var compiled []schema
	for _, s := range schemas {
		at := s.Spec.PriorityLevelConfiguration.Name
		if level, object := r.levels[at], objects[at]; level != nil && object != nil {
			compiled = append(compiled, compileSchema(s, object, level, r.metrics))
		}
	}
	r.snapshot.Store(&compiled)
}

// inOrder is the schemas as they are asked: by precedence, then by name. One whose level is not stored takes nothing, as
// its status says. Of the two that must exist, the one that exempts is first and the one that catches all last when they
// are not stored.
func (r *ranks) inOrder(levels map[string]*flowcontrolv1.PriorityLevelConfiguration) (all []*flowcontrolv1.FlowSchema) {
	known, _ := r.schemas.List(labels.Everything())
	for _, s := range known {
		if levels[s.Spec.PriorityLevelConfiguration.Name] != nil {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *flowcontrolv1.FlowSchema) int {
		if a.Spec.MatchingPrecedence != b.Spec.MatchingPrecedence {
			return int(a.Spec.MatchingPrecedence) - int(b.Spec.MatchingPrecedence)
		}
		return strings.Compare(a.Name, b.Name)
	})
	stored := func(name string) bool {
		return slices.ContainsFunc(all, func(s *flowcontrolv1.FlowSchema) bool { return s.Name == name })
	}
	if !stored(flowcontrolv1.FlowSchemaNameExempt) {
		all = slices.Insert(all, 0, bootstrap.MandatoryFlowSchemaExempt)
	}
	if !stored(flowcontrolv1.FlowSchemaNameCatchAll) {
		all = append(all, bootstrap.MandatoryFlowSchemaCatchAll)
	}
	return all
}
