package apiservice

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/transport"
)

// DebugState is the content of /debug/aggregation: this replica's verdicts and the probes behind them. It contains endpoint
// addresses.
type DebugState struct {
	Synced bool `json:"synced"`
	// Replica is this replica's name, WritesStatus whether it leads.
	Replica      string            `json:"replica,omitempty"`
	WritesStatus bool              `json:"writesStatus"`
	APIServices  []APIServiceState `json:"apiServices"`
	Backends     []BackendState    `json:"backends"`
}

// APIServiceState is the verdict on one remote APIService. Local APIServices are omitted.
type APIServiceState struct {
	Name      string    `json:"name"`
	Backend   string    `json:"backend,omitempty"`
	Available string    `json:"available"`
	Reason    string    `json:"reason"`
	Message   string    `json:"message"`
	Since     time.Time `json:"since"`
	// Elsewhere contains the verdicts of other replicas.
	Elsewhere   map[string]string `json:"elsewhere,omitempty"`
	Transitions []Transition      `json:"transitions,omitempty"`
}

// BackendState describes one backend: requests in flight, endpoints with their ejections, and probes.
type BackendState struct {
	transport.Report
	Probes []ProbeState `json:"probes"`
	// NextProbe is when the next round is due, zero before the first.
	NextProbe time.Time `json:"nextProbe,omitzero"`
	// LastAnswer is when a request was last answered, zero before the first.
	LastAnswer time.Time `json:"lastAnswer,omitzero"`
}

// ProbeState describes the last probe of one group-version.
type ProbeState struct {
	URL string `json:"url"`
	Up  bool   `json:"up"`
	// Failures is the number of consecutive failed probes.
	Failures int `json:"failures"`
	// At is the time of the last probe, zero before the first.
	At           time.Time `json:"at,omitzero"`
	Milliseconds float64   `json:"milliseconds"`
	Error        string    `json:"error,omitempty"`
	// CertificateExpires is when the last serving certificate expires.
	CertificateExpires time.Time `json:"certificateExpires,omitzero"`
}

// DebugState returns the current state.
func (c *Controller) DebugState() DebugState {
	table := c.Table()
	state := DebugState{Synced: table.Synced(), Replica: c.cfg.Replica, WritesStatus: c.replicas.leads(), APIServices: []APIServiceState{}, Backends: []BackendState{}}
	for _, r := range table.All() {
		if r.Local {
			continue
		}
		s := APIServiceState{
			Name:        r.Name,
			Available:   string(r.Condition.Status),
			Reason:      r.Condition.Reason,
			Message:     r.Condition.Message,
			Since:       r.Condition.LastTransitionTime.Time,
			Transitions: c.transitions.get(r.Name),
			Elsewhere:   make(map[string]string),
		}
		for replica, o := range c.replicas.verdictsOf(r) {
			s.Elsewhere[replica] = string(o.Status)
		}
		if r.Backend != nil {
			s.Backend = r.Backend.Name()
		}
		state.APIServices = append(state.APIServices, s)
	}
	for b, m := range c.monitors.snapshot() {
		s := m.state()
		s.Report = b.Report()
		state.Backends = append(state.Backends, s)
	}
	slices.SortFunc(state.Backends, func(a, b BackendState) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Trust, b.Trust))
	})
	return state
}

func (m *monitor) state() BackendState {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := BackendState{Probes: []ProbeState{}, NextProbe: m.next}
	if n := m.lastAnswer.Load(); n != 0 {
		s.LastAnswer = time.Unix(0, n)
	}
	versions := make([]schema.GroupVersion, 0, len(m.versions))
	for _, h := range m.versions {
		versions = append(versions, h.of)
	}
	slices.SortFunc(versions, compareGroupVersions)
	for _, gv := range versions {
		h := m.versions.lookup(gv)
		p := ProbeState{
			URL:                m.url(gv),
			Up:                 h.up,
			Failures:           h.failures,
			At:                 h.last.at,
			Milliseconds:       float64(h.last.duration.Microseconds()) / 1000,
			CertificateExpires: h.last.certificateExpires,
		}
		if h.last.failure != nil {
			p.Error = h.last.failure.text(p.URL)
		}
		s.Probes = append(s.Probes, p)
	}
	return s
}

// maxTransitions is the number of transitions of each APIService that are kept.
const maxTransitions = 16

// Transition is one change of this replica's verdict.
type Transition struct {
	Time    time.Time                         `json:"time"`
	From    apiregistrationv1.ConditionStatus `json:"from"`
	To      apiregistrationv1.ConditionStatus `json:"to"`
	Reason  string                            `json:"reason"`
	Message string                            `json:"message"`
}

// transitions keeps the last transitions by APIService.
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
	if len(kept) > maxTransitions {
		kept = slices.Delete(kept, 0, len(kept)-maxTransitions)
	}
	t.byName[name] = kept
}

func (t *transitions) get(name string) []Transition {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.byName[name])
}

// last returns the latest transition, or false.
func (t *transitions) last(name string) (Transition, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.byName[name]
	if len(all) == 0 {
		return Transition{}, false
	}
	return all[len(all)-1], true
}

func (t *transitions) forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byName, name)
}
