package semantics

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// everyStorage is a collection for each way of storing: with a watch cache, without one, and custom.
var everyStorage = map[string]func(*testing.T, string) collection{"configmaps": configMaps, "events": events, "gems": gems}

// All pages of a list have the state at the first one, in spite of later writes.
func TestPagesAreOfOneMoment(t *testing.T) {
	for name, of := range everyStorage {
		t.Run(name, func(t *testing.T) {
			s := of(t, "pages-"+name)
			for _, n := range []string{"a", "b", "c", "d", "e"} {
				s.put(n)
			}
			first := s.list("limit", "2", "fieldSelector", "metadata.name!=kube-root-ca.crt")
			if names(first) != "a b" || first.GetContinue() == "" {
				t.Fatalf("first page = %q, want \"a b\" and a token", names(first))
			}
			s.remove("d")
			s.touch("c", 1)
			s.put("ab")
			s.put("f")
			second := s.list("limit", "2", "fieldSelector", "metadata.name!=kube-root-ca.crt", "continue", first.GetContinue())
			if names(second) != "c d" || second.GetResourceVersion() != first.GetResourceVersion() {
				t.Errorf("second page = %q at the version %s, want \"c d\" at %s",
					names(second), second.GetResourceVersion(), first.GetResourceVersion())
			}
			third := s.list("fieldSelector", "metadata.name!=kube-root-ca.crt", "continue", second.GetContinue())
			if names(third) != "e" || third.GetContinue() != "" {
				t.Errorf("third page = %q, continue %q; want \"e\" and no token", names(third), third.GetContinue())
			}
			if now := s.list("labelSelector", "on=shelf"); names(now) != "a ab b c=1 e f" {
				t.Errorf("list after the writes = %q, want \"a ab b c=1 e f\"", names(now))
			}
			if left := s.list("limit", "2").GetRemainingItemCount(); left == nil || *left < 4 {
				t.Errorf("remaining item count = %v, want at least 4", left)
			}
		})
	}
}

// A token of a compacted version gets 410 with another token, which continues with the current state.
func TestExpiredPages(t *testing.T) {
	for name, of := range everyStorage {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := of(t, "expired-"+name)
			for _, n := range []string{"a", "b", "c"} {
				s.put(n)
			}
			first := s.list("limit", "1", "labelSelector", "on")
			s.put("d")
			compact(t)
			// The watch cache keeps more versions than etcd until it observes the compaction: it polls every 15 seconds.
			var gone *answer
			eventually(t, func() error {
				gone = call(t, http.MethodGet, s.path+query("limit", "1", "labelSelector", "on", "continue", first.GetContinue()), nil)
				if gone.code == http.StatusOK {
					return errText("the version is still known")
				}
				return nil
			})
			status := gone.refused(http.StatusGone, metav1.StatusReasonExpired)
			if status.Continue == "" {
				t.Fatalf("Status of an expired token = %+v, want one with a token", status)
			}
			next := s.list("limit", "5", "labelSelector", "on", "continue", status.Continue)
			if names(next) != "b c d" || next.GetResourceVersion() == first.GetResourceVersion() {
				t.Errorf("page with the new token = %q at the version %s, want \"b c d\" at a new version", names(next), next.GetResourceVersion())
			}
			old := call(t, http.MethodGet, s.path+query("resourceVersion", first.GetResourceVersion(), "resourceVersionMatch", "Exact"), nil)
			old.refused(http.StatusGone, metav1.StatusReasonExpired)
		})
	}
}

