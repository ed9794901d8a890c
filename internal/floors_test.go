package internal

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// floors is the plan of the house: a room may use the rooms below it. ARCHITECTURE.md says what each is for.
var floors = map[string]int{
	"http1": 0, "http2": 0, "httpmsg": 0, "request": 0, "respond": 0, "run": 0, "metrics": 0, "version": 0, "logging": 0, "clients": 0, "apiclient": 0,
	"engine": 0,
	"pki":    1, "transport": 1, "store": 1, "audit": 1, "overload": 1, "filters": 1,
	"auth": 2, "coreapi": 2, "apiservice": 2, "proxy": 2, "discovery": 2, "openapi": 2, "fairness": 2, "lifecycle": 2,
	"server": 3, "extension": 3, "doctor": 3, "conformance": 3, "drill": 3,
	"aggregator": 4,
}

// doors are the ways between rooms of one floor, each with its reason.
var doors = map[string]string{
	"http1 -> httpmsg":     "rules, contexts and dates are the same for both versions of HTTP",
	"http1 -> run":         "the list of requests whose clients are watched",
	"httpmsg -> run":       "the list of what is called at a request's end",
	"http2 -> httpmsg":     "the same",
	"engine -> http1":      "one of the implementations of HTTP between which it chooses",
	"engine -> http2":      "the same",
	"engine -> httpmsg":    "the library's requests are held to the same table",
	"transport -> pki":     "every tls.Config is made in pki",
	"store -> pki":         "every tls.Config is made in pki",
	"openapi -> discovery": "discovery/remote is how documents are fetched from a backend, whatever they say",
}

const module = "portico.dev/internal/"

// Proxy and apiservice never import each other (both know transport.Backend; the router introduces them), and nothing
// on the proxied path imports coreapi: neither pair is on the list, so the rule below keeps both doors shut.
func TestFloorsAndDoors(t *testing.T) {
	used := map[string]bool{}
	for from, imports := range roomImports(t) {
		if _, ok := floors[from]; !ok {
			t.Errorf("room %q has no floor; give it one here and in ARCHITECTURE.md", from)
			continue
		}
		for to, file := range imports {
			door := from + " -> " + to
			switch {
			case floors[to] < floors[from]:
			case doors[door] != "":
				used[door] = true
			default:
				t.Errorf("%s: %s (floor %d) imports %s (floor %d); no door is listed", file, from, floors[from], to, floors[to])
			}
		}
	}
	for door := range doors {
		if !used[door] {
			t.Errorf("door %s is not used any more; close it", door)
		}
	}
}

// roomImports is which room imports which, by an example file. Tests may go anywhere: they see the house from outside.
func roomImports(t *testing.T) map[string]map[string]string {
	t.Helper()
	rooms := map[string]map[string]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		from, _, inRoom := strings.Cut(path, string(filepath.Separator))
		if !inRoom {
			return nil
		}
		if rooms[from] == nil {
			rooms[from] = map[string]string{}
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if rest, ok := strings.CutPrefix(name, module); ok {
				if to, _, _ := strings.Cut(rest, "/"); to != from {
					rooms[from][to] = path
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(rooms) < len(floors) {
		missing := slices.DeleteFunc(slices.Sorted(maps.Keys(floors)), func(r string) bool { return rooms[r] != nil })
		t.Errorf("rooms without code: %v", missing)
	}
	return rooms
}

// The extension server host stands on leaf packages: what people complain about in others is a binary of 100 MB.
func TestTheExtensionHostLinksNoServer(t *testing.T) {
	for to := range roomImports(t)["extension"] {
		if slices.Contains([]string{"coreapi", "store", "server", "apiservice", "discovery", "openapi", "lifecycle"}, to) {
			t.Errorf("extension imports %s", to)
		}
	}
}
