package internal

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// layers are the layers of the packages of internal: a package imports packages of lower layers. ARCHITECTURE.md lists their
// subjects.
var layers = map[string]int{
	"httpengine": 0, "request": 0, "respond": 0, "run": 0, "metrics": 0, "version": 0, "nearest": 0, "logging": 0, "clients": 0, "clients/apiclient": 0, "tools/toolclient": 0,
	"tools/program": 1,
	"nodes/podrefs": 0,
	"pki":           1, "transport": 1, "store": 1, "audit": 1, "overload": 1, "filters": 1, "gateway/adoption": 1, "routes/v1alpha1": 0, "fleet/v1alpha1": 0, "routes/client": 1, "fleet/client": 1, "routes/routing": 1, "routes/sharedreads": 1, "routes/sharedwatch": 1, "routes/mirror": 1, "nodes/egress": 1,
	"routetable": 2, "routes/merge": 2, "extserver/registration": 2,
	"auth": 3, "coreapi": 3, "apiservice": 3, "replicas/peers": 3, "replicas/cluster": 3, "proxy": 3, "discovery": 3, "openapi": 3, "fairness": 3, "lifecycle": 3,
	"dispatch": 4, "tools/doctor": 4, "tools/conformance": 4, "tools/drill": 4, "routes/migrate": 4, "nodes/kubelet": 4, "fleet/limits": 4, "fleet/identity": 4,
	"server": 5, "extserver": 5, "fleet/cluster": 5,
	"aggregation": 6, "fleet": 6,
	"aggregator": 7, "gateway": 7, "front": 7, "tools/console": 7, "tools/cli": 8, "tools/release": 8,
	// Tests of everything above.
	"simulation": 8,
	// Packages for other programs.
	"pkg/extension": 4, "pkg/frontdoor": 8, "pkg/apitest": 9,
}

// innerLayers maps a package to the layers of its subpackages; "." is the package itself. A star matches every subpackage.
var innerLayers = map[string]map[string]int{
	"auth": {
		".": 0, "authn": 1, "rbac": 1, "ttlcache": 1,
		"rbac/explain": 2, "authz": 2, "bootstraptoken": 2, "nodes": 2, "oidc": 2, "serviceaccount": 2, "tokenreview": 2, "accessreview": 2, "tokenwebhook": 2, "authtest": 2,
		"delegated": 3,
	},
	"coreapi": {
		"columns": 0, "defaults": 0, "selectable": 0, "validate": 0, "allocation": 0, "encryption": 0, "definitions": 0, "listcache": 0, "openapidocs": 0, "openapidocs/build": 0,
		"quota": 1, "admission": 1, "crds": 2,
		"registry": 2, "admission/plugins": 2,
		"kinds/*": 3,
		"kinds":   4,
		// The list of groups that can be disabled.
		"kinds/cluster":  5,
		".":              6,
		"kinds/kindtest": 6,
		// Generates the OpenAPI documents of the served resources.
		"openapidocs/gen": 7,
		// Generates validation from the tags of types.
		"kinds/resource/gen": 7,
	},
	"clients":     {".": 0, "typedclient": 0, "clientstest": 1},
	"discovery":   {"remote": 0, "remote/remotetest": 1, "watchlist": 1, ".": 1},
	"dispatch":    {".": 0, "dispatchtest": 1},
	"tools/drill": {"faulty": 0, ".": 1, "report": 2},
	"httpengine": {
		"httpmsg": 0,
		"engine":  1,
		"library": 2, "portico/http1": 2, "portico/http2": 2, "portico/http2/frame": 2,
		"portico/http2/client": 3, "portico/http2/server": 3, "portico/http2/http2test": 3,
		"portico":    4,
		".":          5,
		"enginetest": 6,
	},
	"extserver": {
		"httpclient": 0,
		"prometheus": 1, "projects": 1, "hosttest": 1,
		"custommetrics": 2, "declared": 2, "metricsapi": 2,
		".": 3,
	},
	"gateway":       {"lastknown": 0, "adopter": 1, ".": 2},
	"lifecycle":     {"reconcile": 0, "debts": 0, "bootstrap": 1, "certificates": 1, "garbage": 1, "namespaces": 1, "quotas": 1, "trust": 1, ".": 2},
	"run":           {".": 0, "freeport": 0, "memory": 0, "mutants": 0, "processors": 0, "spread": 0},
	"simulation":    {"network": 0, "consistency": 0, ".": 1},
	"store":         {".": 0, "backup": 1},
	"tools/program": {".": 0, "programtest": 1},
}

// allowed are imports between packages of one layer, each with its reason.
var allowed = map[string]string{
	"httpengine -> run":         "lists of functions that are called at a request's end, and of clients that are watched",
	"nodes/egress -> pki":       "every tls.Config is made in pki",
	"nodes/egress -> transport": "it makes connections for transport, and its errors are transport's",
	"transport -> pki":          "every tls.Config is made in pki",
	"store -> pki":              "every tls.Config is made in pki",
	"gateway/adoption -> pki":   "certificates of bundles are read in pki",
	"openapi -> discovery":      "discovery/remote is how documents are fetched from a backend, whatever they say",
}

