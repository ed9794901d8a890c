package extension_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/pkg/extension"
)

func tenQueues() *queues {
	q := &queues{}
	for i := range 10 {
		q.items = append(q.items, queue("team", fmt.Sprintf("queue-%d", i), int64(i), fmt.Sprintf("odd=%t", i%2 == 1)))
	}
	return q
}

func TestPagesShareOneListVersion(t *testing.T) {
	unversioned := queueDefinition()
	unversioned.PollInterval = 0
	for situation, definition := range map[string]extension.Definition[Queue]{"watchable": queueDefinition(), "not watchable": unversioned} {
		t.Run(situation, func(t *testing.T) {
			q := tenQueues()
			s := start(t, nil, extension.Of(definition, q))
			var seen []string
			var versions []string
			next := "?limit=4"
			for next != "" {
				a := s.get(queuesPath + next)
				a.wants(t, http.StatusOK)
				var list struct{ Metadata metav1.ListMeta }
				must(t, json.Unmarshal(a.body, &list))
				versions = append(versions, list.Metadata.ResourceVersion)
				names, more := visible(t, a.body)
				seen = append(seen, names...)
				if left := 10 - len(seen); left > 0 && (list.Metadata.RemainingItemCount == nil || *list.Metadata.RemainingItemCount != int64(left)) {
					t.Errorf("remainingItemCount = %v, want %d", list.Metadata.RemainingItemCount, left)
				}
				next = ""
				if more != "" {
					next = "?limit=4&continue=" + more
				}
				q.set(queue("team", "another", 1)) // A change between two pages affects later lists only.
			}
			if len(seen) != 10 || !slices.IsSorted(seen) || slices.Contains(seen, "another") || len(slices.Compact(versions)) != 1 {
				t.Errorf("pages contain %v at versions %v, want 10 sorted names without \"another\" at one version", seen, versions)
			}
		})
	}
}

func TestInvalidContinueTokensAreRejected(t *testing.T) {
	s := start(t, nil, extension.Of(queueDefinition(), tenQueues()))
	_, more := visible(t, s.get(queuesPath+"?limit=3&labelSelector=odd%3Dtrue").body)
	for _, c := range []struct {
		situation, query string
		code             int
		want             string
	}{
		{"the rest without limit", "?labelSelector=odd%3Dtrue&continue=" + more, 200, `"queue-9"`},
		{"with another selector", "?continue=" + more, 410, "continue parameter is too old"},
		{"of another life", "?continue=eyJydiI6IjUiLCJzdGFydCI6M30", 410, `"reason":"Expired"`},
		{"beyond the end", "?continue=eyJydiI6IjUiLCJzdGFydCI6LTF9", 400, "continue"},
		{"nonsense", "?continue=%7B%7D", 400, "continue"},
		{"with a version", "?labelSelector=odd%3Dtrue&resourceVersion=7&continue=" + more, 400, "resourceVersion"},
		{"with a match", "?labelSelector=odd%3Dtrue&resourceVersionMatch=Exact&continue=" + more, 422, "resourceVersionMatch"},
		{"a limit that is no number", "?limit=few", 400, ""},
	} {
		t.Run(c.situation, func(t *testing.T) { s.get(queuesPath+c.query).wants(t, c.code, c.want) })
	}
	var list struct{ Metadata metav1.ListMeta }
	must(t, json.Unmarshal(s.get(queuesPath+"?limit=3&labelSelector=odd%3Dtrue").body, &list))
	if list.Metadata.RemainingItemCount != nil {
		t.Error("remainingItemCount of a list with a selector is set, want none, as in kube-apiserver")
	}
	s.get(queuesPath+"?limit=2", tableAccept).wants(t, 200, `"continue":`)
}

func TestListsWithinMaxAgeAreReused(t *testing.T) {
	q := tenQueues()
	definition := queueDefinition()
	definition.PollInterval, definition.MaxAge = 0, time.Hour
	s := start(t, nil, extension.Of(definition, q))
	for range 5 {
		s.get(queuesPath).wants(t, http.StatusOK, "queue-9")
		s.get(queuesPath+"?labelSelector=odd%3Dtrue").wants(t, http.StatusOK, "queue-9")
		s.get("/apis/stats.example.com/v1/namespaces/team/queues/queue-3").wants(t, http.StatusOK, `"depth":3`)
	}
	if n := q.count(); n != 1 {
		t.Errorf("List called %d times within the MaxAge of an hour, want 1", n)
	}
}
