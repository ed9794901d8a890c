package semantics

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A watch lasts as long as it asked to, tells shortly before its end how far it has come, and ends as a stream does. On a
// machine that had no second for the front door in its last two the end comes first, which is why several are looked at.
func TestWatchHasItsTime(t *testing.T) {
	s := configMaps(t, "timed")
	s.put("a")
	begun := time.Now()
	var watches []*stream
	seconds := []int{4, 6, 8}
	for _, n := range seconds {
		w := openWatch(t, s.path+query("watch", "true", "timeoutSeconds", strconv.Itoa(n), "allowWatchBookmarks", "true", "labelSelector", "on"))
		if e := w.next(); e.Type != "ADDED" {
			t.Fatalf("got %s", e)
		}
		watches = append(watches, w)
	}
	told := 0
	for i, w := range watches {
		rest := w.rest()
		if took := time.Since(begun); took < time.Duration(seconds[i]-1)*time.Second {
			t.Errorf("one of %d seconds lasted %s", seconds[i], took)
		}
		if len(rest) > 0 && rest[len(rest)-1].Type == "BOOKMARK" {
			told++
		}
	}
	if told == 0 {
		t.Error("none ended with a bookmark")
	}
}

// An event that is no longer known is an error in the stream, which a client answers by listing again.
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
				t.Fatalf("got %v", e.Object)
			}
			if rest := w.rest(); len(rest) != 0 {
				t.Errorf("then came %v", rest)
			}
		})
	}
}

// Without a version a watch begins with what is there.
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
					t.Errorf("got %s", s)
				}
			})
		}
	}
}

// An object that comes to fit a selector is added to the watch, and one that no longer does is deleted from it.
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
					t.Fatalf("painted %s: %s", c.color, e)
				}
				if at := e.Object.GetResourceVersion(); e.Type == "DELETED" && call(t, http.MethodGet, s.path+"/a", nil).object().GetResourceVersion() != at {
					t.Errorf("deleted from the watch at %s, which is not the version of the change", at)
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
	eventually(t, func() error { // rights come by a watch
		if a := call(t, http.MethodGet, s.path+"/mine", nil, jane...); a.code != http.StatusOK {
			return errText(a.head())
		}
		return nil
	})
	mine := "fieldSelector=metadata.name%3Dmine"
	call(t, http.MethodGet, s.path+"?"+mine, nil, jane...).want(http.StatusOK).says(`"name":"mine"`)
	w := openWatch(t, s.path+"?watch=true&"+mine, jane...)
	if e := w.next(); e.String() != "ADDED mine" {
		t.Errorf("got %s", e)
	}
	for _, other := range []string{"", "?fieldSelector=metadata.name%3Dother", "?watch=true",
		"?watch=true&fieldSelector=metadata.name%21%3Dother", "?watch=true&labelSelector=on"} {
		call(t, http.MethodGet, s.path+other, nil, jane...).refused(http.StatusForbidden, "Forbidden")
	}
}

type errText string

func (e errText) Error() string { return string(e) }
