package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// packageResult is the result of a package on a server.
type packageResult struct {
	Module  string  `json:"module"`
	Version string  `json:"version"`
	Package string  `json:"package"`
	Server  string  `json:"server"`
	Seconds float64 `json:"seconds"`
	// Problem is the reason why specs are missing; empty if the run was complete.
	Problem string `json:"problem,omitempty"`
	Specs   []spec `json:"specs"`
}

// count returns the number of specs in a state.
func (p packageResult) count(state string) int {
	n := 0
	for _, s := range p.Specs {
		if s.State == state {
			n++
		}
	}
	return n
}

func (p packageResult) String() string {
	return fmt.Sprintf("%s on %s: %d passed, %d failed, %d skipped, %.0f s %s",
		p.Package, p.Server, p.count(passed), p.count(failed), p.count(skipped), p.Seconds, p.Problem)
}

// key identifies a result: a later result replaces an earlier one with the same key.
type key struct{ module, version, path, server string }

func (p packageResult) key() key { return key{p.Module, p.Version, p.Package, p.Server} }

// maxLine limits a line of results.
const maxLine = 64 << 20

// readResults returns the last result of each package and server.
func readResults(data []byte) (map[key]packageResult, error) {
	all := map[key]packageResult{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, maxLine)
	for number := 1; lines.Scan(); number++ {
		var p packageResult
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			return nil, fmt.Errorf("line %d is no result: %w; remove it", number, err)
		}
		all[p.key()] = p
	}
	return all, lines.Err()
}

// resultStore is a file of results.
type resultStore struct {
	file  *os.File
	known map[key]packageResult
}

// openResults opens the file, and creates it if it does not exist.
func openResults(name string) (*resultStore, error) {
	data, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	known, err := readResults(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &resultStore{file, known}, nil
}

func (s *resultStore) contains(of suite, path, server string) bool {
	_, ok := s.known[key{of.module, of.version, path, server}]
	return ok
}

func (s *resultStore) add(p packageResult) error {
	line, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if _, err := s.file.Write(append(line, '\n')); err != nil {
		return err
	}
	s.known[p.key()] = p
	return nil
}

func (s *resultStore) close() error { return errors.Join(s.file.Sync(), s.file.Close()) }
