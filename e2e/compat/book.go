package compat

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Party is third-party software, or an imitation of it.
type Party struct {
	// Name is its name in failures and on the page.
	Name string
	// Module is the path of its Go module; empty for an imitation in this repository.
	Module string
	// In is the directory of the go.mod file that pins Module, relative to the root module; empty for the root module.
	In string
	// Version is printed if Module is empty.
	Version string
	// Is is a sentence that describes it and how it was run.
	Is string
	// Steps are its tested steps in the order of the page.
	Steps []Step

	mu   sync.Mutex // guards logs
	logs string
}

// Step is one tested behavior of a party.
type Step struct {
	// What is the tested behavior.
	What string
	// Differs describes how and why the behavior differs from kube-apiserver's; empty if it does not.
	Differs string
}

// LogsIn sets the path of the party's logs.
func (p *Party) LogsIn(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.logs = path
}

func (p *Party) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.logs == "" {
		return "the test's output"
	}
	return p.logs
}

// Book collects the results of a chapter of the page.
type Book struct {
	title   string
	parties []*Party

	mu     sync.Mutex // guards passed
	passed map[string]bool
}

// Open returns the Book of the chapter with a title.
func Open(title string, parties ...*Party) *Book {
	return &Book{title: title, parties: parties, passed: map[string]bool{}}
}

// Step runs one declared step of a party as a subtest, and reports whether it passed. If later steps depend on it, the caller
// must stop when it fails.
func (b *Book) Step(t *testing.T, p *Party, what string, run func(t *testing.T)) bool {
	t.Helper()
	if !slices.Contains(b.parties, p) || !slices.ContainsFunc(p.Steps, func(s Step) bool { return s.What == what }) {
		t.Errorf("%s: step %q is not declared: it would be missing from the page", p.Name, what)
		return false
	}
	ok := t.Run(what, func(t *testing.T) {
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("third party %s, step %q failed; logs: %s", p.Name, what, p.log())
			}
		})
		run(t)
	})
	if ok {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.passed[key(p, what)] = true
	}
	return ok
}

// Close compares the chapter with the page, or writes the chapter to the page if update is set. Call it after m.Run.
func (b *Book) Close(update bool) error {
	missed := b.missed()
	switch {
	case update && len(missed) > 0:
		return fmt.Errorf("compatibility page not written: steps that did not pass in this run: %s", strings.Join(missed, ", "))
	case !partial() && len(missed) > 0:
		return fmt.Errorf("docs/compatibility.md would list steps that did not pass: %s", strings.Join(missed, ", "))
	}
	chapter, err := b.render()
	if err != nil {
		return err
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	return compare(filepath.Join(root, "docs", "compatibility.md"), b.title, chapter, update)
}

func (b *Book) missed() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var missed []string
	for _, p := range b.parties {
		for _, s := range p.Steps {
			if k := key(p, s.What); !b.passed[k] {
				missed = append(missed, k)
			}
		}
	}
	return missed
}

func key(p *Party, what string) string { return p.Name + ": " + what }

// partial reports whether only some of the tests were selected, so that a step without a result is not an error.
func partial() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return true
		}
	}
	return testing.Short()
}

var errStale = errors.New("run its tests with -args -update, and look at the difference")
