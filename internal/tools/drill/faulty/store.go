package faulty

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxObjects and maxEvents bound the memory of a drill that creates more objects than it deletes.
	maxObjects = 10_000
	maxEvents  = 1_000
)

var (
	errNotFound = errors.New("not found")
	errExists   = errors.New("already exists")
	errConflict = errors.New("the object has been modified; apply the change to its latest version")
	errFull     = errors.New("the extension server of a drill holds no more than 10000 objects")
)

// object is an object of the served kind, which has only metadata.
type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

// change is one event of a watch.
type change struct {
	Type     string
	Object   object
	revision int64
}

// store holds objects in memory, and the latest changes for watches.
type store struct {
	mu       sync.Mutex // guards the fields below
	objects  map[types.NamespacedName]object
	revision int64
	events   []change
	empty    map[string]time.Time // when a namespace lost its last object
	turn     chan struct{}        // closed and replaced at each change
	hidden   map[types.NamespacedName]bool
	oldest   int64 // the first revision from which a watch may begin
}

func newStore() *store {
	return &store{
		objects: map[types.NamespacedName]object{}, revision: 1, empty: map[string]time.Time{}, turn: make(chan struct{}),
		hidden: map[types.NamespacedName]bool{},
	}
}

// setHidden hides an object from gets and lists, or shows it again. Watches expire, because they have no event about it.
func (s *store) setHidden(key types.NamespacedName, hide bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if hide {
		s.hidden[key] = true
	} else {
		delete(s.hidden, key)
	}
	s.revision++
	s.oldest = s.revision
	close(s.turn)
	s.turn = make(chan struct{})
}

func keyOf(o object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
}

// note records a change. The caller holds mu.
func (s *store) note(kind string, o object) object {
	s.revision++
	o.ResourceVersion = strconv.FormatInt(s.revision, 10)
	if kind == "DELETED" {
		delete(s.objects, keyOf(o))
		if s.countLocked(o.Namespace) == 0 {
			s.empty[o.Namespace] = time.Now()
		}
	} else {
		s.objects[keyOf(o)] = o
		delete(s.empty, o.Namespace)
	}
	s.events = append(s.events, change{Type: kind, Object: o, revision: s.revision})
	if over := len(s.events) - maxEvents; over > 0 {
		s.events = slices.Delete(s.events, 0, over)
	}
	close(s.turn)
	s.turn = make(chan struct{})
	return o
}

func (s *store) create(o object) (object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.objects) >= maxObjects {
		return object{}, errFull
	}
	if o.Name == "" && o.GenerateName != "" {
		o.Name = fmt.Sprintf("%s%.5s", o.GenerateName, rand.Text())
	}
	if _, there := s.objects[keyOf(o)]; there {
		return object{}, errExists
	}
	o.UID, o.CreationTimestamp = types.UID(rand.Text()), metav1.Now()
	o.DeletionTimestamp, o.Generation = nil, 1
	return s.note("ADDED", o), nil
}

func (s *store) get(key types.NamespacedName) (object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, there := s.objects[key]
	if !there || s.hidden[key] {
		return object{}, errNotFound
	}
	return o, nil
}

// update applies change to an object. It removes an object that is being deleted and has no finalizers left.
func (s *store) update(key types.NamespacedName, change func(object) (object, error)) (object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, there := s.objects[key]
	if !there {
		return object{}, errNotFound
	}
	after, err := change(before)
	if err != nil {
		return object{}, err
	}
	if after.ResourceVersion != "" && after.ResourceVersion != before.ResourceVersion {
		return object{}, errConflict
	}
	after.Name, after.Namespace, after.UID = before.Name, before.Namespace, before.UID
	after.CreationTimestamp, after.DeletionTimestamp = before.CreationTimestamp, before.DeletionTimestamp
	if after.DeletionTimestamp != nil && len(after.Finalizers) == 0 {
		return s.note("DELETED", after), nil
	}
	return s.note("MODIFIED", after), nil
}

// remove deletes an object, or sets its deletion timestamp while it has finalizers.
func (s *store) remove(key types.NamespacedName, uid types.UID) (object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, there := s.objects[key]
	switch {
	case !there:
		return object{}, errNotFound
	case uid != "" && uid != o.UID:
		return object{}, errConflict
	case len(o.Finalizers) == 0:
		return s.note("DELETED", o), nil
	case o.DeletionTimestamp == nil:
		now := metav1.Now()
		o.DeletionTimestamp = &now
		return s.note("MODIFIED", o), nil
	}
	return o, nil
}

// list returns the objects of a namespace, or of all namespaces, sorted by namespace and name, and the revision.
func (s *store) list(namespace string) ([]object, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []object
	for key, o := range s.objects {
		if (namespace == "" || key.Namespace == namespace) && !s.hidden[key] {
			found = append(found, o)
		}
	}
	slices.SortFunc(found, func(a, b object) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return found, s.revision
}

// since returns the changes after a revision, the current revision, and a channel that is closed at the next change.
// gone is true if some of the changes have been discarded.
func (s *store) since(revision int64) (changes []change, now int64, turn <-chan struct{}, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone = revision < s.oldest || len(s.events) == maxEvents && s.events[0].revision > revision+1
	for _, e := range s.events {
		if e.revision > revision {
			changes = append(changes, e)
		}
	}
	return changes, s.revision, s.turn, gone
}

func (s *store) count(namespace string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.countLocked(namespace)
}

func (s *store) countLocked(namespace string) int {
	n := 0
	for key := range s.objects {
		if key.Namespace == namespace {
			n++
		}
	}
	return n
}

func (s *store) emptied(namespace string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.empty[namespace]
}
