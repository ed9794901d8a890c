package consistency

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// simulate is a correct store under a few clients. Some answers are lost, so that their requests are of unknown outcome.
func simulate(seed uint64) History {
	s := &simulation{random: rand.New(rand.NewPCG(seed, seed)), now: map[string]Item{}, version: 10}
	for range 400 {
		s.step()
	}
	h := s.History
	for i, from := range []int64{0, 10, h.Stored[50].Version} {
		until := h.Stored[len(h.Stored)-1-i].Version
		w := Watch{Name: fmt.Sprintf("watch %d", i), From: from, Until: until}
		for _, e := range h.Stored {
			if e.Version > from && e.Version <= until {
				w.Events = append(w.Events, e)
			}
		}
		h.Watches = append(h.Watches, w)
	}
	return h
}

type simulation struct {
	History
	random  *rand.Rand
	now     map[string]Item
	version int64
	clock   int64
	serial  int
	past    []List
}

func (s *simulation) step() {
	key := fmt.Sprintf("key %d", s.random.IntN(4))
	there, exists := s.now[key]
	s.clock += 10
	op := Op{Key: key, Basis: there.Version, Replaces: there.Value, Outcome: Acknowledged, Start: s.clock, End: s.clock + 5}
	switch n := s.random.IntN(10); {
	case n < 2:
		op.Verb, op.Basis, op.Replaces, op.Value, op.Version = Get, 0, "", there.Value, there.Version
		s.Ops = append(s.Ops, op)
		s.readPast(key, op)
		return
	case n == 2:
		s.Lists = append(s.Lists, List{Version: s.version, Items: maps.Clone(s.now), Start: op.Start, End: op.End})
		s.past = append(s.past, s.Lists[len(s.Lists)-1])
		return
	case exists && n < 5:
		op.Verb = Delete
	case exists && n < 7:
		op.Verb = Patch
	case exists:
		op.Verb = Update
	default:
		op.Verb = Create
	}
	if op.Verb != Delete {
		s.serial++
		op.Value = fmt.Sprintf("value %d", s.serial)
	}
	outcome := s.random.IntN(20)
	if outcome == 0 { // a conflict
		op.Outcome = Refused
	}
	if outcome == 1 || outcome == 2 {
		op.Outcome = Unknown
	}
	if outcome > 1 {
		s.store(&op, there)
	}
	if op.Outcome != Acknowledged || op.Verb == Delete {
		op.Version = 0
	}
	s.Ops = append(s.Ops, op)
}

// readPast reads and lists at a past version, with each of the read options.
func (s *simulation) readPast(key string, op Op) {
	if len(s.past) == 0 {
		return
	}
	then := s.past[s.random.IntN(len(s.past))]
	op.Value, op.Version = then.Items[key].Value, then.Items[key].Version
	for _, asked := range []Asked{Any, AtLeast, Exactly} {
		l := then
		l.Start, l.End, l.Asked, l.At = op.Start, op.End, asked, then.Version
		op.Asked, op.At = asked, then.Version
		if asked == AtLeast {
			l.At -= int64(s.random.IntN(3))
		}
		s.Lists = append(s.Lists, l)
		if asked != Exactly {
			s.Ops = append(s.Ops, op)
		}
	}
}

func (s *simulation) store(op *Op, there Item) {
	s.version += 1 + int64(s.random.IntN(3))
	op.Version = s.version
	e := Event{Kind: Modified, Key: op.Key, Version: s.version, Value: op.Value, After: there.Value}
	switch op.Verb {
	case Create:
		e.Kind = Added
	case Delete:
		e.Kind, e.Value, e.After = Deleted, there.Value, ""
	}
	s.Stored = append(s.Stored, e)
	if op.Verb == Delete {
		delete(s.now, op.Key)
		return
	}
	s.now[op.Key] = Item{op.Value, s.version}
}

func TestAGoodHistoryHasNoViolations(t *testing.T) {
	for seed := range uint64(50) {
		if found := Check(simulate(seed)); len(found) > 0 {
			t.Fatalf("violations in a valid history of seed %d = %v, want none", seed, found)
		}
	}
	if found := Check(History{}); len(found) > 0 {
		t.Errorf("violations in an empty history = %v, want none", found)
	}
}

