package garbage

import (
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// remembered bounds what is remembered of owners that are gone. What was forgotten is asked again.
	remembered = 4096
	// absenceLife is how long a proven absence spares the question. UIDs do not come back; backends that were wrong do.
	absenceLife = 30 * time.Second
	// secondLook is how long after a backend first said that an owner is gone it is asked again. A server that starts
	// with an empty cache fills it in that time.
	secondLook = 5 * time.Second
	// secondLookLife: a first word older than this is a first word no more.
	secondLookLife = 5 * time.Minute
)

// claim is an owner as a dependent names it. Several dependents name it alike, and share what was found out.
type claim struct {
	apiVersion, kind, namespace, name string
	uid                               types.UID
}

// absences is what is known of owners that are gone.
type absences struct {
	mu sync.Mutex // makes read and write of one entry one step
	// proven: since when an owner is known to be gone.
	proven *lru.Cache[claim, time.Time]
	// heard: when a backend said so for the first time.
	heard *lru.Cache[claim, time.Time]
	// buried UIDs were seen to end by a watch of our own etcd, which is proof even when their kind is no longer served:
	// a definition that is deleted takes its objects along and is gone a moment later.
	buried *lru.Cache[types.UID, struct{}]
}

func newAbsences() *absences {
	return &absences{proven: bounded[claim, time.Time](), heard: bounded[claim, time.Time](), buried: bounded[types.UID, struct{}]()}
}

func bounded[K comparable, V any]() *lru.Cache[K, V] {
	c, err := lru.New[K, V](remembered)
	if err != nil {
		panic(err) // only for a size below one
	}
	return c
}

func (a *absences) known(c claim) bool {
	since, ok := a.proven.Get(c)
	return ok && time.Since(since) < absenceLife
}

func (a *absences) prove(c claim) { a.proven.Add(c, time.Now()) }

// hear takes in that a backend said an owner is gone, and reports how long until it may be believed: zero is now.
func (a *absences) hear(c claim) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	first, ok := a.heard.Get(c)
	if age := time.Since(first); ok && age < secondLookLife {
		return max(0, secondLook-age)
	}
	a.heard.Add(c, time.Now())
	return secondLook
}

// alive takes back what was heard.
func (a *absences) alive(c claim) {
	a.heard.Remove(c)
	a.proven.Remove(c)
}
