// Package compat maintains docs/compatibility.md: the third-party software that was tested, and the results.
//
// A test package declares its parties next to its tests, each with its steps, opens a Book in TestMain and runs every step
// through Book.Step. Book.Close compares the package's chapter with the page, or writes it:
//
//	var operator = &compat.Party{
//		Name: "controller-runtime", Module: "sigs.k8s.io/controller-runtime", In: "e2e/clients/manager",
//		Steps: []compat.Step{
//			{What: "leader election"},
//			{What: "events", Differs: "the difference that a user of kube-apiserver would notice"},
//		},
//	}
//
//	func run(m *testing.M) int {
//		flag.Parse()
//		book = compat.Open("Clients", operator) // the chapter's title
//		code := m.Run()
//		if err := book.Close(*update); err != nil { ... }
//	}
//
//	func TestOperator(t *testing.T) {
//		operator.LogsIn(dir) // failure messages name this path
//		book.Step(t, operator, "leader election", func(t *testing.T) { ... })
//	}
//
// The page contains only steps that ran: a step that is not declared fails its test, and a declared step that did not pass fails
// Close, unless only a part of the tests was selected (-run, -skip, -short). Versions come from the go.mod files. The test
// package defines the flag -update: var update = flag.Bool("update", false, "write docs/compatibility.md").
package compat
