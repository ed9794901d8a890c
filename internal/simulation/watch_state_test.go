package simulation

import (
	"strings"
	"testing"
)

// TestBrokenWatchesAreFound has one sequence of events for each way in which a watch can break the rule.
func TestBrokenWatchesAreFound(t *testing.T) {
	type event struct {
		kind string
		version
	}
	bookmark := func(revision int64) event { return event{"BOOKMARK", version{revision: revision}} }
	for _, c := range []struct {
		name   string
		events []event // after a list with a at resourceVersion 10, written by write 1
		want   string  // part of the error of the last event; empty if there is none
	}{
		{"correct", []event{
			{"MODIFIED", version{"a", 2, 1, 11}}, {"DELETED", version{"a", 2, 1, 12}}, bookmark(12), {"ADDED", version{"a", 4, 0, 13}}, {"ADDED", version{"b", 1, 0, 14}},
		}, ""},
		{"failed writes in between", []event{{"MODIFIED", version{"a", 5, 1, 11}}}, ""},
		{"skipped change", []event{{"MODIFIED", version{"a", 3, 2, 12}}}, "replaces write 2, want one that replaces write 1"},
		{"repeated event", []event{{"MODIFIED", version{"a", 2, 1, 11}}, {"MODIFIED", version{"a", 2, 1, 11}}}, "after resourceVersion 11"},
		{"reordered objects", []event{{"ADDED", version{"b", 1, 0, 12}}, {"MODIFIED", version{"a", 2, 1, 11}}}, "after resourceVersion 12"},
		{"skipped deletion", []event{{"ADDED", version{"a", 3, 0, 13}}}, "want no ADDED"},
		{"skipped addition", []event{{"MODIFIED", version{"b", 2, 1, 12}}}, "want ADDED"},
		{"deletion of an unseen version", []event{{"DELETED", version{"a", 2, 1, 12}}}, "DELETED a with write 2 at resourceVersion 12, want write 1"},
		{"bookmark before an event that was sent", []event{{"MODIFIED", version{"a", 2, 1, 11}}, bookmark(10)}, "want at least 11"},
		{"event before a bookmark", []event{bookmark(12), {"MODIFIED", version{"a", 2, 1, 11}}}, "after resourceVersion 12"},
		{"unknown event", []event{{"CHANGED", version{"a", 2, 1, 11}}}, `event "CHANGED"`},
		{"acknowledged object that came and went", []event{{"ADDED", version{"c", 3, 0, 22}}}, "no event for c with write 1 at resourceVersion 20"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s observed
			s.begin(map[string]version{"a": {"a", 1, 0, 10}}, 10)
			var err error
			for i, e := range c.events {
				if err != nil {
					t.Fatalf("event %d: %v, want no error before the last one", i-1, err)
				}
				if e.kind == "BOOKMARK" {
					err = s.bookmark(e.revision, false)
				} else {
					err = s.apply(e.kind, e.version)
				}
				if err == nil {
					err = s.checkSeen([]version{{"c", 1, 0, 20}}, s.last)
				}
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestInitialEventsEndWithTheirBookmark(t *testing.T) {
	var s observed
	s.forget()
	for _, v := range []version{{"b", 7, 6, 15}, {"a", 1, 0, 10}} { // in any order
		if err := s.apply("ADDED", v); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.bookmark(14, true); err == nil {
		t.Error("got no error for a bookmark with resourceVersion 14 after an object with 15, want one")
	}
	if err := s.bookmark(16, true); err != nil || !s.synced || s.last != 16 || len(s.objects) != 2 {
		t.Errorf("got %v, complete %t at %d with %d objects, want no error, complete at 16 with 2", err, s.synced, s.last, len(s.objects))
	}
}
