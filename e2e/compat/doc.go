// Package compat keeps docs/compatibility.md: what was tried with software that others wrote, and what came of it.
//
// A test package declares its parties beside its tests, each with the steps that it is put through, opens a Book in TestMain
// and runs every step through Book.Step. Book.Close compares the package's chapter with the page, or writes it:
//
//	var operator = &compat.Party{
//		Name: "controller-runtime", Module: "sigs.k8s.io/controller-runtime", In: "e2e/clients/manager",
//		Steps: []compat.Step{
//			{What: "leader election"},
//			{What: "events", Differs: "what a user of kube-apiserver would see otherwise"},
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
//		operator.LogsIn(dir) // what a failure tells people to read
//		book.Step(t, operator, "leader election", func(t *testing.T) { ... })
//	}
//
// The page says only what ran: a step that is not declared fails its test, and one that is declared and was not passed fails
// Close, unless a part of the tests was asked for (-run, -skip, -short). Versions are those that go.mod files pin. The flag
// -update is the test package's own: var update = flag.Bool("update", false, "write docs/compatibility.md").
package compat
