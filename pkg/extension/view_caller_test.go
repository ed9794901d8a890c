package extension_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/pkg/extension"
)

const projectsPath = "/apis/project.example.com/v1/projects"

// inProjects has users 0 to n-1. Each user is the admin of one project and a member of the next user's project.
func inProjects(n int) *Projects {
	p := &Projects{members: map[string][]string{}}
	for i := range n {
		p.members[fmt.Sprintf("project-%02d", i)] = []string{fmt.Sprintf("user-%02d", i), fmt.Sprintf("user-%02d", (i+n-1)%n)}
	}
	return p
}

// visible returns the names in a list or in the rows of a table.
func visible(t *testing.T, body []byte) (names []string, more string) {
	t.Helper()
	var list struct {
		Metadata metav1.ListMeta
		Items    []struct{ Metadata metav1.ObjectMeta }
		Rows     []struct{ Cells []any }
	}
	if err := json.Unmarshal(body, &list); err != nil {
		t.Errorf("Unmarshal of the list failed: %v, want no error; body: %s", err, body)
	}
	for _, i := range list.Items {
		names = append(names, i.Metadata.Name)
	}
	for _, r := range list.Rows {
		names = append(names, fmt.Sprint(r.Cells[0]))
	}
	return names, list.Metadata.Continue
}

// TestCallersReceiveOnlyTheirView sends many kinds of requests as many callers at once. Run it with the race detector.
func TestCallersReceiveOnlyTheirView(t *testing.T) {
	const users = 20
	s := start(t, nil, extension.Of(projectDefinition(), inProjects(users)))
	var all sync.WaitGroup
	for i := range users {
		all.Go(func() {
			me := fmt.Sprintf("X-Test-User: user-%02d", i)
			mine := []string{fmt.Sprintf("project-%02d", i), fmt.Sprintf("project-%02d", (i+1)%users)}
			slices.Sort(mine)
			get := func(query string, headers ...string) []byte {
				return s.send(http.MethodGet, projectsPath+query, "", nil, append(headers, me)...).body
			}
			for range 10 {
				for _, accept := range []string{"application/json", strings.TrimPrefix(tableAccept, "Accept: ")} {
					if seen, _ := visible(t, get("", "Accept: "+accept)); !slices.Equal(seen, mine) {
						t.Errorf("list as %q = %v, want %v", me, seen, mine)
					}
				}
				first, more := visible(t, get("?limit=1"))
				rest, _ := visible(t, get("?limit=1&continue="+more))
				if !slices.Equal(append(first, rest...), mine) {
					t.Errorf("pages as %q = %v and %v, want %v", me, first, rest, mine)
				}
			}
		})
	}
	all.Wait()
}

func TestContinueTokenOfAnotherCallerIsExpired(t *testing.T) {
	s := start(t, nil, extension.Of(projectDefinition(), inProjects(3)))
	_, more := visible(t, s.send(http.MethodGet, projectsPath+"?limit=1", "", nil, "X-Test-User: user-00").body)
	if more == "" {
		t.Fatal("continue token of a list with limit=1 is empty, want a token")
	}
	s.send(http.MethodGet, projectsPath+"?continue="+more, "", nil, "X-Test-User: user-01").wants(t, http.StatusGone, `"reason":"Expired"`)
	s.send(http.MethodGet, projectsPath+"?continue="+more, "", nil, "X-Test-User: user-00").wants(t, http.StatusOK, `"project-01"`)
}

func TestWatchSendsOnlyVisibleObjects(t *testing.T) {
	t.Parallel()
	p := inProjects(3)
	s := start(t, nil, extension.Of(projectDefinition(), p))
	const streamed = projectsPath + "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	mine, others := s.watch(streamed, "X-Test-User: user-00"), s.watch(streamed, "X-Test-User: user-01")
	mine.sees("ADDED project-00", "ADDED project-01", "BOOKMARK")
	others.sees("ADDED project-01", "ADDED project-02", "BOOKMARK")
	created := s.send(http.MethodPost, projectsPath, "", []byte(`{"metadata":{"name":"secret"}}`), "X-Test-User: user-00")
	created.wants(t, http.StatusCreated, `"role":"admin"`)
	mine.sees("ADDED secret")
	s.send(http.MethodGet, projectsPath+"/secret", "", nil, "X-Test-User: user-01").wants(t, http.StatusNotFound)
	s.send(http.MethodDelete, projectsPath+"/secret", "", nil, "X-Test-User: user-01").wants(t, http.StatusNotFound)
	s.send(http.MethodDelete, projectsPath+"/project-01", "", nil, "X-Test-User: user-01").wants(t, http.StatusOK)
	others.sees("DELETED project-01") // No event of the secret project precedes it.
	s.send(http.MethodDelete, projectsPath+"/secret", "", nil, "X-Test-User: user-00").wants(t, http.StatusOK)
	mine.sees("DELETED project-01", "DELETED secret")
}
