package consistency

import (
	"cmp"
	"maps"
	"slices"
)

// done is an acknowledged write with the time at which its writer received the response.
type done struct {
	end, version int64
}

// acknowledged returns the acknowledged writes of each key in the order of their responses. The version of each is the greatest
// version up to it.
func (j *judge) acknowledged() map[string][]done {
	out := map[string][]done{}
	for _, op := range j.Ops {
		if op.Verb == Get || op.Outcome != Acknowledged {
			continue
		}
		version := op.Version
		if op.Verb == Delete {
			version = j.deletionOf(op)
		}
		out[op.Key] = append(out[op.Key], done{op.End, version})
	}
	for _, writes := range out {
		slices.SortFunc(writes, func(a, b done) int { return cmp.Compare(a.end, b.end) })
		for i := 1; i < len(writes); i++ {
			writes[i].version = max(writes[i].version, writes[i-1].version)
		}
	}
	return out
}

// knownAt returns the newest version that was acknowledged before a moment, 0 if there is none.
func knownAt(writes []done, moment int64) int64 {
	i, _ := slices.BinarySearchFunc(writes, moment, func(d done, m int64) int { return cmp.Compare(d.end, m) })
	if i == 0 {
		return 0
	}
	return writes[i-1].version
}

// shownBefore returns the newest version of a key that a server had returned for Any reads that ended before op began.
func (j *judge) shownBefore(op Op) int64 {
	if op.Server == "" {
		return 0
	}
	var newest int64
	for _, o := range j.Ops {
		if o.Verb == Get && o.Server == op.Server && o.Key == op.Key && o.Asked == Any && o.End < op.Start {
			newest = max(newest, o.Version)
		}
	}
	return newest
}

// judgeReads checks that every read is as recent as its consistency requires and returns only states that existed. Latest reads
// must include every write that was acknowledged before they began.
func (j *judge) judgeReads() {
	written := j.acknowledged()
	for _, op := range j.Ops {
		if op.Verb != Get || op.Outcome != Acknowledged {
			continue
		}
		if op.Asked != Latest {
			j.judgeOldRead(op)
			continue
		}
		known := knownAt(written[op.Key], op.Start)
		if op.Version == 0 {
			j.judgeAbsence(op.Key, known)
			continue
		}
		j.judgeItem(op.Key, Item{op.Value, op.Version}, known)
	}
	for _, l := range j.Lists {
		switch {
		case l.Asked == AtLeast && l.Version < l.At:
			j.find(TooOld, "a list at %d, which was to be at least at %d", l.Version, l.At)
		case l.Asked == Exactly && l.Version != l.At:
			j.find(OtherVersion, "a list at %d, which was to be at %d", l.Version, l.At)
		}
		if l.Asked != Latest {
			continue
		}
		for key, writes := range written {
			if known := knownAt(writes, l.Start); known > l.Version {
				j.find(Stale, "a list at %d without %s at %d", l.Version, key, known)
			}
		}
	}
}

// judgeListOrder checks that each list of the latest state is at least as recent as every such list that ended before it began,
// regardless of the replicas that served them.
func (j *judge) judgeListOrder() {
	var latest []List
	for _, l := range j.Lists {
		if l.Asked == Latest {
			latest = append(latest, l)
		}
	}
	byEnd := slices.SortedFunc(slices.Values(latest), func(a, b List) int { return cmp.Compare(a.End, b.End) })
	slices.SortFunc(latest, func(a, b List) int { return cmp.Compare(a.Start, b.Start) })
	var newest int64 // newest version in the lists that ended before l began
	next := 0
	for _, l := range latest {
		for ; next < len(byEnd) && byEnd[next].End < l.Start; next++ {
			newest = max(newest, byEnd[next].Version)
		}
		if l.Version < newest {
			j.find(Receding, "a list at %d after one at %d", l.Version, newest)
		}
	}
}

