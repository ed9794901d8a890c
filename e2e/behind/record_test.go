//go:build incumbent

package behind

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// record is result.yaml. A test of package recorded reads it too.
type record struct {
	// KubeAPIServer is what it says of itself at /version.
	KubeAPIServer string `json:"kubeAPIServer"`
	// Date is the day of the run.
	Date string `json:"date"`
	// ExtensionServer is what extserver did, in order.
	ExtensionServer []string `json:"extensionServer"`
	// Doctor is what is wrong, and the hop that the doctor blamed, before kube-apiserver had noticed and after.
	Doctor []diagnosed `json:"doctor"`
	// Scores are marks of aggregator conformance.
	Scores []scored `json:"scores"`
	// Drills are held at both front doors.
	Drills []drilled `json:"drills"`
	// Story is the deletion of a namespace while an extension server is dead.
	Story []told `json:"story"`

	mu sync.Mutex // guards the lists while tests run
}

type diagnosed struct {
	Way      string `json:"way"`
	Breakage string `json:"breakage"`
	Hop      string `json:"hop,omitempty"` // empty: nothing is broken
}

type scored struct {
	Server     string `json:"server"`
	APIService string `json:"apiService"`
	Score      string `json:"score"`
}

// book is the record of this run.
var book = &record{Date: time.Now().UTC().Format(time.DateOnly)}

func (r *record) add(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *record) scored(server, apiService, score string) {
	r.add(func() { r.Scores = append(r.Scores, scored{server, apiService, score}) })
}

// write puts what this run has found in the place of what is recorded, and leaves what it has not looked at.
func (r *record) write() error {
	var old record
	data, err := os.ReadFile(recordFile)
	if err == nil {
		err = yaml.UnmarshalStrict(data, &old)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	slices.SortStableFunc(r.Doctor, func(a, b diagnosed) int { return strings.Compare(a.Way, b.Way) })
	slices.SortStableFunc(r.Scores, func(a, b scored) int { return strings.Compare(a.Server, b.Server) })
	slices.SortFunc(r.Story, func(a, b told) int { return strings.Compare(a.FrontDoor, b.FrontDoor) })
	keep(&r.ExtensionServer, old.ExtensionServer)
	keep(&r.Doctor, old.Doctor)
	keep(&r.Scores, old.Scores)
	for _, d := range old.Drills {
		r.drilled(d)
	}
	keep(&r.Story, old.Story)
	if r.KubeAPIServer == "" {
		r.KubeAPIServer = old.KubeAPIServer
	}
	if data, err = yaml.Marshal(r); err != nil {
		return err
	}
	return os.WriteFile(recordFile, data, 0o644)
}

const recordFile = "result.yaml"

func keep[T any](list *[]T, old []T) {
	if len(*list) == 0 {
		*list = old
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
	if !s.t.Run(what, step) {
		s.t.FailNow()
	}
	s.r.add(func() { s.r.ExtensionServer = append(s.r.ExtensionServer, what) })
}
