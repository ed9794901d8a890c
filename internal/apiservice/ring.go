package apiservice

import (
	"slices"
	"sync"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// keptTransitions is how many of the last transitions of each APIService are remembered.
const keptTransitions = 16

// Transition is one change of this replica's verdict.
type Transition struct {
	Time    time.Time                         `json:"time"`
	From    apiregistrationv1.ConditionStatus `json:"from"`
	To      apiregistrationv1.ConditionStatus `json:"to"`
	Reason  string                            `json:"reason"`
	Message string                            `json:"message"`
}

// transitions remembers the last transitions by APIService.
type transitions struct {
	mu     sync.Mutex
	byName map[string][]Transition
}

func (t *transitions) add(name string, tr Transition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byName == nil {
		t.byName = make(map[string][]Transition)
	}
	kept := append(t.byName[name], tr)
	if len(kept) > keptTransitions {
		kept = slices.Delete(kept, 0, len(kept)-keptTransitions)
	}
	t.byName[name] = kept
}

func (t *transitions) get(name string) []Transition {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.byName[name])
}

func (t *transitions) forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byName, name)
}
