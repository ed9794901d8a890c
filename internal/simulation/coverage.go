package simulation

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"text/tabwriter"
)

// coverage counts the pairs of a fault and an operation that was in progress when the fault began.
type coverage struct {
	mu    sync.Mutex // guards pairs
	pairs map[pair]int
}

type pair struct{ fault, operation string }

func newCoverage() *coverage { return &coverage{pairs: make(map[pair]int)} }

func (c *coverage) add(fault string, operations []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range operations {
		c.pairs[pair{fault, o}]++
	}
}

// faultNames and operationNames return the names of the two kinds of actions.
func faultNames() []string     { return actionNames(func(a action) bool { return a.end != nil }) }
func operationNames() []string { return actionNames(func(a action) bool { return a.end == nil }) }

func actionNames(wanted func(action) bool) []string {
	var names []string
	for _, a := range actions {
		if wanted(a) {
			names = append(names, a.name)
		}
	}
	slices.Sort(names)
	return names
}

// print writes a table with a row for each fault and a column for each operation.
func (c *coverage) print(w io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	table := tabwriter.NewWriter(w, 0, 0, 1, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "fault\t")
	for _, o := range operationNames() {
		fmt.Fprint(table, o, "\t")
	}
	fmt.Fprintln(table)
	missing := 0
	for _, f := range faultNames() {
		fmt.Fprint(table, f, "\t")
		for _, o := range operationNames() {
			n := c.pairs[pair{f, o}]
			if n == 0 {
				missing++
			}
			fmt.Fprint(table, n, "\t")
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush() // errors of w are the caller's
	fmt.Fprintf(w, "%d of %d pairs were not reached\n", missing, len(faultNames())*len(operationNames()))
}
