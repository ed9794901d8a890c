package apiservice

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// testdata/priorities.txt is kube-apiserver 1.37's built-in group-versions in the order in which it lists them.
func TestPrioritiesAndOrderAreKubeAPIServers(t *testing.T) {
	file, err := os.Open("testdata/priorities.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var want []string
	var routes []*Route
	for lines := bufio.NewScanner(file); lines.Scan(); {
		want = append(want, lines.Text())
		gv, err := schema.ParseGroupVersion(strings.Fields(lines.Text())[2])
		if err != nil {
			t.Fatal(err)
		}
		p, ok := priorityOf(gv)
		if !ok {
			t.Errorf("%s has no priority", gv)
		}
		routes = append(routes, &Route{GroupVersion: gv, Name: apiServiceName(gv), GroupPriority: p.group, VersionPriority: p.version})
	}
	rand.Shuffle(len(routes), func(i, j int) { routes[i], routes[j] = routes[j], routes[i] })
	for i, r := range NewTable(routes, true).Routes() {
		if got := fmt.Sprint(r.GroupPriority, r.VersionPriority, " ", r.GroupVersion); got != want[i] {
			t.Errorf("place %d: got %q, want %q", i, got, want[i])
		}
	}
}

func TestUnknownGroupVersionsHaveNoPriority(t *testing.T) {
	for _, gv := range []schema.GroupVersion{{Group: "example.com", Version: "v1"}, {Group: "apps", Version: "v9"}, ownGroupVersion} {
		if p, ok := priorityOf(gv); ok {
			t.Errorf("%s has priority %v", gv, p)
		}
	}
}
