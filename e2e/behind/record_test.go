//go:build incumbent

package behind

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"portico.dev/internal/tools/drill"
)

// record is result.yaml. A test of package recorded reads it too.
type record struct {
	// Parts are when each part was recorded, by its name. A run need not be of all.
	Parts map[string]made `json:"parts"`
	// ExtensionServer lists the steps of extserver in order.
	ExtensionServer []string `json:"extensionServer"`
	// Doctor lists each fault with the diagnosed hop, before kube-apiserver had noticed and after.
	Doctor []diagnosed `json:"doctor"`
	// Scores are marks of aggregator conformance.
	Scores []scored `json:"scores"`
	// Drills are held at both front doors, and with a gateway.
	Drills []drilled `json:"drills"`
	// Story is the deletion of a namespace while an extension server is dead.
	Story []told `json:"story"`

	mu            sync.Mutex // guards the lists while tests run
	kubeAPIServer string     // its version at /version
}

// made is the origin of a part.
type made struct {
	// Date is the day of the run.
	Date string `json:"date"`
	// KubeAPIServer is its version; "" for a part of the front door alone.
	KubeAPIServer string `json:"kubeAPIServer,omitempty"`
}

// Names of parts; these and the rest are for one front door, way or server each.
const (
	serverPart = "extension server"
	doctorWay  = "doctor "
	marksOf    = "marks of "
	drillsAt   = "drills at "
	storyAt    = "story at "

	theirs, ours, withGateway = "kube-apiserver", "portico", "gateway"
)

type diagnosed struct {
	Way      string `json:"way"`
	Breakage string `json:"breakage"`
	Hop      string `json:"hop,omitempty"` // "" without a fault
}

type scored struct {
	Server     string `json:"server"`
	APIService string `json:"apiService"`
	Score      string `json:"score"`
}

// book is the record of this run.
var book = &record{Parts: map[string]made{}}

// version sets the version from the first kube-apiserver; all of them are the same program.
func (r *record) version(v string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kubeAPIServer = v
}

// add changes the record of a part.
func (r *record) add(part string, change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	r.Parts[part] = made{Date: time.Now().UTC().Format(time.DateOnly)}
}

func (r *record) scored(server, apiService, score string) {
	r.add(marksOf+server, func() { r.Scores = append(r.Scores, scored{server, apiService, score}) })
}

// write replaces the recorded parts that this run has made, and keeps the rest.
func (r *record) write() error {
	var old record
	data, err := os.ReadFile(recordFile)
	if err == nil {
		err = yaml.UnmarshalStrict(data, &old)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	r.keep(&old)
	if data, err = yaml.Marshal(r); err != nil {
		return err
	}
	return os.WriteFile(recordFile, data, 0o644)
}

const recordFile = "result.yaml"

// keep completes a run with the old record's parts, including their origin.
func (r *record) keep(old *record) {
	for part, m := range r.Parts {
		if part != drillsAt+ours && part != storyAt+ours {
			m.KubeAPIServer = r.kubeAPIServer
		}
		r.Parts[part] = m
	}
	fresh := func(part string) bool { _, ok := r.Parts[part]; return ok }
	if !fresh(serverPart) {
		r.ExtensionServer = old.ExtensionServer
	}
	add(&r.Doctor, old.Doctor, func(d diagnosed) bool { return !fresh(doctorWay + d.Way) })
	add(&r.Scores, old.Scores, func(s scored) bool { return !fresh(marksOf + s.Server) })
	add(&r.Story, old.Story, func(s told) bool { return !fresh(storyAt + s.FrontDoor) })
	slices.SortStableFunc(r.Doctor, func(a, b diagnosed) int { return strings.Compare(a.Way, b.Way) })
	slices.SortStableFunc(r.Scores, func(a, b scored) int { return strings.Compare(a.Server, b.Server) })
	slices.SortFunc(r.Story, func(a, b told) int { return strings.Compare(a.FrontDoor, b.FrontDoor) })
	ofAll := func(part string) bool { return fresh(part) && *onlyDrills == "" }
	r.keepDrills(old.Drills, ofAll)
	for part, m := range old.Parts {
		if !fresh(part) || strings.HasPrefix(part, drillsAt) && !ofAll(part) {
			r.Parts[part] = m
		}
	}
}

// keepDrills keeps the side of each drill that was not held, in the order of the catalogue.
func (r *record) keepDrills(old []drilled, fresh func(part string) bool) {
	for _, d := range old {
		if fresh(drillsAt + theirs) {
			d.KubeAPIServer = held{}
		}
		if fresh(drillsAt + ours) {
			d.Portico = held{}
		}
		if fresh(drillsAt + withGateway) {
			d.Gateway = held{}
		}
		if d.KubeAPIServer.Verdict != "" || d.Portico.Verdict != "" || d.Gateway.Verdict != "" {
			r.insert(d)
		}
	}
	catalogue := drill.All()
	slices.SortStableFunc(r.Drills, func(a, b drilled) int {
		at := func(name string) int {
			return slices.IndexFunc(catalogue, func(d drill.Drill) bool { return d.Name == name })
		}
		return cmp.Compare(at(a.Drill), at(b.Drill))
	})
}

func add[T any](list *[]T, old []T, kept func(T) bool) {
	for _, one := range old {
		if kept(one) {
			*list = append(*list, one)
		}
	}
}

// stepping runs steps of which each needs the one before.
type stepping struct {
	t *testing.T
	r *record
}

func (r *record) steps(t *testing.T) stepping { return stepping{t, r} }

func (s stepping) does(what string, step func(*testing.T)) {
	s.t.Helper()
	asked := false // -run may leave it out
	if !s.t.Run(what, func(t *testing.T) { asked = true; step(t) }) {
		s.t.FailNow()
	}
	if asked {
		s.r.add(serverPart, func() { s.r.ExtensionServer = append(s.r.ExtensionServer, what) })
	}
}
