package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Every write to a watched object has a number, which its writer increments with each attempt. The object contains the number of
// its write, and the number of the version that the write replaced. A write replaces exactly that version, because it has a
// resourceVersion. So the events of a watch form a chain for each object, whether or not the writer received an answer.
const (
	writeAnnotation    = "simulation/write"
	replacesAnnotation = "simulation/replaces"
)

// version is one version of a watched object.
type version struct {
	name            string
	write, replaces int
	revision        int64 // its resourceVersion; both collections have decimal ones with one order
}

func (v version) String() string {
	return fmt.Sprintf("%s with write %d at resourceVersion %d", v.name, v.write, v.revision)
}

// versionOf returns the version that an object of a list or of an event is.
func versionOf(o *metav1.PartialObjectMetadata) (version, error) {
	v := version{name: o.Name}
	var err error
	if v.revision, err = strconv.ParseInt(o.ResourceVersion, 10, 64); err != nil {
		return v, fmt.Errorf("resourceVersion %q of object %q: %w", o.ResourceVersion, o.Name, err)
	}
	for name, into := range map[string]*int{writeAnnotation: &v.write, replacesAnnotation: &v.replaces} {
		if text := o.Annotations[name]; text != "" {
			if *into, err = strconv.Atoi(text); err != nil {
				return v, fmt.Errorf("annotation %s of object %q: %w", name, o.Name, err)
			}
		}
	}
	return v, nil
}

// versionsOf returns the versions of the objects of a list, by name.
func versionsOf(list *metav1.PartialObjectMetadataList) (map[string]version, error) {
	all := make(map[string]version)
	for i := range list.Items {
		v, err := versionOf(&list.Items[i])
		if err != nil {
			return nil, err
		}
		all[v.name] = v
	}
	return all, nil
}

// observed is the state of a collection that one watch has seen.
type observed struct {
	// synced is set once the state is complete: after a list, or after the bookmark that ends the initial events.
	synced  bool
	objects map[string]version
	// start is the resourceVersion at which the state became complete, and last the one from which the watch resumes.
	start, last int64
	seen        map[int64]bool // resourceVersions of events after start
}

// forget removes the state, because the watch begins again.
func (s *observed) forget() {
	*s = observed{objects: make(map[string]version), seen: make(map[int64]bool)}
}

// begin sets the state to the one of a list.
func (s *observed) begin(objects map[string]version, revision int64) {
	s.forget()
	s.synced, s.objects, s.start, s.last = true, objects, revision, revision
}

// apply adds an event. It returns an error if the event does not follow the ones before.
func (s *observed) apply(kind string, v version) error {
	before, exists := s.objects[v.name]
	if s.synced {
		if v.revision <= s.last {
			return fmt.Errorf("%s %s after resourceVersion %d, want a later one", kind, v, s.last)
		}
		s.last, s.seen[v.revision] = v.revision, true
		switch {
		case kind == "ADDED" && exists:
			return fmt.Errorf("ADDED %s, want no ADDED: the state already has %s", v, before)
		case kind != "ADDED" && !exists:
			return fmt.Errorf("%s %s, want ADDED: the state has no such object", kind, v)
		case kind == "MODIFIED" && v.replaces != before.write:
			return fmt.Errorf("MODIFIED %s, which replaces write %d, want one that replaces write %d: the state has %s", v, v.replaces, before.write, before)
		case kind == "DELETED" && v.write != before.write:
			return fmt.Errorf("DELETED %s, want write %d: the state has %s", v, before.write, before)
		}
	}
	switch kind {
	case "ADDED", "MODIFIED":
		s.objects[v.name] = v
	case "DELETED":
		delete(s.objects, v.name)
	default:
		return fmt.Errorf("event %q of %s, want ADDED, MODIFIED or DELETED", kind, v)
	}
	return nil
}

// bookmark adds a bookmark. initial is set if it ends the initial events. A bookmark says that the watch has sent everything up to
// its resourceVersion.
func (s *observed) bookmark(revision int64, initial bool) error {
	if !s.synced {
		for _, v := range s.objects {
			if v.revision > revision {
				return fmt.Errorf("bookmark with resourceVersion %d after %s, want at least %d", revision, v, v.revision)
			}
		}
		if initial {
			s.begin(s.objects, revision)
		}
		return nil
	}
	if revision < s.last {
		return fmt.Errorf("bookmark with resourceVersion %d, want at least %d, which the watch has sent", revision, s.last)
	}
	s.last = revision
	return nil
}

// checkSeen returns an error if a version that was acknowledged to its writer is not among the events, although the watch has sent
// a later one. until bounds the resourceVersions that are checked.
func (s *observed) checkSeen(acknowledged []version, until int64) error {
	if !s.synced {
		return nil
	}
	for _, v := range acknowledged {
		if v.revision > s.start && v.revision <= until && !s.seen[v.revision] {
			return fmt.Errorf("no event for %s, but the watch began at resourceVersion %d and has reached %d", v, s.start, s.last)
		}
	}
	return nil
}

// checkEqual returns an error if the state is not the one of a list.
func (s *observed) checkEqual(listed map[string]version) error {
	if !s.synced || !maps.Equal(s.objects, listed) {
		return fmt.Errorf("the watch has %s (complete: %t, at resourceVersion %d), want %s", describeVersions(s.objects), s.synced, s.last, describeVersions(listed))
	}
	return nil
}

func describeVersions(objects map[string]version) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		parts = append(parts, objects[name].String())
	}
	return "[" + strings.Join(parts, ", ") + "]"
}
