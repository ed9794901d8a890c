package remote

import (
	"net/http"
	"slices"
	"testing"

	"go.uber.org/zap"
)

// named is a backend that has only a name.
type named string

func (b *named) Name() string             { return string(*b) }
func (b *named) Probe() http.RoundTripper { return nil }
func (b *named) RenewProbes()             {}

func TestEachVisitsOnlyRoutesOfBackend(t *testing.T) {
	one, two, gone := named("one"), named("two"), named("gone")
	c := NewCollector(Config[string]{
		Adopt:   func(r Route, _, _ *string) *string { return &r.APIService },
		PollNow: func(Route, Route) bool { return false },
		NewPoll: func(Backend) Poll { return nil }, // no polls, because Run is not called
		Logger:  zap.NewNop(),
	})
	visited := func(b Backend) (names []string) {
		c.Each(b, func(r Route, record *string) {
			if r.APIService != *record {
				t.Errorf("%s has the record of %s, want its own", r.APIService, *record)
			}
			names = append(names, r.APIService)
		})
		return names
	}
	c.follow(Table{Routes: []Route{{APIService: "local", Local: true}, {APIService: "a", Backend: &one}, {APIService: "b", Backend: &gone}, {APIService: "c", Backend: &one}, {APIService: "d"}}})
	for b, want := range map[Backend][]string{&one: {"a", "c"}, &two: nil, &gone: {"b"}, nil: {"a", "b", "c", "d"}} {
		if got := visited(b); !slices.Equal(got, want) {
			t.Errorf("Each(%v) visited %q, want %q", b, got, want)
		}
	}
	c.follow(Table{Routes: []Route{{APIService: "d", Backend: &two}, {APIService: "c", Backend: &two}, {APIService: "a", Backend: &one}}})
	for b, want := range map[Backend][]string{&one: {"a"}, &two: {"d", "c"}, &gone: nil, nil: {"d", "c", "a"}} {
		if got := visited(b); !slices.Equal(got, want) {
			t.Errorf("after another table: Each(%v) visited %q, want %q", b, got, want)
		}
	}
}
