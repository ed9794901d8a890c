package kinds

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// crashing starts a server that creates namespaces and aborts the stream of every other request. asked counts the requests.
func crashing(t *testing.T) (s *server, asked *atomic.Int32) {
	t.Helper()
	asked = &atomic.Int32{}
	fake := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/namespaces"):
			w.WriteHeader(http.StatusCreated)
		case strings.HasSuffix(r.URL.Path, "/serviceaccounts/default"):
		default:
			asked.Add(1)
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(fake.Close)
	return &server{host: fake.URL, client: fake.Client()}, asked
}

func scriptsOf(names ...string) []script {
	var out []script
	for _, name := range names {
		out = append(out, script{namespace: name, questions: []question{{Name: name + ": broken", Method: http.MethodPost, Path: "/broken"}}})
	}
	return out
}

// A front door that gives no answer ends the replay at once: it must not compare equal to a kube-apiserver that panicked.
func TestNoAnswerEndsAReplay(t *testing.T) {
	s, asked := crashing(t)
	_, err := s.record(t.Context(), scriptsOf("a", "b", "c", "d", "e", "f"), 1)
	if err == nil || !strings.Contains(err.Error(), "a: broken: ") {
		t.Errorf("record with a broken stream: error = %v, want one that names the question", err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d questions, want the first alone", n)
	}
}

func TestNoAnswerIsWrittenDownOfAServerThatMayBreak(t *testing.T) {
	s, _ := crashing(t)
	s.breaks = true
	r, err := s.record(t.Context(), scriptsOf("a", "b"), 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a: broken", "b: broken"} {
		if r[name]["code"] != "0" || r[name]["body."] != "no answer" {
			t.Errorf("recorded response to %s = %v, want no answer", name, r[name])
		}
	}
}

// A cancelled caller ends the replay of any server.
func TestACancelledReplayIsAnError(t *testing.T) {
	s, asked := crashing(t)
	s.breaks = true
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.record(ctx, scriptsOf("a", "b"), 1); err == nil {
		t.Error("record with a cancelled context returned no error, want one")
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("asked %d questions, want none", n)
	}
}

// A script is sent again completely if one of its questions has no response, and not at all otherwise.
func TestOnlyWhatLacksAnAnswerIsAsked(t *testing.T) {
	all := scriptsOf("a", "b")
	all[0].questions = append(all[0].questions, question{Name: "a: new"})
	r := recording{"a: broken": {"code": "200"}, "b: broken": {"code": "200"}}
	if left := r.lacking(all); len(left) != 1 || left[0].namespace != "a" || len(left[0].questions) != 2 {
		t.Errorf("lacking = %+v, want the script a with both questions", left)
	}
	r["a: new"] = map[string]string{"code": "201"}
	if left := r.lacking(all); len(left) != 0 {
		t.Errorf("lacking = %+v, want none", left)
	}
	if len(all) != 2 {
		t.Errorf("%d scripts after lacking, want 2", len(all))
	}
}
