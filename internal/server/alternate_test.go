package server

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// questioned allows every request and records the attributes.
type questioned struct {
	mu        sync.Mutex // guards questions
	questions []string
}

func (a *questioned) Authorize(_ context.Context, q authorizer.Attributes) (authorizer.Decision, string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.questions = append(a.questions, q.GetVerb()+" "+q.GetResource()+" in "+q.GetNamespace())
	return authorizer.DecisionAllow, "", nil
}

// Every form of a list or a watch requires the same right, which is checked once.
func TestC6AllListFormsRequireSameRight(t *testing.T) {
	for name, c := range map[string]struct {
		target, accept, want string
	}{
		"list":                      {target: "/api/v1/namespaces/a/pods", want: "list pods in a"},
		"list as a table":           {target: "/api/v1/namespaces/a/pods", accept: "application/json;as=Table;v=v1;g=meta.k8s.io", want: "list pods in a"},
		"list of metadata":          {target: "/api/v1/namespaces/a/pods", accept: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", want: "list pods in a"},
		"a page":                    {target: "/api/v1/namespaces/a/pods?limit=1&continue=x", want: "list pods in a"},
		"watch=1":                   {target: "/api/v1/namespaces/a/pods?watch=1", want: "watch pods in a"},
		"watch=true":                {target: "/api/v1/namespaces/a/pods?watch=true", want: "watch pods in a"},
		"watch without a value":     {target: "/api/v1/namespaces/a/pods?watch", want: "watch pods in a"},
		"watch as a table":          {target: "/api/v1/namespaces/a/pods?watch=1", accept: "application/json;as=Table;v=v1;g=meta.k8s.io", want: "watch pods in a"},
		"watch from initial events": {target: "/api/v1/namespaces/a/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", want: "watch pods in a"},
		"the old path of a watch":   {target: "/api/v1/watch/namespaces/a/pods", want: "watch pods in a"},
		"a watch of one object":     {target: "/api/v1/namespaces/a/pods?watch=1&fieldSelector=metadata.name%3Dx", want: "watch pods in a"},
		"watch=0 is a list":         {target: "/api/v1/namespaces/a/pods?watch=0", want: "list pods in a"},
	} {
		t.Run(name, func(t *testing.T) {
			b, a := newBench(), &questioned{}
			b.config.Authorizer = a
			b.do(t, http.MethodGet, c.target, "Test-User: alice", "Accept: "+c.accept)
			if !slices.Equal(a.questions, []string{c.want}) {
				t.Errorf("authorization checks for GET %s = %q, want %q once", c.target, a.questions, c.want)
			}
		})
	}
}