const (
	module       = "portico.dev/internal/"
	publicModule = "portico.dev/"
)

// Proxy and apiservice never import each other (both know transport.Backend; the router introduces them), and nothing
// on the proxied path imports coreapi: neither pair is allowed above.
func TestImportsGoDownward(t *testing.T) {
	used := map[string]bool{}
	for path, imports := range packages(t) {
		from, fromInner := split(path)
		for _, i := range imports {
			to, toInner := split(i.to)
			pair := from + " -> " + to
			switch {
			case from == to:
				checkInner(t, i.file, from, fromInner, toInner)
			case layers[to] < layers[from]:
			case allowed[pair] != "":
				used[pair] = true
			default:
				t.Errorf("%s: %s (layer %d) imports %s (layer %d), which is not allowed", i.file, from, layers[from], to, layers[to])
			}
		}
	}
	for pair := range allowed {
		if !used[pair] {
			t.Errorf("the import %s is allowed, and there is none any more", pair)
		}
	}
}

func checkInner(t *testing.T, file, outer, from, to string) {
	t.Helper()
	at, _ := innerLayer(outer, from)
	below, _ := innerLayer(outer, to)
	if below >= at {
		t.Errorf("%s: within %s, %s (layer %d) imports %s (layer %d)", file, outer, from, at, to, below)
	}
}

func innerLayer(outer, inner string) (layer int, known bool) {
	inside := innerLayers[outer]
	if layer, known = inside[inner]; known {
		return layer, true
	}
	parent, _, _ := strings.Cut(inner, "/")
	layer, known = inside[parent+"/*"]
	return layer, known
}

// Every package is in the tables, and nothing else is.
func TestEveryPackageHasALayer(t *testing.T) {
	there := map[string]bool{}
	for path := range packages(t) {
		outer, inner := split(path)
		there[outer], there[outer+"/"+inner] = true, true
		if _, known := layers[outer]; !known {
			t.Errorf("package %s has no layer; give it one here and in ARCHITECTURE.md", outer)
		}
		if _, known := innerLayer(outer, inner); !known && (inner != "." || innerLayers[outer] != nil) {
			t.Errorf("package %s has no layer within %s; give it one here", inner, outer)
		}
	}
	for outer := range layers {
		if !there[outer] {
			t.Errorf("package %s has a layer, and no code", outer)
		}
	}
	for outer, inside := range innerLayers {
		for inner := range inside {
			if !strings.HasSuffix(inner, "/*") && !there[outer+"/"+inner] {
				t.Errorf("package %s/%s has a layer, and no code", outer, inner)
			}
		}
	}
}

// Packages outside of httpengine know the boundary, and not the implementations behind it.
func TestHTTPEnginesAreHidden(t *testing.T) {
	for path, imports := range packages(t) {
		from, _ := split(path)
		for _, i := range imports {
			if to, inner := split(i.to); to == "httpengine" && from != to && !slices.Contains([]string{".", "engine", "httpmsg", "enginetest"}, inner) {
				t.Errorf("%s imports %s, want only httpengine, httpengine/engine and httpengine/httpmsg", i.file, i.to)
			}
		}
	}
}

// The extension server host imports leaf packages only: what people complain about in others is a binary of 100 MB.
func TestTheExtensionHostLinksNoServer(t *testing.T) {
	servers := []string{"coreapi", "store", "server", "apiservice", "discovery", "openapi", "lifecycle"}
	for path, imports := range packages(t) {
		if outer, _ := split(path); outer != "extserver" && outer != "pkg/extension" {
			continue
		}
		for _, i := range imports {
			if to, _ := split(i.to); slices.Contains(servers, to) {
				t.Errorf("%s imports %s", i.file, i.to)
			}
		}
	}
}

// imported is an import of another package of internal, by the path below internal, and a file that has it.
type imported struct{ to, file string }

// packages has the imports of every package of internal and pkg that has code. Tests may import everything.
func packages(t *testing.T) map[string][]imported {
	t.Helper()
	all := map[string][]imported{}
	read := func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		from := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../")
		if all[from] == nil {
			all[from] = []imported{}
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
			if to, ours := strings.CutPrefix(name, module); ours {
				all[from] = append(all[from], imported{to, path})
			} else if to, ours := strings.CutPrefix(name, publicModule); ours && strings.HasPrefix(to, "pkg/") {
				all[from] = append(all[from], imported{to, path})
			}
		}
		return nil
	}
	for _, root := range []string{".", "../pkg"} {
		if err := filepath.WalkDir(root, read); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// split returns the longest path in layers that contains a package, and the package's path within it, "." for itself. Packages below
// pkg are not divided.
func split(path string) (outer, inner string) {
	if strings.HasPrefix(path, "pkg/") {
		return path, "."
	}
	for outer = path; ; {
		if _, known := layers[outer]; known {
			break
		}
		i := strings.LastIndexByte(outer, '/')
		if i < 0 {
			return path, "."
		}
		outer = outer[:i]
	}
	if inner = strings.TrimPrefix(strings.TrimPrefix(path, outer), "/"); inner == "" {
		inner = "."
	}
	return outer, inner
}
