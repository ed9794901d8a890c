package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"portico.dev/e2e/cluster"
	"portico.dev/e2e/environment"
)

// The API servers. Their names are also the base names of the results files.
const (
	portico       = "portico"
	kubeAPIServer = "kube-apiserver"
	// throughFront is a cluster with kube-apiserver. Specs reach it through a front door, and the other programs directly.
	throughFront = "cluster"
)

const (
	// directory is the directory of this command, relative to the root of the repository.
	directory = "e2e/specs"
	// cleanUp is the time that specs have to clean up after an interrupt.
	cleanUp = time.Minute
	// nodesReady limits the wait for the Nodes.
	nodesReady = 3 * time.Minute
)

// serverFlags are the flags of both API servers. ourFlags and theirFlags align them: the environment already starts
// kube-apiserver with most of ourFlags, and theirFlags extend its flags.
var (
	serverFlags = []string{"--allow-privileged=true", "--kubelet-preferred-address-types=InternalIP", "--service-cluster-ip-range=10.96.0.0/16", "--etcd-compaction-interval=1m"}
	ourFlags    = []string{
		"--authorization-mode=Node,RBAC", "--service-account-issuer=https://kubernetes.default.svc", "--root-ca-file=ca.crt", "--client-ca-file=ca.crt",
		"--service-account-key-file=tls.crt", "--service-account-signing-key-file=tls.key",
		"--enable-admission-plugins=StorageObjectInUseProtection", // enabled by default in kube-apiserver
	}
	theirFlags = []string{"--authorization-mode=Node", "--endpoint-reconciler-type=lease"}
)

type runner struct {
	programs, server, scratch, results string
	passed                             string // results file: only specs that passed in it are run; empty: all
	nodes, processes                   int
	limit, last                        time.Duration
	again                              bool
}

func (r *runner) file(name string) string { return filepath.Join(r.programs, name) }

