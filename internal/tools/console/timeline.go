package console

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// maxMoments bounds the timeline. The oldest entries are dropped.
	maxMoments = 500
	// sameChange is the maximum difference between the times that a replica and the condition report for one change.
	sameChange = 5 * time.Second
	// earlier is the maximum age of changes from before the start of the console. Changes for the worse that still
	// apply are shown regardless of their age.
	earlier = time.Hour
)

// timeline lists changes, latest first.
type timeline struct {
	moments []moment
	// events counts the occurrences of each Event by UID, so that a repeated Event moves to the top.
	events map[string]int32
}

// add inserts an entry at its place. It reports whether the entry is new.
func (t *timeline) add(m moment) bool {
	for i := range t.moments {
		o := &t.moments[i]
		if o.Object != m.Object || o.Name != m.Name || o.Kind == "event" || m.Kind == "event" || o.To != m.To {
			continue
		}
		same := o.Kind == m.Kind && o.What == m.What && o.At.Equal(m.At)
		// The Available condition reports the finding of the replica that writes it, so both entries describe one
		// change. The verdict is more specific.
		both := o.Kind != m.Kind && (o.What == "Available" || m.What == "Available") && o.At.Sub(m.At).Abs() <= sameChange
		if same {
			return false
		}
		if both {
			if m.Kind == "condition" {
				return false
			}
			*o = m
			t.sort()
			return true
		}
	}
	t.moments = append(t.moments, m)
	t.sort()
	return true
}

func (t *timeline) sort() {
	slices.SortStableFunc(t.moments, func(a, b moment) int { return b.At.Compare(a.At) })
	if len(t.moments) > maxMoments {
		t.moments = t.moments[:maxMoments]
	}
}

// changed adds the conditions of an object that differ from before. before is nil if the object was not known.
func (t *timeline) changed(object, name string, before, now []condition, known bool, at time.Time) (added bool) {
	for _, c := range now {
		was := find(before, c.Type)
		since := c.Since
		if since.IsZero() || since.After(at) {
			since = at
		}
		m := moment{At: since, Kind: "condition", Object: object, Name: name, What: c.Type, To: c.Status, Reason: c.Reason, Message: causeFirst(c.Message), Bad: c.Bad, Good: !c.Bad && wellWhen[c.Type] != ""}
		switch {
		case known && was.Status != c.Status:
			m.From = was.Status
		case known || !c.Bad && at.Sub(since) > earlier:
			continue
		}
		if t.add(m) {
			added = true
		}
	}
	return added
}

// addEvents adds Events. It adds an Event again if it was repeated.
func (t *timeline) addEvents(all []corev1.Event) (added bool) {
	seen := make(map[string]int32, len(all))
	for i := range all {
		e := &all[i]
		id, count := string(e.UID), e.Count
		at := e.LastTimestamp.Time
		if e.Series != nil {
			count, at = e.Series.Count, e.Series.LastObservedTime.Time
		}
		if at.IsZero() {
			at = e.EventTime.Time
		}
		seen[id] = count
		if was, known := t.events[id]; known && was == count {
			continue
		}
		message := causeFirst(e.Message)
		t.moments = slices.DeleteFunc(t.moments, func(m moment) bool {
			return m.Kind == "event" && m.Object == e.InvolvedObject.Kind && m.Name == e.InvolvedObject.Name && m.Reason == e.Reason && m.Message == message
		})
		added = true
		t.moments = append(t.moments, moment{
			At: at, Kind: "event", Object: e.InvolvedObject.Kind, Name: e.InvolvedObject.Name, Reason: e.Reason, Message: message, Count: count,
			Bad: e.Type == corev1.EventTypeWarning, Good: e.Type != corev1.EventTypeWarning && e.Reason == "BackendAvailable",
		})
	}
	t.events = seen
	if added {
		t.sort()
	}
	return added
}

// entriesAbout returns the entries about an object.
func (t *timeline) entriesAbout(object, name string) []moment {
	var out []moment
	for _, m := range t.moments {
		if m.Object == object && m.Name == name {
			out = append(out, m)
		}
	}
	return out
}
