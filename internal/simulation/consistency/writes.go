package consistency

import (
	"cmp"
	"slices"
)

// judgeStored checks the store alone: versions do not decrease, objects are created, changed and deleted in a valid order, and
// each write names the value that it replaces.
func (j *judge) judgeStored() {
	var last int64
	for _, e := range j.Stored {
		if e.Version < last {
			j.find(Backwards, "the store has %d after %d", e.Version, last)
		}
		last = max(last, e.Version)
		if e.Torn {
			j.find(Torn, "%s at %d", e.Key, e.Version)
		}
	}
	for key, changes := range j.byKey {
		var now *Event
		for i := range changes {
			e := &changes[i]
			exists := now != nil && now.Kind != Deleted
			switch {
			case e.Kind == Added && exists:
				j.find(DoubleCreate, "%s was created at %d although it had been there since %d", key, e.Version, now.Version)
			case e.Kind == Modified && (!exists || !e.Unconditional && e.After != now.Value):
				j.find(Overwritten, "%s: %s at %d says that it replaces %q", key, e.Value, e.Version, e.After)
			case e.Kind == Deleted && (!exists || e.Value != now.Value):
				j.find(Overwritten, "%s was deleted at %d as %q", key, e.Version, e.Value)
			}
			now = e
		}
	}
}

// judgeWrites compares the outcomes of the writes with the store.
func (j *judge) judgeWrites() {
	asked := map[string]bool{}
	for _, op := range j.Ops {
		switch op.Verb {
		case Get:
		case Delete:
			if op.Outcome == Acknowledged && j.deletionOf(op) == 0 {
				j.find(Undeleted, "%s of version %d", op.Key, op.Basis)
			}
		default:
			asked[op.Value] = true
			j.judgeWrite(op)
		}
	}
	for value, e := range j.byValue {
		if !asked[value] {
			j.find(Unasked, "%s holds %q at %d", e.Key, value, e.Version)
		}
	}
	j.judgeDeletions()
	j.judgeCreates()
}

// judgeDeletions checks that each deletion was requested, with the version that was deleted.
func (j *judge) judgeDeletions() {
	type of struct {
		key   string
		basis int64
	}
	asked := map[of]bool{}
	for _, op := range j.Ops {
		if op.Verb == Delete && op.Outcome != Refused {
			asked[of{op.Key, op.Basis}] = true
		}
	}
	for key, changes := range j.byKey {
		for i := 1; i < len(changes); i++ {
			if changes[i].Kind == Deleted && !asked[of{key, changes[i-1].Version}] {
				j.find(Unasked, "%s of version %d was deleted at %d", key, changes[i-1].Version, changes[i].Version)
			}
		}
	}
}

func (j *judge) judgeWrite(op Op) {
	e, stored := j.byValue[op.Value]
	switch {
	case op.Outcome == Acknowledged && (!stored || e.Key != op.Key || e.Version != op.Version):
		j.find(Lost, "%s of %s to %q was acknowledged with %d", op.Verb, op.Key, op.Value, op.Version)
	case op.Outcome == Refused && stored:
		j.find(Resurrected, "%s of %s to %q, at %d", op.Verb, op.Key, op.Value, e.Version)
	}
}

// deletionOf returns the version at which the object that op deleted was removed, 0 if it was not.
func (j *judge) deletionOf(op Op) int64 {
	changes := j.byKey[op.Key]
	for i := 1; i < len(changes); i++ {
		if changes[i].Kind == Deleted && changes[i-1].Version == op.Basis {
			return changes[i].Version
		}
	}
	return 0
}

// judgeCreates checks that there is a deletion between any two acknowledged creations of a key.
func (j *judge) judgeCreates() {
	byKey := map[string][]Op{}
	for _, op := range j.Ops {
		if op.Verb == Create && op.Outcome == Acknowledged {
			byKey[op.Key] = append(byKey[op.Key], op)
		}
	}
	for key, creates := range byKey {
		slices.SortFunc(creates, func(a, b Op) int { return cmp.Compare(a.Version, b.Version) })
		for i := 1; i < len(creates); i++ {
			from, to := creates[i-1].Version, creates[i].Version
			between := slices.ContainsFunc(j.byKey[key], func(e Event) bool {
				return e.Kind == Deleted && e.Version > from && e.Version < to
			})
			if !between {
				j.find(DoubleCreate, "%s at %d and %d, and it was not deleted in between", key, from, to)
			}
		}
	}
}

// judgeClock checks that versions increase with time: a write has a greater version than all responses that arrived before it was
// sent.
func (j *judge) judgeClock() {
	given := map[int64]string{}
	var writes []Op
	for _, op := range j.Ops {
		if op.Verb == Get || op.Outcome != Acknowledged {
			continue
		}
		if op.Version != 0 {
			if first, there := given[op.Version]; there {
				j.find(Reused, "%d was the answer to a write of %q and to one of %q", op.Version, first, op.Value)
			}
			given[op.Version] = op.Value
			writes = append(writes, op)
		}
	}
	byEnd := slices.SortedFunc(slices.Values(writes), func(a, b Op) int { return cmp.Compare(a.End, b.End) })
	slices.SortFunc(writes, func(a, b Op) int { return cmp.Compare(a.Start, b.Start) })
	var newest Op // the newest write that ended before op began
	next := 0
	for _, op := range writes {
		for ; next < len(byEnd) && byEnd[next].End < op.Start; next++ {
			if byEnd[next].Version > newest.Version {
				newest = byEnd[next]
			}
		}
		if op.Version < newest.Version {
			j.find(Backwards, "%s was answered with %d after %s had been with %d", op.Key, op.Version, newest.Key, newest.Version)
		}
	}
}