// An update without a resourceVersion replaces any version.
func TestUnconditionalUpdateReplacesAnyVersion(t *testing.T) {
	for seed := range uint64(50) {
		h := simulate(seed)
		for i := range h.Ops {
			if op := &h.Ops[i]; op.Verb == Update {
				op.Unconditional, op.Basis, op.Replaces = true, 0, ""
			}
		}
		for i := range h.Stored {
			e := &h.Stored[i]
			if e.Kind != Deleted && slices.ContainsFunc(h.Ops, func(op Op) bool { return op.Unconditional && op.Value == e.Value }) {
				e.Unconditional, e.After = true, ""
			}
		}
		h.Watches = nil // they have the events as they were
		if found := Check(h); len(found) > 0 {
			t.Fatalf("violations in a valid history of seed %d = %v, want none", seed, found)
		}
	}
}

// mutants are stores and watches that are wrong in one way. Each is to be found out, and by its name.
var mutants = []struct {
	name  string
	rule  Rule
	spoil func(h *History)
}{
	{"an event is dropped", EventDropped, func(h *History) {
		w := &h.Watches[1]
		w.Events = slices.Delete(w.Events, 30, 31)
	}},
	{"the last event before a bookmark is dropped", EventDropped, func(h *History) {
		w := &h.Watches[2]
		w.Events = w.Events[:len(w.Events)-1]
	}},
	{"two events are reordered", EventReorder, func(h *History) {
		e := h.Watches[0].Events
		e[20], e[21] = e[21], e[20]
	}},
	{"an event comes twice", EventReorder, func(h *History) {
		w := &h.Watches[0]
		w.Events = slices.Insert(w.Events, 20, w.Events[19])
	}},
	{"an event is invented", EventInvented, func(h *History) {
		w := &h.Watches[0]
		e := w.Events[len(w.Events)-1]
		e.Version++
		w.Events = append(w.Events, e)
	}},
	{"an event shows the object as it was before", EventDiffers, func(h *History) {
		e := &h.Watches[0].Events[h.index(Modified)]
		e.Value = e.After
	}},
	{"a change is told as a creation", EventDiffers, func(h *History) { h.Watches[0].Events[h.index(Modified)].Kind = Added }},
	{"a write is acknowledged before it is stored, and the store dies", Lost, func(h *History) {
		at := slices.IndexFunc(h.Ops, func(op Op) bool { return op.Verb == Create && op.Outcome == Acknowledged })
		op := h.Ops[at]
		op.Key, op.Value, op.Version = "nowhere", "never stored", op.Version+100_000
		op.Start, op.End = h.later()
		h.Ops = append(h.Ops, op)
	}},
	{"a write is acknowledged with the version of another", Lost, func(h *History) {
		h.Ops[h.write(Update)].Version++
	}},
	{"a deletion is acknowledged and not made", Undeleted, func(h *History) {
		start, end := h.later()
		key, there := h.last()
		h.Ops = append(h.Ops, Op{Verb: Delete, Key: key, Basis: there.Version, Outcome: Acknowledged, Start: start, End: end})
	}},
	{"a refused write is made", Resurrected, func(h *History) { h.Ops[h.write(Patch)].Outcome = Refused }},
	{"a write is made again on a retry", Twice, func(h *History) {
		e := h.Stored[len(h.Stored)-1]
		if e.Kind == Deleted {
			e = h.Stored[h.index(Modified)]
		}
		e.Version = h.Stored[len(h.Stored)-1].Version + 1
		h.Stored = append(h.Stored, e)
	}},
	{"something is stored that nobody wrote", Unasked, func(h *History) {
		at := h.write(Create)
		h.Ops = slices.Delete(h.Ops, at, at+1)
	}},
	{"an object goes that nobody deleted", Unasked, func(h *History) {
		key, there := h.last()
		h.Stored = append(h.Stored, Event{Kind: Deleted, Key: key, Value: there.Value, Version: h.Stored[len(h.Stored)-1].Version + 1})
	}},
	{"an object is half of one write and half of another", Torn, func(h *History) { h.Stored[40].Torn = true }},
	{"a resourceVersion is used again", Reused, func(h *History) { h.Stored[31].Version = h.Stored[30].Version }},
	{"two writers are given one resourceVersion", Reused, func(h *History) {
		h.Ops[h.write(Patch)].Version = h.Ops[h.write(Update)].Version
	}},
	{"resourceVersions begin anew after a restart", Backwards, func(h *History) {
		start, end := h.later()
		h.Ops = append(h.Ops, Op{Verb: Create, Key: "new", Value: "new", Version: 3, Outcome: Acknowledged, Start: start, End: end})
		h.Stored = slices.Insert(h.Stored, 0, Event{Kind: Added, Key: "new", Value: "new", Version: 3})
	}},
	{"a write replaces what its writer has not read", Overwritten, func(h *History) {
		e := &h.Stored[h.index(Modified)]
		e.After = "something older"
	}},
	{"a duplicate create is acknowledged", DoubleCreate, func(h *History) {
		start, end := h.later()
		key, _ := h.last()
		version := h.Stored[len(h.Stored)-1].Version + 1
		h.Ops = append(h.Ops, Op{Verb: Create, Key: key, Value: "again", Version: version, Outcome: Acknowledged, Start: start, End: end})
		h.Stored = append(h.Stored, Event{Kind: Added, Key: key, Value: "again", Version: version})
	}},
	{"a duplicate create is acknowledged and does nothing", DoubleCreate, func(h *History) {
		at := slices.IndexFunc(h.Ops, func(op Op) bool { return op.Verb == Create && op.Outcome == Acknowledged })
		op := h.Ops[at]
		op.Value, op.Version = "again", op.Version+1
		h.Ops = append(h.Ops, op)
	}},
	{"a read is stale after an acknowledged write", Stale, func(h *History) {
		start, end := h.later()
		e := h.Stored[h.index(Modified)] // and so not the first of its key
		for _, earlier := range h.Stored {
			if earlier.Key == e.Key && earlier.Value == e.After && earlier.Kind != Deleted {
				h.Ops = append(h.Ops, Op{Verb: Get, Key: e.Key, Value: earlier.Value, Version: earlier.Version, Outcome: Acknowledged, Start: start, End: end})
				return
			}
		}
	}},
	{"a read does not find what was acknowledged", Stale, func(h *History) {
		start, end := h.later()
		key, _ := h.last()
		h.Ops = append(h.Ops, Op{Verb: Get, Key: key, Outcome: Acknowledged, Start: start, End: end})
	}},
	{"a read from a cache is older than it was asked to be", TooOld, func(h *History) {
		start, end := h.later()
		e := h.Stored[h.index(Modified)]
		for _, earlier := range h.Stored {
			if earlier.Key == e.Key && earlier.Value == e.After && earlier.Kind != Deleted {
				h.Ops = append(h.Ops, Op{Verb: Get, Key: e.Key, Value: earlier.Value, Version: earlier.Version, Outcome: Acknowledged, Asked: AtLeast, At: e.Version, Start: start, End: end})
				return
			}
		}
	}},
	{"a read from a cache does not find what was asked for", TooOld, func(h *History) {
		start, end := h.later()
		key, there := h.last()
		h.Ops = append(h.Ops, Op{Verb: Get, Key: key, Outcome: Acknowledged, Asked: AtLeast, At: there.Version, Start: start, End: end})
	}},
	{"a read from a cache finds what was never stored", Fiction, func(h *History) {
		at := slices.IndexFunc(h.Ops, func(op Op) bool { return op.Asked == Any && op.Version != 0 })
		h.Ops[at].Value = "never stored"
	}},
	{"a read from a cache is older than an earlier one", Regressing, func(h *History) {
		start, end := h.later()
		e := h.Stored[h.index(Modified)]
		for _, version := range []int64{e.Version, e.Version - 1} {
			h.Ops = append(h.Ops, Op{Verb: Get, Key: e.Key, Value: e.Value, Version: version, Outcome: Acknowledged, Asked: Any, Server: "a", Start: start, End: end})
			start, end = start+10, end+10
		}
	}},
	{"an unconditional update creates an object", Overwritten, func(h *History) {
		e := &h.Stored[slices.IndexFunc(h.Stored, func(e Event) bool { return e.Kind == Added })]
		e.Kind, e.Unconditional = Modified, true
	}},
	{"an unconditional update of an object that does not exist is acknowledged", NoOrder, func(h *History) {
		op := &h.Ops[slices.IndexFunc(h.Ops, func(op Op) bool { return op.Verb == Create && op.Outcome == Acknowledged })]
		op.Verb, op.Unconditional = Update, true
	}},
	{"a list from a cache is older than it was asked to be", TooOld, func(h *History) {
		at := slices.IndexFunc(h.Lists, func(l List) bool { return l.Asked == AtLeast })
		h.Lists[at].At = h.Lists[at].Version + 1
	}},
	{"a list from a cache mixes two moments", NoMoment, func(h *History) {
		l := &h.Lists[slices.IndexFunc(h.Lists, func(l List) bool { return l.Asked == Any && len(l.Items) > 0 })]
		key := slices.Sorted(maps.Keys(l.Items))[0]
		l.Items = maps.Clone(l.Items)
		l.Items[key] = Item{"older", l.Items[key].Version - 1}
	}},
	{"a list is of a later version than that which was asked for", OtherVersion, func(h *History) {
		at := slices.IndexFunc(h.Lists, func(l List) bool { return l.Asked == Exactly })
		h.Lists[at].At--
	}},
	{"a client that goes to another replica sees an older value again", NoOrder, func(h *History) {
		start, end := h.later()
		e := h.Stored[h.index(Modified)]
		h.Ops = append(h.Ops, Op{Verb: Get, Key: e.Key, Value: e.After, Version: e.Version, Outcome: Acknowledged, Start: start, End: end})
	}},
	{"two writes that replace the same value are acknowledged", NoOrder, func(h *History) {
		op := h.Ops[h.write(Update)]
		op.Value = "the second"
		h.Ops = append(h.Ops, op)
	}},
	{"a list is stale after an acknowledged write", Stale, func(h *History) {
		l := h.Lists[slices.IndexFunc(h.Lists, func(l List) bool { return l.Asked == Latest })]
		l.Start, l.End = h.later()
		h.Lists = append(h.Lists, l)
	}},
	{"a client that goes to another replica lists an older state again", Receding, func(h *History) {
		first := h.Lists[slices.IndexFunc(h.Lists, func(l List) bool { return l.Asked == Latest })]
		first.Start, first.End = h.later()
		newest := h.Lists[0]
		for _, l := range h.Lists {
			if l.Asked == Latest && l.Version > newest.Version {
				newest = l
			}
		}
		newest.Start, newest.End = first.Start-2, first.Start-1
		h.Lists = append(h.Lists, newest, first)
	}},
	{"a read finds what was never stored", Fiction, func(h *History) {
		at := slices.IndexFunc(h.Ops, func(op Op) bool { return op.Verb == Get && op.Asked == Latest && op.Version != 0 })
		h.Ops[at].Value = "never stored"
	}},
	{"a list mixes two moments", NoMoment, func(h *History) {
		l := h.full()
		key := slices.Sorted(maps.Keys(l.Items))[0]
		l.Items = maps.Clone(l.Items)
		l.Items[key] = Item{"older", l.Items[key].Version - 1}
	}},
	{"a list has an item that was deleted", NoMoment, func(h *History) {
		l := h.full()
		l.Items = maps.Clone(l.Items)
		l.Items["key of before"] = Item{"value", 11}
	}},
}

