package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"

	"portico.dev/e2e/packed"
	"sigs.k8s.io/yaml"
)

// The outcomes of a spec.
const (
	passed  = "passed"
	failed  = "failed"
	skipped = "skipped" // the spec skipped itself
	limited = "limit"   // the spec exceeded its time limit
)

// result is a line of a file of results. The suite writes it (e2e/upstream/lines_test.go).
type result struct {
	Name    string  `json:"name"`
	Outcome string  `json:"outcome"`
	Seconds float64 `json:"seconds"`
	Message string  `json:"message,omitempty"`
}

// maxLine limits a line.
const maxLine = 1 << 20

// unpack writes a packed file of results, unless the file exists: a run was interrupted then.
func unpack(file string) error {
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		return err
	}
	data, err := packed.Read(file + packed.Suffix)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

// pack replaces a file of results by a packed file.
func pack(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := packed.Write(file+packed.Suffix, data); err != nil {
		return err
	}
	return os.Remove(file)
}

// readResults returns the last result of each spec, from the file, or else from the packed file. It returns no results if neither
// exists.
func readResults(file string) (map[string]result, error) {
	data, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		data, err = packed.Read(file + packed.Suffix)
	}
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	all := map[string]result{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, maxLine)
	for number := 1; lines.Scan(); number++ {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s:%d is no result: %w", file, number, err)
		}
		all[r.Name] = r
	}
	return all, lines.Err()
}

const conformanceMark = "[Conformance]"

// selection determines the specs to run.
type selection struct {
	// Also contains expressions for specs that are run in addition to the Conformance specs.
	Also []expression `json:"also"`
	// LeftOut contains expressions for specs selected by Also that are not run. The Conformance specs are always run.
	LeftOut []expression `json:"leftOut"`
}

type expression struct {
	// Names is a regular expression for names of specs.
	Names string `json:"names"`
	// Because is the reason.
	Because string `json:"because"`

	compiled *regexp.Regexp
}

func readSelection(file string) (*selection, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s := &selection{}
	if err := yaml.UnmarshalStrict(data, s); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, list := range [][]expression{s.Also, s.LeftOut} {
		for i := range list {
			if list[i].Because == "" {
				return nil, fmt.Errorf("%s: %s has no reason", file, list[i].Names)
			}
			if list[i].compiled, err = regexp.Compile(list[i].Names); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return s, nil
}

func (s *selection) contains(name string) bool {
	matches := func(list []expression) bool {
		for _, e := range list {
			if e.compiled.MatchString(name) {
				return true
			}
		}
		return false
	}
	return strings.Contains(name, conformanceMark) || matches(s.Also) && !matches(s.LeftOut)
}
