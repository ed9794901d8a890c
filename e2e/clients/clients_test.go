package clients

import (
	"os"
	"testing"

	"portico.dev/e2e/compat"
)

// client is one client program of the test.
type client interface {
	party() *compat.Party
	// begin starts the program and runs its own steps.
	begin(t *testing.T, w *testEnv)
	// works exercises the program in a namespace, with objects of an unused name.
	works(t *testing.T, w *testEnv, namespace, name string)
	// emptied is called after the deletion of its namespace.
	emptied(t *testing.T, w *testEnv, namespace, name string)
}

func TestClients(t *testing.T) {
	w := newTestEnv(t)
	lead := &manager{}
	others := []client{&operator{}, &informers{of: watchLists, name: "watch-lists"},
		&informers{of: lists, name: "lists", env: []string{"KUBE_FEATURE_WatchListClient=false"}}, &installer{}, &kubectl{}}
	together(t, "manager", []client{lead}, func(t *testing.T, c client) { c.begin(t, w) }) // creates the CRD for the remaining clients
	together(t, "begun", others, func(t *testing.T, c client) { c.begin(t, w) })
	all := append(others, lead)

	w.rotate()
	each(t, rotated, all, func(t *testing.T, c client) { c.works(t, w, "rotated", "rotated") })

	w.namespace(t, "restarted")
	made := w.restart("restarted")
	each(t, restarted, all, func(t *testing.T, c client) {
		c.works(t, w, "restarted", "restarted")
		if i, ok := c.(*informers); ok {
			i.saw(t, "restarted", made)
		}
	})

	w.reregister("v1.apps", "v1.rbac.authorization.k8s.io", "v1.clients.portico.dev", "v1.shop.portico.dev")
	each(t, registered, all, func(t *testing.T, c client) { c.works(t, w, "registered", "registered") })

	w.unregister(dead, "") // the deletion of namespaces waits for objects of an unknown server
	w.namespace(t, "emptied")
	together(t, "before", all, func(t *testing.T, c client) { c.works(t, w, "emptied", "before") })
	w.empty(t, "emptied")
	each(t, emptied, all, func(t *testing.T, c client) {
		c.emptied(t, w, "emptied", "before")
		c.works(t, w, "emptied", "after")
	})

	w.backend.Ended = true
	if _, err := w.backend.Stop(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	together(t, "desert", all, func(t *testing.T, c client) {
		if i, ok := c.(*installer); ok {
			book.Step(t, helm, desert, func(t *testing.T) { i.works(t, w, "desert", "desert") })
		}
	})
}

// each runs a common step for all clients.
func each(t *testing.T, what string, clients []client, run func(*testing.T, client)) {
	t.Helper()
	together(t, what, clients, func(t *testing.T, c client) {
		book.Step(t, c.party(), what, func(t *testing.T) { run(t, c) })
	})
}

// together runs a function for all clients in parallel and waits for them. Later steps would fail for the same reason with a
// misleading message, so a failure ends the test.
func together(t *testing.T, what string, clients []client, run func(*testing.T, client)) {
	t.Helper()
	if !t.Run(what, func(t *testing.T) {
		for _, c := range clients {
			t.Run(c.party().Name, func(t *testing.T) {
				t.Parallel()
				run(t, c)
			})
		}
	}) {
		t.FailNow()
	}
}