// The version parameters of a list and their meaning.
func TestVersionsOfLists(t *testing.T) {
	for name, of := range everyStorage {
		t.Run(name, func(t *testing.T) {
			s := of(t, "versions-"+name)
			one := s.put("one")
			two := s.put("two")
			s.touch("one", 2)
			at := one.GetResourceVersion()
			if got := s.list("labelSelector", "on", "resourceVersion", at, "resourceVersionMatch", "Exact"); names(got) != "one" || got.GetResourceVersion() != at {
				t.Errorf("list exactly at %s = %q at the version %s, want \"one\" at that version", at, names(got), got.GetResourceVersion())
			}
			if got := s.list("labelSelector", "on", "limit", "1", "resourceVersion", two.GetResourceVersion(), "resourceVersionMatch", "Exact"); names(got) != "one" {
				t.Errorf("first page exactly at %s = %q, want \"one\"", two.GetResourceVersion(), names(got))
			} else if rest := s.list("labelSelector", "on", "limit", "1", "continue", got.GetContinue()); names(rest) != "two" {
				t.Errorf("second page exactly at %s = %q, want \"two\"", two.GetResourceVersion(), names(rest))
			}
			for _, pairs := range [][]string{
				{"resourceVersion", two.GetResourceVersion(), "resourceVersionMatch", "NotOlderThan"},
				{"resourceVersion", two.GetResourceVersion()},
			} {
				if got := s.list(append(pairs, "labelSelector", "on")...); !strings.HasPrefix(names(got), "one") || version(t, got) < version(t, two) {
					t.Errorf("list not older than %s = %q at the version %s, want at least that version",
						two.GetResourceVersion(), names(got), got.GetResourceVersion())
				}
			}
			if got := s.list("labelSelector", "on"); names(got) != "one=2 two" {
				t.Errorf("list without a version = %q, want \"one=2 two\"", names(got))
			}
			s.list("resourceVersion", "0", "resourceVersionMatch", "NotOlderThan")
		})
	}
}

func TestWhatAListMayNotAsk(t *testing.T) {
	s := configMaps(t, "bad-lists")
	s.put("a")
	const token = "a token" // a fresh one takes its place
	for what, c := range map[string]struct {
		query []string
		code  int
	}{
		"a match without a version":         {[]string{"resourceVersionMatch", "Exact"}, http.StatusUnprocessableEntity},
		"a match that there is none of":     {[]string{"resourceVersionMatch", "Roughly", "resourceVersion", "1"}, http.StatusUnprocessableEntity},
		"exactly at any version":            {[]string{"resourceVersionMatch", "Exact", "resourceVersion", "0"}, http.StatusUnprocessableEntity},
		"a match beside a token":            {[]string{"resourceVersionMatch", "Exact", "resourceVersion", "1", "continue", token}, http.StatusUnprocessableEntity},
		"a version beside a token":          {[]string{"resourceVersion", "1", "continue", token, "limit", "1"}, http.StatusBadRequest},
		"initial events":                    {[]string{"sendInitialEvents", "true"}, http.StatusUnprocessableEntity},
		"a token that is none":              {[]string{"continue", "here"}, http.StatusBadRequest},
		"a version that is no number":       {[]string{"resourceVersion", "abc"}, http.StatusBadRequest},
		"a limit that is no number":         {[]string{"limit", "many"}, http.StatusBadRequest},
		"a field selector that is not one":  {[]string{"fieldSelector", "metadata.name in (a)"}, http.StatusBadRequest},
		"a watch with a match":              {[]string{"watch", "true", "resourceVersionMatch", "NotOlderThan", "resourceVersion", "1"}, http.StatusUnprocessableEntity},
		"initial events without a match":    {[]string{"watch", "true", "sendInitialEvents", "true"}, http.StatusUnprocessableEntity},
		"initial events of an exact moment": {[]string{"watch", "true", "sendInitialEvents", "true", "resourceVersionMatch", "Exact", "resourceVersion", "1"}, http.StatusUnprocessableEntity},
	} {
		got := &answer{code: http.StatusGone}
		for range 5 { // etcd may be compacted in between, and then a token is too old
			asked := slices.Clone(c.query)
			if i := slices.Index(asked, token); i >= 0 {
				asked[i] = s.list("limit", "1").GetContinue()
			}
			if got = call(t, http.MethodGet, s.path+query(asked...), nil); got.code != http.StatusGone {
				break
			}
		}
		if got.code != c.code {
			t.Errorf("list with %s: status = %d %s, want %d", what, got.code, got.head(), c.code)
		} else {
			got.status()
		}
	}
	far := call(t, http.MethodGet, s.path+"?resourceVersion=999999999&resourceVersionMatch=NotOlderThan", nil)
	if status := far.refused(http.StatusGatewayTimeout, "Timeout"); len(status.Details.Causes) == 0 || status.Details.Causes[0].Type != metav1.CauseTypeResourceVersionTooLarge {
		t.Errorf("Status for a future version = %+v, want the cause ResourceVersionTooLarge", status)
	}
}
