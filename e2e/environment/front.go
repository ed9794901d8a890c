package environment

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/e2e/measure"
	"portico.dev/e2e/programs"
)

const tokens = AdminToken + `,root,u-0,"system:masters"` + "\n" + UserToken + `,alice,u-1,"dev,ops"` + "\n"

// Front is a front door.
type Front struct {
	*FrontDoor
	process *programs.Process
}

// Front starts `aggregator serve` with a token file, RBAC and the audit log at level Metadata, without access log.
// flags are additional flags.
func (y *Environment) Front(name string, flags ...string) (*Front, error) {
	program, err := y.Aggregator()
	if err != nil {
		return nil, err
	}
	return y.FrontOf(program, name, flags...)
}

// FrontOf is Front for another build of the program.
func (y *Environment) FrontOf(program, name string, flags ...string) (*Front, error) {
	return y.front(program, Place{}, name, flags...)
}

// Place is the environment in which a front door runs.
type Place struct {
	// Env contains additional environment variables.
	Env []string
	// Within is a command that executes the program that follows it, in the same process.
	Within []string
}

// FrontIn is Front in another place.
func (y *Environment) FrontIn(p Place, name string, flags ...string) (*Front, error) {
	program, err := y.Aggregator()
	if err != nil {
		return nil, err
	}
	return y.front(program, p, name, flags...)
}

func (y *Environment) front(program string, in Place, name string, flags ...string) (*Front, error) {
	dir, err := y.Dir(name)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "tokens"), []byte(tokens), 0o600); err != nil {
		return nil, err
	}
	command := slices.Concat(in.Within, []string{
		program, "serve", "--data-dir", "data", "--secure-port", "0", "--token-auth-file", "tokens", "--access-log=false",
		"--audit-log-path", "audit.log", "--audit-log-maxbackup", "1",
	}, flags)
	env := append([]string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}, in.Env...)
	p, err := programs.Start(name, dir, env, y.log, command[0], command[1:]...)
	if err != nil {
		return nil, err
	}
	f := &Front{FrontDoor: &FrontDoor{y: y, exited: p.Exited()}, process: p}
	y.ends = append(y.ends, f.Stop)
	file := filepath.Join(dir, "data", "admin.kubeconfig")
	if err := programs.Poll(p.Exited(), func() error { _, err := os.Stat(file); return err }); err != nil {
		return nil, fmt.Errorf("start %s: %w\n%s", name, err, p.Output())
	}
	admin, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(admin.Host)
	if err != nil {
		return nil, err
	}
	f.Server = &Server{Name: name, Address: u.Host, PID: p.PID(), roots: admin.CAData, allocations: f.mallocs}
	return f, f.connect(admin)
}

// Stop stops the front door. It may be called before the environment is closed, which also calls it.
func (f *Front) Stop() error {
	code, err := f.process.Stop(os.Interrupt)
	if err == nil && code != 0 {
		err = fmt.Errorf("the front door ended with exit code %d\n%s", code, f.process.Output())
	}
	return err
}

// Collect makes the front door collect garbage. It has no effect on a front door without profiling.
func (f *Front) Collect(ctx context.Context) error {
	_, err := f.Client.Discovery().RESTClient().Get().AbsPath("/debug/pprof/heap").Param("gc", "1").DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Memory returns the memory metrics of the front door.
func (f *Front) Memory(ctx context.Context) (measure.Memory, error) {
	page, err := f.Client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return measure.Memory{}, fmt.Errorf("read metrics: %w", err)
	}
	return measure.ReadMemory(page)
}

func (f *Front) mallocs() (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	m, err := f.Memory(ctx)
	return m.Allocations, err
}
