// Package consistency checks the observations of a store's clients against the content of the store.
//
// A history is recorded while writers, readers and watchers run and faults occur. Every write puts a unique value into its
// object, and names the value that it replaces. Each version of an object can therefore be traced to one request, and the order
// of two requests is not ambiguous. Check is a pure function: equal histories have equal violations, and tests corrupt a history
// to verify that Check detects it.
package consistency

import (
	"fmt"
	"slices"
)

// Verb is the operation of a request.
type Verb string

// The verbs. Update and Patch replace the version in Basis, and Delete removes it.
const (
	Create Verb = "create"
	Update Verb = "update"
	Patch  Verb = "patch"
	Delete Verb = "delete"
	Get    Verb = "get"
)

// Outcome is the client's view of a completed request.
type Outcome string

const (
	// Acknowledged requests received a success response.
	Acknowledged Outcome = "acknowledged"
	// Refused requests received an error that guarantees that nothing was written, such as a conflict.
	Refused Outcome = "refused"
	// Unknown requests received a timeout or no response. They may have been executed, at most once.
	Unknown Outcome = "unknown"
)

// Asked is the consistency that a read requires, from its resourceVersion and resourceVersionMatch.
type Asked string

const (
	// Latest reads include every write that was acknowledged before they began: no resourceVersion.
	Latest Asked = ""
	// Any reads return the state at any earlier time: resourceVersion 0.
	Any Asked = "any"
	// AtLeast reads return the state at a version or later.
	AtLeast Asked = "at least"
	// Exactly reads return the state at a version.
	Exactly Asked = "exactly"
)

// Op is one request of a client.
type Op struct {
	Verb Verb
	Key  string
	// Value is the value written or read; empty for a deletion and for a read of an object that does not exist.
	Value string
	// Basis is the version that is replaced or deleted, 0 for a creation. Replaces is the value of that version.
	Basis    int64
	Replaces string
	// Unconditional updates replace any version. They have no Basis.
	Unconditional bool
	Outcome       Outcome
	// Asked and At are the required consistency and version of a Get.
	Asked Asked
	At    int64
	// Server is the process that answered a read of Any state. It is empty if reads at one server may go back in time.
	Server string
	// Version is the version in the response; 0 if it has none, as for a deletion.
	Version int64
	// Start and End are times of one clock: the request was sent after Start, and its response arrived before End.
	Start, End int64
}

// Kind is the type of an event.
type Kind string

// The kinds of events.
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
	// Value is the value of the object, for a deletion its last value.
	Value string
	// After is the value that was replaced; empty for a creation.
	After string
	// Unconditional reports that the write replaces any value. After is empty.
	Unconditional bool
	// Torn reports that the object is inconsistent: a part of it comes from another write.
	Torn bool
}

// Watch contains the events of one watch, from the version after From to its last event or bookmark, at Until.
type Watch struct {
	Name        string
	From, Until int64
	Events      []Event
}

// List is the result of one list, with all its pages. The initial objects of a watch count as a list too.
type List struct {
	Version    int64
	Items      map[string]Item
	Start, End int64
	// Asked and At are the required consistency and version.
	Asked Asked
	At    int64
}

// Item is an object in a list.
type Item struct {
	Value   string
	Version int64
}

// History contains everything that was recorded.
type History struct {
	Ops     []Op
	Watches []Watch
	Lists   []List
	// Stored contains every change in the order of the store, beginning with the first.
	Stored []Event
}

// Rule is a rule that a violation breaks.
type Rule string

// The rules. Each is named after its violation.
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
	Regressing    Rule = "a read is older than one that the same server had answered before it began"
	Receding      Rule = "a list is older than one that had ended before it began"
	OtherVersion  Rule = "a list is of another version than it was asked for"
	NoOrder       Rule = "the requests for an object have no order in which their answers are right"
	EventDropped  Rule = "a watch missed an event"
	EventReorder  Rule = "a watch saw events out of order"
	EventInvented Rule = "a watch saw an event that did not happen"
	EventDiffers  Rule = "a watch saw an event otherwise than it happened"
)

// Violation is a broken rule with its details.
type Violation struct {
	Rule   Rule
	Detail string
}

func (v Violation) String() string { return string(v.Rule) + ": " + v.Detail }

// Check returns the violations in a history, nil if there are none.
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

// judge holds a history and the indexes that the rules use.
type judge struct {
	History
	byVersion map[int64]Event
	byKey     map[string][]Event // in the order of the store
	byValue   map[string]Event   // of creations and updates
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

// before returns the last change of a key at or before a version. It returns false if there is no such change.
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