// judgeOldRead checks a read that may miss acknowledged writes, except those up to the version that it requires.
func (j *judge) judgeOldRead(op Op) {
	if shown := j.shownBefore(op); op.Asked == Any && (op.Version != 0 && op.Version < shown || op.Version == 0 && shown != 0 && !j.deletedAfter(op.Key, shown)) {
		j.find(Regressing, "%s was read from %s at %d, and had been read at %d", op.Key, op.Server, op.Version, shown)
	}
	if op.Version == 0 {
		if op.Asked == AtLeast {
			if now, ok := j.before(op.Key, op.At); ok && now.Kind != Deleted && !j.deletedAfter(op.Key, op.At) {
				j.find(TooOld, "%s was not found, and had been at %d, which was asked for", op.Key, now.Version)
			}
		}
		return
	}
	j.judgeItem(op.Key, Item{op.Value, op.Version}, 0)
	if op.Asked != AtLeast {
		return
	}
	for _, e := range j.byKey[op.Key] {
		if e.Version > op.Version && e.Version <= op.At {
			j.find(TooOld, "%s was read at %d, and had been at %d, which was asked for", op.Key, op.Version, e.Version)
			return
		}
	}
}

func (j *judge) deletedAfter(key string, version int64) bool {
	return slices.ContainsFunc(j.byKey[key], func(e Event) bool { return e.Kind == Deleted && e.Version > version })
}

// judgeAbsence checks a read that did not find a key. known is the newest acknowledged version of the key: the key must have been
// deleted at this version or later, or not have existed yet.
func (j *judge) judgeAbsence(key string, known int64) {
	if known == 0 {
		return
	}
	if now, ok := j.before(key, known); ok && now.Kind == Deleted {
		return
	}
	if !j.deletedAfter(key, known) {
		j.find(Stale, "%s was not found, and had been at %d", key, known)
	}
}

func (j *judge) judgeItem(key string, read Item, known int64) {
	e, stored := j.byVersion[read.Version]
	if !stored || e.Key != key || e.Kind == Deleted || e.Value != read.Value {
		j.find(Fiction, "%s as %q at %d", key, read.Value, read.Version)
	}
	if read.Version < known {
		j.find(Stale, "%s was read at %d, and had been at %d", key, read.Version, known)
	}
}

// judgeList checks that a list equals the state of the store at its version.
func (j *judge) judgeList(l List) {
	want := map[string]Item{}
	for key := range j.byKey {
		if e, ok := j.before(key, l.Version); ok && e.Kind != Deleted {
			want[key] = Item{e.Value, e.Version}
		}
	}
	if maps.Equal(want, l.Items) {
		return
	}
	for key, item := range want {
		if l.Items[key] != item {
			j.find(NoMoment, "at %d %s was %v, and listed as %v", l.Version, key, item, l.Items[key])
		}
	}
	for key, item := range l.Items {
		if _, ok := want[key]; !ok {
			j.find(NoMoment, "at %d %s was not there, and listed as %v", l.Version, key, item)
		}
	}
}

// judgeWatch checks that a watch received every change between From and Until exactly once, in order and unchanged.
func (j *judge) judgeWatch(w Watch) {
	seen := map[int64]bool{}
	last := w.From
	for _, e := range w.Events {
		if e.Version <= last {
			j.find(EventReorder, "%s: %s of %s at %d after %d", w.Name, e.Kind, e.Key, e.Version, last)
		}
		last = max(last, e.Version)
		seen[e.Version] = true
		happened, ok := j.byVersion[e.Version]
		switch {
		case !ok:
			j.find(EventInvented, "%s: %s of %s at %d", w.Name, e.Kind, e.Key, e.Version)
		case e.Torn:
			j.find(Torn, "%s: %s at %d", w.Name, e.Key, e.Version)
		case e.Kind != happened.Kind || e.Key != happened.Key || e.Value != happened.Value:
			j.find(EventDiffers, "%s: %v, and %v happened", w.Name, e, happened)
		}
	}
	for _, e := range j.Stored {
		if e.Version > w.From && e.Version <= w.Until && !seen[e.Version] {
			j.find(EventDropped, "%s: %s of %s at %d, between %d and %d", w.Name, e.Kind, e.Key, e.Version, w.From, w.Until)
		}
	}
}
