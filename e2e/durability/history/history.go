// Package history judges what clients saw of a store against what the store holds.
//
// A history is recorded while writers, readers and watchers are at work and things go wrong. Every write puts a value into
// its object that no other write has, and names the value that it replaces; so each version of an object can be traced
// to one request, and nobody has to guess in which order two requests were carried out. Check is a pure function: the
// same history has the same violations, wherever it comes from, and a history can be spoilt on purpose to see that Check
// notices.
package history

import (
	"fmt"
	"slices"
)

// Verb is what a request asks for.
type Verb string

// The verbs. Update and Patch replace the version that they name as their basis, and Delete removes it.
const (
	Create Verb = "create"
	Update Verb = "update"
	Patch  Verb = "patch"
	Delete Verb = "delete"
	Get    Verb = "get"
)

// Outcome is what the client knows of a request when it is over.
type Outcome string

const (
	// Acknowledged requests were answered with success.
	Acknowledged Outcome = "acknowledged"
	// Refused requests were answered with an error that promises that nothing was done: a conflict, say.
	Refused Outcome = "refused"
	// Unknown requests were answered with a timeout, or not at all. They may have been carried out, once.
	Unknown Outcome = "unknown"
)

// Asked is how new a read has to be: what resourceVersion and resourceVersionMatch say.
type Asked string

const (
	// Latest reads see everything that was acknowledged before they began: no resourceVersion.
	Latest Asked = ""
	// Any is some state that there was: resourceVersion 0.
	Any Asked = "any"
	// AtLeast is the state at a version or later.
	AtLeast Asked = "at least"
	// Exactly is the state at a version.
	Exactly Asked = "exactly"
)

// Op is one request of a client.
type Op struct {
	Verb Verb
	Key  string
	// Value that is written, or was read; empty for a deletion and for a read that found nothing.
	Value string
	// Basis is the version that is replaced or deleted, 0 for a creation, and Replaces the value that it had.
	Basis    int64
	Replaces string
	Outcome  Outcome
	// Asked is for a Get, and At the version that it names.
	Asked Asked
	At    int64
	// Version in the answer; 0 where there is none, as in that to a deletion.
	Version int64
	// Start and End are moments of one clock: the request was sent after Start, and its answer was there before End.
	Start, End int64
}

// Kind of an event.
type Kind string

// The kinds.
const (
	Added    Kind = "ADDED"
	Modified Kind = "MODIFIED"
	Deleted  Kind = "DELETED"
)

// Event is one change of one object.
type Event struct {
	Kind    Kind
	Key     string
	Version int64
	// Value of the object, for a deletion that which it had.
	Value string
	// After is the value that was replaced; empty for a creation.
	After string
	// Torn objects contradict themselves: a part of them is of another write.
	Torn bool
}

// Watch is what one watch saw, from the version after From up to the last event or bookmark, at Until.
type Watch struct {
	Name        string
	From, Until int64
	Events      []Event
}

// List is what one list found, on all of its pages. A watch that begins with the objects that are there is a list too.
type List struct {
	Version    int64
	Items      map[string]Item
	Start, End int64
	// Asked is how new it had to be, and At the version that it named.
	Asked Asked
	At    int64
}

// Item of a list.
type Item struct {
	Value   string
	Version int64
}

// History is all that was recorded.
type History struct {
	Ops     []Op
	Watches []Watch
	Lists   []List
	// Stored is every change in the order of the store, from the first on.
	Stored []Event
}

// Rule is what was broken.
type Rule string

// The rules, each named as its violation.
const (
	Lost          Rule = "an acknowledged write is not stored"
	Undeleted     Rule = "an acknowledged deletion did not happen"
	Resurrected   Rule = "a refused write is stored"
	Twice         Rule = "a write is stored twice"
	Unasked       Rule = "a change is stored that nobody asked for"
	Torn          Rule = "an object is of two writes at once"
	Reused        Rule = "a resourceVersion was given twice"
	Backwards     Rule = "a resourceVersion is older than one acknowledged before"
	Overwritten   Rule = "a write replaced what it had not read"
	DoubleCreate  Rule = "a duplicate create was acknowledged"
	Stale         Rule = "a read missed a write that was acknowledged before it"
	Fiction       Rule = "a read found what was never stored"
	NoMoment      Rule = "a list is of no one moment"
	TooOld        Rule = "a read is older than it was asked to be"
	Receding      Rule = "a list is older than one that had ended before it began"
	OtherVersion  Rule = "a list is of another version than it was asked for"
	NoOrder       Rule = "the requests for an object have no order in which their answers are right"
	EventDropped  Rule = "a watch missed an event"
	EventReorder  Rule = "a watch saw events out of order"
	EventInvented Rule = "a watch saw an event that did not happen"
	EventDiffers  Rule = "a watch saw an event otherwise than it happened"
)

// Violation is one rule that was broken, and where.
type Violation struct {
	Rule   Rule
	Detail string
}

func (v Violation) String() string { return string(v.Rule) + ": " + v.Detail }

// Check returns what is wrong with a history, nothing when it is well.
func Check(h History) []Violation {
	j := newJudge(h)
	j.judgeStored()
	j.judgeWrites()
	j.judgeClock()
	j.judgeReads()
	j.judgeOrder()
	j.judgeListOrder()
	for _, l := range h.Lists {
		j.judgeList(l)
	}
	for _, w := range h.Watches {
		j.judgeWatch(w)
	}
	return j.found
}

// judge has the history at hand in the forms in which the rules ask for it.
type judge struct {
	History
	byVersion map[int64]Event
	byKey     map[string][]Event // in the order of the store
	byValue   map[string]Event   // of creations and changes
	found     []Violation
}

func newJudge(h History) *judge {
	j := &judge{History: h, byVersion: map[int64]Event{}, byKey: map[string][]Event{}, byValue: map[string]Event{}}
	for _, e := range h.Stored {
		if _, there := j.byVersion[e.Version]; there {
			j.find(Reused, "%d is that of two stored changes, the second of %s", e.Version, e.Key)
		}
		j.byVersion[e.Version] = e
		j.byKey[e.Key] = append(j.byKey[e.Key], e)
		if e.Kind == Deleted {
			continue
		}
		if first, there := j.byValue[e.Value]; there {
			j.find(Twice, "%s at %d and %d", e.Value, first.Version, e.Version)
		}
		j.byValue[e.Value] = e
	}
	return j
}

func (j *judge) find(rule Rule, detail string, args ...any) {
	j.found = append(j.found, Violation{rule, fmt.Sprintf(detail, args...)})
}

// before is the change of a key that was in force at a version; false when there was none yet.
func (j *judge) before(key string, version int64) (Event, bool) {
	changes := j.byKey[key]
	i, _ := slices.BinarySearchFunc(changes, version, func(e Event, v int64) int {
		if e.Version <= v {
			return -1
		}
		return 1
	})
	if i == 0 {
		return Event{}, false
	}
	return changes[i-1], true
}