// index is the first stored event of a kind after the beginning.
func (h *History) index(kind Kind) int {
	return 20 + slices.IndexFunc(h.Stored[20:], func(e Event) bool { return e.Kind == kind })
}

// full is the last list with items.
func (h *History) full() *List {
	for i := range slices.Backward(h.Lists) {
		if len(h.Lists[i].Items) > 0 {
			return &h.Lists[i]
		}
	}
	panic("all lists are empty")
}

// write is the first acknowledged request of a verb after the beginning.
func (h *History) write(verb Verb) int {
	return 60 + slices.IndexFunc(h.Ops[60:], func(op Op) bool { return op.Verb == verb && op.Outcome == Acknowledged })
}

// last is an object that is there at the end, by an acknowledged write.
func (h *History) last() (string, Item) {
	for _, op := range slices.Backward(h.Ops) {
		if op.Verb != Create && op.Verb != Update && op.Verb != Patch || op.Outcome != Acknowledged {
			continue
		}
		later := slices.ContainsFunc(h.Stored, func(e Event) bool { return e.Key == op.Key && e.Version > op.Version })
		if !later {
			return op.Key, Item{op.Value, op.Version}
		}
	}
	panic("nothing is left")
}

// later returns a time span after all operations.
func (h *History) later() (start, end int64) {
	end = h.Ops[len(h.Ops)-1].End
	return end + 1000, end + 1001
}

func TestEachMutantIsCaughtAndNamed(t *testing.T) {
	caught := map[Rule]bool{}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			for seed := range uint64(5) {
				h := simulate(seed)
				m.spoil(&h)
				found := Check(h)
				if !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == m.rule }) {
					t.Fatalf("seed %d: want %q, found %v", seed, m.rule, found)
				}
			}
		})
		caught[m.rule] = true
	}
	for _, rule := range []Rule{Lost, Undeleted, Resurrected, Twice, Unasked, Torn, Reused, Backwards, Overwritten, DoubleCreate,
		Stale, Fiction, NoMoment, TooOld, Regressing, Receding, OtherVersion, NoOrder, EventDropped, EventReorder, EventInvented, EventDiffers} {
		if !caught[rule] {
			t.Errorf("no mutant breaks the rule %q, want at least one", rule)
		}
	}
}
