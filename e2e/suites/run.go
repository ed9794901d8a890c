package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// The servers, as named in the results.
const (
	portico    = "portico"
	kubernetes = "kube-apiserver"
)

// runner runs packages, one at a time.
type runner struct {
	scratch  string
	selected *regexp.Regexp
	again    bool
	limit    time.Duration
	store    *resultStore
	goEnv    []string
	servers  []string // every package runs on each of them
}

// assets returns the directory of the programs of a server.
func (r *runner) assets(server string) string { return filepath.Join(r.scratch, "assets", server) }

// equip builds the programs of cmd/envtest, and links the real kube-apiserver, if there is one, to a directory with the same
// etcd.
func (r *runner) equip(ctx context.Context, apiserver, kubectl string) error {
	root, err := goCommand(ctx, ".", r.goEnv, "list", "-m", "-f", "{{.Dir}}", "portico.dev")
	if err != nil {
		return err
	}
	own := r.assets(portico)
	if err := os.MkdirAll(own, 0o755); err != nil {
		return err
	}
	if _, err := goCommand(ctx, strings.TrimSpace(string(root)), os.Environ(), "build", "-buildvcs=false", "-o", own+string(filepath.Separator), "./cmd/envtest/..."); err != nil {
		return err
	}
	r.servers = []string{portico}
	links := map[string]string{}
	if kubectl != "" {
		links[filepath.Join(own, "kubectl")] = kubectl
	}
	if apiserver != "" {
		r.servers = append(r.servers, kubernetes)
		theirs := r.assets(kubernetes)
		links[filepath.Join(theirs, "kube-apiserver")] = apiserver
		links[filepath.Join(theirs, "etcd")] = filepath.Join(own, "etcd")
		if kubectl != "" {
			links[filepath.Join(theirs, "kubectl")] = kubectl
		}
	}
	for link, program := range links {
		if err := symlink(program, link); err != nil {
			return err
		}
	}
	return nil
}

func symlink(program, link string) error {
	program, err := filepath.Abs(program)
	if err != nil {
		return err
	}
	if _, err := os.Stat(program); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return err
	}
	if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.Symlink(program, link)
}

func (r *runner) runAll(ctx context.Context) error {
	for _, s := range suites {
		dir := filepath.Join(r.scratch, "modules", filepath.Base(s.module))
		if err := s.copyTo(ctx, dir, r.goEnv); err != nil {
			return fmt.Errorf("copy %s: %w", s.module, err)
		}
		all, err := packages(ctx, dir, r.goEnv)
		if err != nil {
			return fmt.Errorf("list the packages of %s: %w", s.module, err)
		}
		for _, p := range all {
			if !r.selected.MatchString(p.path) || s.needsCluster(p.path) {
				continue
			}
			if err := r.runPackage(ctx, s, p); err != nil {
				return fmt.Errorf("%s: %w", p.path, err)
			}
		}
	}
	return nil
}

// runPackage runs a package on every server that has no result for it yet, or on every server if again is set.
func (r *runner) runPackage(ctx context.Context, s suite, p testPackage) error {
	binary := ""
	for _, server := range r.servers {
		if !r.again && r.store.contains(s, p.path, server) {
			continue
		}
		result := packageResult{Module: s.module, Version: s.version, Package: p.path, Server: server}
		if binary == "" {
			fmt.Printf("%s is built\n", p.path)
			file := filepath.Join(r.scratch, "test")
			if _, err := goCommand(ctx, p.dir, r.goEnv, "test", "-c", "-vet=off", "-o", file, "."); err != nil {
				result.Problem = bounded("it does not build: " + err.Error())
			}
			binary = file
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if result.Problem == "" {
			if err := r.runTests(ctx, p, binary, &result); err != nil {
				return err
			}
		}
		fmt.Println(result)
		if err := r.store.add(result); err != nil {
			return err
		}
	}
	return nil
}

// runTests runs the binary of a package in its directory and reads the results of its specs and tests. Failed tests do not cause
// an error.
func (r *runner) runTests(ctx context.Context, p testPackage, binary string, result *packageResult) error {
	base := filepath.Join(r.scratch, "output", result.Server, strings.ReplaceAll(p.path, "/", "_"))
	if err := os.MkdirAll(filepath.Dir(base), 0o755); err != nil {
		return err
	}
	output, err := os.Create(base + ".txt")
	if err != nil {
		return err
	}
	defer output.Close()
	report := base + ".json"
	if err := os.Remove(report); err != nil && !os.IsNotExist(err) {
		return err
	}
	args := []string{"-test.v", "-test.timeout=" + r.limit.String()}
	if p.ginkgo {
		args = append(args, "-ginkgo.json-report="+report, "-ginkgo.seed=1", "-ginkgo.no-color", "-ginkgo.timeout="+(r.limit-time.Minute).String())
	}
	limited, cancel := context.WithTimeout(ctx, r.limit+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(limited, binary, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, output, output
	cmd.Env = append(r.goEnv, "KUBEBUILDER_ASSETS="+r.assets(result.Server), "KUBEBUILDER_CONTROLPLANE_START_TIMEOUT=60s")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	began := time.Now()
	ended := cmd.Run()
	result.Seconds = time.Since(began).Seconds()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := readOutcome(base+".txt", report, result); err != nil {
		return err
	}
	if exit := (*exec.ExitError)(nil); ended != nil && (!errors.As(ended, &exit) || len(result.Specs) == 0) {
		result.Problem = bounded("it did not run to its end: " + ended.Error())
	}
	return nil
}

// readOutcome reads the output of a test binary and, if it exists, the report of its specs.
func readOutcome(output, report string, result *packageResult) error {
	text, err := os.ReadFile(output)
	if err != nil {
		return err
	}
	result.Specs = parseTests(string(text))
	data, err := os.ReadFile(report)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	specs, err := parseReport(data)
	if err != nil {
		return err
	}
	result.Specs = append(result.Specs, specs...)
	return nil
}
