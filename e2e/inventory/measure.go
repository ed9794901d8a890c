package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// limit is the time limit of one binary.
const limit = 30 * time.Minute

// measure adds a package and its tests to the report.
func (r *report) measure(p listed, alone time.Duration) error {
	dir, err := os.MkdirTemp("", "inventory-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary, graph := filepath.Join(dir, "test"), filepath.Join(dir, "graph")
	if _, err := goCommand(p.Dir, "test", "-c", "-vet=off", "-ldflags=-s -w", "-debug-actiongraph", graph, "-o", binary, "."); err != nil {
		return err
	}
	pkg := testedPackage{Package: p.ImportPath}
	if pkg.Link, pkg.LinkCPU, err = linked(graph); err != nil {
		return err
	}
	whole, used, err := r.execute(p.Dir, binary, "-test.v=test2json")
	if err != nil {
		return err
	}
	pkg.Seconds, pkg.CPU, pkg.Processes, pkg.Failed = used.wall.Seconds(), used.cpu.Seconds(), used.processes, used.failed
	tests, err := durations(whole)
	if err != nil {
		return err
	}
	var none *usage
	for _, t := range tests {
		pkg.Tests++
		t.Package = p.ImportPath
		if t.Seconds >= alone.Seconds() {
			if none == nil {
				if _, none, err = r.execute(p.Dir, binary, "-test.run=^$"); err != nil {
					return err
				}
			}
			_, used, err := r.execute(p.Dir, binary, "-test.run=^"+regexp.QuoteMeta(t.Test)+"$")
			if err != nil {
				return err
			}
			t.charge(used, none)
		}
		r.Tests = append(r.Tests, t)
	}
	r.Packages = append(r.Packages, pkg)
	return nil
}

// charge sets the costs of a test to what it used beyond a run of its binary without tests.
func (t *testedTest) charge(used, none *usage) {
	t.Alone = true
	t.CPU = max(0, used.cpu-none.cpu).Seconds()
	t.Wait = max(0, (used.wall-none.wall)-(used.cpu-none.cpu)).Seconds()
	t.Processes = max(0, used.processes-none.processes)
}

// linked reads the real time and the CPU time of linking from the go command's action graph.
func linked(graph string) (real, cpu float64, err error) {
	text, err := os.ReadFile(graph)
	if err != nil {
		return 0, 0, err
	}
	var actions []struct {
		Mode                     string
		CmdReal, CmdUser, CmdSys int64 // nanoseconds
	}
	if err := json.Unmarshal(text, &actions); err != nil {
		return 0, 0, err
	}
	for _, a := range actions {
		if a.Mode == "link" {
			return time.Duration(a.CmdReal).Seconds(), time.Duration(a.CmdUser + a.CmdSys).Seconds(), nil
		}
	}
	return 0, 0, errors.New("the go command says nothing about linking it")
}

// usage contains the resources of a run of a test binary, including all its descendants.
type usage struct {
	wall, cpu time.Duration
	processes int
	failed    bool
}

// execute runs a test binary in the directory of its package, and returns its output. Failed tests do not cause an error.
func (r *report) execute(dir, binary string, args ...string) ([]byte, *usage, error) {
	cmd := exec.Command(binary, append(args, "-test.timeout="+limit.String())...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Minute // a descendant may keep the output open
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	count := countDescendants(cmd.Process.Pid, r.found)
	err := cmd.Wait()
	u := &usage{wall: time.Since(start), processes: count()}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, nil, err
	}
	u.failed = err != nil
	u.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return out.Bytes(), u, nil
}

// durations returns the top-level tests in the output of a test binary with -test.v=test2json.
func durations(output []byte) ([]testedTest, error) {
	convert := exec.Command("go", "tool", "test2json", "-t") // without -t, the output has no durations
	convert.Stdin = bytes.NewReader(output)
	text, err := convert.Output()
	if err != nil {
		return nil, fmt.Errorf("test2json: %w", err)
	}
	var tests []testedTest
	for events := json.NewDecoder(bytes.NewReader(text)); events.More(); {
		var event struct {
			Action, Test string
			Elapsed      float64
		}
		if err := events.Decode(&event); err != nil {
			return nil, err
		}
		ended := event.Action == "pass" || event.Action == "fail"
		if ended && event.Test != "" && !strings.Contains(event.Test, "/") {
			tests = append(tests, testedTest{Test: event.Test, Seconds: event.Elapsed})
		}
	}
	return tests, nil
}
