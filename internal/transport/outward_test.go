package transport

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// followers lists the files with an http.Client that follows redirects, each with its reason.
var followers = map[string]string{
	"../../internal/auth/authtest/authtest.go": "only tests use it, and they talk to themselves",
}

// A client that follows a redirect sends its credentials to the host that the backend names (CVE-2023-45289, CVE-2024-45336).
// A RoundTripper follows none. Therefore code outside tests must set CheckRedirect on every http.Client,
// and must not use http.DefaultClient.
func TestA6HTTPClientsSetCheckRedirect(t *testing.T) {
	used := map[string]bool{}
	for _, root := range []string{"../../internal", "../../cmd"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, what := range redirecting(file) {
				if followers[path] == "" {
					t.Errorf("%s contains %s, want a client with CheckRedirect", path, what)
				}
				used[path] = true
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for path := range followers {
		if !used[path] {
			t.Errorf("%s follows no redirect, want it removed from followers", path)
		}
	}
}

// redirecting returns the uses of net/http clients that follow redirects.
func redirecting(file *ast.File) (found []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			if isHTTP(n.Type, "Client") && !sets(n, "CheckRedirect") {
				found = append(found, "http.Client without CheckRedirect")
			}
		case *ast.SelectorExpr:
			for _, name := range []string{"DefaultClient", "DefaultTransport", "Get", "Head", "Post", "PostForm"} {
				if isHTTP(n, name) {
					found = append(found, "http."+name)
				}
			}
		}
		return true
	})
	return found
}

func isHTTP(e ast.Expr, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	pkg, ok := s.X.(*ast.Ident)
	return ok && pkg.Name == "http"
}

func sets(c *ast.CompositeLit, field string) bool {
	for _, e := range c.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if id, ok := kv.Key.(*ast.Ident); ok && id.Name == field {
				return true
			}
		}
	}
	return false
}