func (r *runner) run(ctx context.Context, only string) (err error) {
	if r.scratch == "" {
		if r.scratch, err = os.MkdirTemp("", "portico-specs-"); err != nil {
			return err
		}
	}
	if r.scratch, err = filepath.Abs(r.scratch); err != nil {
		return err
	}
	if err := os.MkdirAll(r.scratch, 0o755); err != nil {
		return err
	}
	names, err := r.names(ctx, only)
	if err != nil {
		return err
	}
	fmt.Printf("%d specs are to be run; logs are in %s\n", len(names), r.scratch)
	if len(names) == 0 {
		return nil
	}
	y, err := environment.New(r.file("aggregator"))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\nthe log of the front door ends:\n%s", err, y.Log())
		}
		err = errors.Join(err, y.Close())
	}()
	log, err := os.Create(filepath.Join(r.scratch, "cluster.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	server, err := r.start(ctx, y)
	if err != nil {
		return err
	}
	c := cluster.New(cluster.In(r.programs), *server, r.scratch, log)
	defer func() { err = errors.Join(err, c.Stop()) }()
	if err := c.StartManager(cluster.ManagerFlags...); err != nil {
		return err
	}
	if r.nodes > 0 {
		if err := c.StartScheduler(); err != nil {
			return err
		}
		if err := c.StartKwok(); err != nil {
			return err
		}
		waiting, cancel := context.WithTimeoutCause(ctx, nodesReady, fmt.Errorf("not within %s", nodesReady))
		defer cancel()
		if err := c.MakeNodes(waiting, r.nodes, 1); err != nil {
			return err
		}
	}
	kubeconfig := server.Kubeconfig
	if r.server == throughFront {
		if kubeconfig, err = r.front(ctx, y, kubeconfig); err != nil {
			return err
		}
	}
	if err := r.ginkgo(ctx, kubeconfig, names); err != nil {
		return err
	}
	return c.Alive()
}

func (r *runner) start(ctx context.Context, y *environment.Environment) (*cluster.Server, error) {
	var front *environment.FrontDoor
	s := &cluster.Server{}
	flags := append([]string{"--advertise-address=" + cluster.Address()}, serverFlags...)
	if r.server == portico {
		f, _, err := y.FrontBeside(ctx, portico, nil, append(flags, ourFlags...)...)
		if err != nil {
			return nil, err
		}
		front, s.Own = f.FrontDoor, cluster.OwnControllers()
	} else {
		theirs := environment.Kubernetes{APIServer: r.file("kube-apiserver"), ControllerManager: r.file("kube-controller-manager")}
		i, _, err := y.Incumbent(ctx, kubeAPIServer, theirs, append(flags, theirFlags...)...)
		if err != nil {
			return nil, err
		}
		front = i.FrontDoor
	}
	var err error
	s.Client = front.Client
	s.CA, s.CAKey, s.Certificate, s.Key = filepath.Join(front.Dir, "ca.crt"), filepath.Join(front.Dir, "ca.key"), filepath.Join(front.Dir, "tls.crt"), filepath.Join(front.Dir, "tls.key")
	s.Kubeconfig, err = front.Kubeconfig()
	return s, err
}

// names returns the names of the specs to run, and writes selectedFile.
func (r *runner) names(ctx context.Context, only string) ([]string, error) {
	selected, err := readSelection(filepath.Join(directory, "selection.yaml"))
	if err != nil {
		return nil, err
	}
	wanted, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	have, err := readResults(r.results)
	if err != nil {
		return nil, err
	}
	elsewhere, err := readResults(r.passed)
	if err != nil {
		return nil, err
	}
	all, err := r.list(ctx)
	if err != nil {
		return nil, err
	}
	var names, selectedNames []string
	for _, s := range all {
		if !selected.contains(s.name) {
			continue
		}
		selectedNames = append(selectedNames, s.name)
		_, done := have[s.name]
		if wanted.MatchString(s.name) && (r.again || !done) && (r.passed == "" || elsewhere[s.name].Outcome == passed) {
			names = append(names, s.name)
		}
	}
	return names, os.WriteFile(filepath.Join(directory, selectedFile), []byte(strings.Join(selectedNames, "\n")+"\n"), 0o644)
}

// selectedFile contains the names of all selected specs, so that the page also shows specs that were not run.
const selectedFile = "selected.txt"

// spec is a spec of Kubernetes' suite.
type spec struct {
	name   string
	serial bool
}

// list returns all specs of the suite.
func (r *runner) list(ctx context.Context) ([]spec, error) {
	file := filepath.Join(r.scratch, "all-specs")
	selection, err := filepath.Abs("e2e/upstream/selection.yaml")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, r.file("upstream.test"), "-portico.list="+file, "-portico.selection="+selection)
	cmd.Dir = r.scratch
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("list the specs: %w\n%s", err, out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []spec
	for text := range strings.Lines(string(data)) {
		name, serial := strings.CutSuffix(strings.TrimSuffix(text, "\n"), "\tserial")
		all = append(all, spec{name, serial})
	}
	return all, nil
}

// ginkgo runs the named specs.
func (r *runner) ginkgo(ctx context.Context, kubeconfig string, names []string) error {
	file := filepath.Join(r.scratch, "names")
	if err := os.WriteFile(file, []byte(strings.Join(names, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	selection, err := filepath.Abs("e2e/upstream/selection.yaml")
	if err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(r.scratch, "ginkgo.log"))
	if err != nil {
		return err
	}
	defer out.Close()
	if r.last > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.last)
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, r.file("ginkgo"), "--procs="+strconv.Itoa(r.processes), "--no-color", "--silence-skips", "--grace-period=10s", "--timeout=24h",
		r.file("upstream.test"), "--", "-kubeconfig="+kubeconfig, "-kubectl-path="+r.file("kubectl"), "-portico.selection="+selection, "-portico.names="+file,
		"-portico.lines="+r.results, "-portico.limit="+r.limit.String(), "-dump-logs-on-failure=false", "-provider=skeleton",
		"-node-schedulable-timeout=20s", "-report-dir=")
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.scratch, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C interrupts only this command, which interrupts ginkgo once
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = cleanUp
	err = cmd.Run()
	if cmd.ProcessState == nil {
		return fmt.Errorf("start ginkgo: %w", err)
	}
	// Kill the processes that remain if ginkgo was killed.
	if kill := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); kill != nil && !errors.Is(kill, syscall.ESRCH) {
		return fmt.Errorf("end ginkgo: %w", kill)
	}
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) && ctx.Err() == nil {
		return err
	}
	return nil // the results contain the failed specs
}
