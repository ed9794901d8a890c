package main

import (
	"crypto/sha512"
	"fmt"
	"testing"

	"portico.dev/internal/coreapi/openapidocs"
)

// The documents in the binary must describe the resources that coreapi serves now.
func TestDocumentsAreCurrent(t *testing.T) {
	served, err := discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	documents, err := describe(served)
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]string{}
	for _, d := range append(openapidocs.Documents(), openapidocs.Swagger()) {
		held[d.Path] = d.Hash
	}
	for _, d := range openapidocs.OptIn() {
		held[d.Path], held["v2 of "+d.Path] = d.Hash, d.Swagger.Hash
	}
	for _, d := range documents {
		if d.swagger != nil && held["v2 of "+d.path] != fmt.Sprintf("%X", sha512.Sum512(d.swagger)) {
			t.Errorf("the version 2 document of %q is outdated, want the current one: run go generate in internal/coreapi/openapidocs", d.path)
		}
		delete(held, "v2 of "+d.path)
		if held[d.path] != fmt.Sprintf("%X", sha512.Sum512(d.body)) {
			t.Errorf("the document of %q is outdated, want the current one: run go generate in internal/coreapi/openapidocs", d.path)
		}
		delete(held, d.path)
	}
	for path := range held {
		t.Errorf("%q is described and not served, want served documents only: run go generate in internal/coreapi/openapidocs", path)
	}
}
