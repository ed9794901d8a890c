package semantics

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A watch lasts for its timeout, sends a bookmark shortly before its end, and ends as a stream does. If the front door gets no
// CPU in the last two seconds the bookmark is missing, so the test checks several watches.
func TestWatchHasItsTime(t *testing.T) {
	s := configMaps(t, "timed")
	s.put("a")
	begun := time.Now()
	var watches []*stream
	seconds := []int{4, 6, 8}
	for _, n := range seconds {
		w := openWatch(t, s.path+query("watch", "true", "timeoutSeconds", strconv.Itoa(n), "allowWatchBookmarks", "true", "labelSelector", "on"))
		if e := w.next(); e.Type != "ADDED" {
			t.Fatalf("first event = %s, want ADDED", e)
		}
		watches = append(watches, w)
	}
	told := 0
	for i, w := range watches {
		rest := w.rest()
		if took := time.Since(begun); took < time.Duration(seconds[i]-1)*time.Second {
			t.Errorf("watch with a timeout of %d s lasted %s, want at least a second less than that", seconds[i], took)
		}
		if len(rest) > 0 && rest[len(rest)-1].Type == "BOOKMARK" {
			told++
		}
	}
	if told == 0 {
		t.Error("watches that ended with a bookmark = 0, want at least 1")
	}
}

// A watch from a compacted version gets an error event, after which a client lists again.
func TestWatchFromAForgottenVersion(t *testing.T) {
	for name, of := range everyStorage {
		t.Run(name, func(t *testing.T) {
			s := of(t, "forgotten-"+name)
			s.put("a")
			s.touch("a", 1)
			compact(t)
			w := openWatch(t, s.path+query("watch", "true", "resourceVersion", "1"))
			e := w.next()
			if code, _ := e.Object.Object["code"].(int64); e.Type != "ERROR" || e.Object.GetKind() != "Status" || e.Object.Object["reason"] != "Expired" && code != http.StatusGone {
				t.Fatalf("event of a watch from a compacted version = %v, want ERROR with 410", e.Object)
			}
			if rest := w.rest(); len(rest) != 0 {
				t.Errorf("events after the error = %v, want none", rest)
			}
		})
	}
}

// Without a version a watch begins with the existing objects.
func TestWatchWithoutAVersion(t *testing.T) {
	for name, of := range everyStorage {
		for _, at := range []string{"", "0"} {
			t.Run(name+" from "+at, func(t *testing.T) {
				s := of(t, "unversioned-"+name+at)
				s.put("a")
				s.put("b")
				w := openWatch(t, s.path+query("watch", "true", "resourceVersion", at, "labelSelector", "on"))
				var got []string
				for range 2 {
					got = append(got, w.next().String())
				}
				s.touch("a", 1)
				got = append(got, w.next().String())
				if s := strings.Join(got, ", "); s != "ADDED a, ADDED b, MODIFIED a" && s != "ADDED b, ADDED a, MODIFIED a" {
					t.Errorf("events = %s, want ADDED of a and b, then MODIFIED of a", s)
				}
			})
		}
	}
}

// An object that begins to match a selector is added to the watch, and one that does not match any more is deleted from it.
func TestWatchBySelector(t *testing.T) {
	for name, of := range everyStorage {
		t.Run(name, func(t *testing.T) {
			s := of(t, "selected-"+name)
			at := s.put("a").GetResourceVersion()
			w := openWatch(t, s.path+query("watch", "true", "resourceVersion", at, "labelSelector", "color=red"))
			paint := func(color string) {
				call(t, http.MethodPatch, s.path+"/a", []byte(`{"metadata":{"labels":{"color":"`+color+`"}}}`), "Content-Type", mergePatch).want(http.StatusOK)
			}
			for _, c := range []struct{ color, want string }{{"red", "ADDED a"}, {"blue", "DELETED a"}, {"red", "ADDED a"}} {
				paint(c.color)
				e := w.next()
				if e.String() != c.want {
					t.Fatalf("event after the color %s = %s, want %s", c.color, e, c.want)
				}
				if at := e.Object.GetResourceVersion(); e.Type == "DELETED" && call(t, http.MethodGet, s.path+"/a", nil).object().GetResourceVersion() != at {
					t.Errorf("version of the DELETED event = %s, want the version of the change", at)
				}
			}
		})
	}
}

// Who may watch one object by name may do so by the field selector of its name, and may not watch the rest.
func TestOneObjectIsWatchedByItsName(t *testing.T) {
	s := configMaps(t, "named")
	s.put("mine")
	s.put("other")
	rbac := "/apis/rbac.authorization.k8s.io/v1/namespaces/named/"
	call(t, http.MethodPost, rbac+"roles", []byte(`{"metadata":{"name":"one"},"rules":[{"apiGroups":[""],"resources":["configmaps"],
		"verbs":["get","list","watch"],"resourceNames":["mine"]}]}`)).want(http.StatusCreated)
	call(t, http.MethodPost, rbac+"rolebindings", []byte(`{"metadata":{"name":"one"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"one"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"jane"}]}`)).want(http.StatusCreated)
	jane := []string{"Impersonate-User", "jane"}
	eventually(t, func() error { // the authorizer receives rights through a watch
		if a := call(t, http.MethodGet, s.path+"/mine", nil, jane...); a.code != http.StatusOK {
			return errText(a.head())
		}
		return nil
	})
	mine := "fieldSelector=metadata.name%3Dmine"
	call(t, http.MethodGet, s.path+"?"+mine, nil, jane...).want(http.StatusOK).says(`"name":"mine"`)
	w := openWatch(t, s.path+"?watch=true&"+mine, jane...)
	if e := w.next(); e.String() != "ADDED mine" {
		t.Errorf("event = %s, want ADDED mine", e)
	}
	for _, other := range []string{"", "?fieldSelector=metadata.name%3Dother", "?watch=true",
		"?watch=true&fieldSelector=metadata.name%21%3Dother", "?watch=true&labelSelector=on"} {
		call(t, http.MethodGet, s.path+other, nil, jane...).refused(http.StatusForbidden, "Forbidden")
	}
}

type errText string

func (e errText) Error() string { return string(e) }
