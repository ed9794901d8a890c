package environment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"portico.dev/e2e/programs"
)

// Kubernetes are the programs of the other side.
type Kubernetes struct {
	// APIServer and ControllerManager are paths of programs, of one version.
	APIServer, ControllerManager string
	// Scheduler is kube-scheduler, of the same version, and Kwok kwok: for clusters with Nodes only.
	Scheduler, Kwok string
}

// Version is what the API server says of itself.
func (t Kubernetes) Version() (string, error) {
	out, err := exec.Command(t.APIServer, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", t.APIServer, err)
	}
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "Kubernetes "), nil
}

// Incumbent is a kube-apiserver with an etcd of its own, and a kube-controller-manager once that is asked for.
type Incumbent struct {
	*FrontDoor
	Etcd *Server
	// Manager is nil until Manage.
	Manager *Server

	theirs Kubernetes
	dir    string
	ends   []func() error
}

// Incumbent starts the first two, and says how long it took the API server to be ready. All flags that are not needed are
// left as they are; flags are for what else a benchmark wants.
func (y *Environment) Incumbent(ctx context.Context, name string, theirs Kubernetes, flags ...string) (*Incumbent, time.Duration, error) {
	var err error
	i := &Incumbent{theirs: theirs}
	y.ends = append(y.ends, i.Stop)
	if i.dir, err = y.Dir(name); err != nil {
		return nil, 0, err
	}
	if i.Etcd, err = y.etcd(name+"-etcd", i.endsWith); err != nil {
		return nil, 0, err
	}
	port, err := y.port()
	if err != nil {
		return nil, 0, err
	}
	args, err := y.asked(i.dir, port)
	if err != nil {
		return nil, 0, err
	}
	for file, content := range map[string][]byte{"proxy.crt": y.orders.Client.Certificate, "proxy.key": y.orders.Client.Key} {
		if err := os.WriteFile(filepath.Join(i.dir, file), content, 0o600); err != nil {
			return nil, 0, err
		}
	}
	args = append(args,
		"--etcd-servers=http://"+i.Etcd.Address, "--authorization-mode=RBAC", "--client-ca-file=ca.crt", "--cert-dir=.",
		"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=tls.crt", "--service-account-signing-key-file=tls.key",
		"--proxy-client-cert-file=proxy.crt", "--proxy-client-key-file=proxy.key",
		"--requestheader-client-ca-file=ca.crt", "--requestheader-allowed-names=front-proxy-client", "--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
	)
	p, frontDoor, took, err := y.open(ctx, name, i.dir, theirs.APIServer, port, nil, append(args, flags...))
	i.endsWith(p)
	i.FrontDoor = frontDoor
	return i, took, err
}

// Manage starts the controllers: without them nobody deletes a namespace.
func (i *Incumbent) Manage() error {
	file, err := i.Kubeconfig()
	if err != nil {
		return err
	}
	p, err := programs.Start(i.Name+"-controllers", i.dir, []string{"HOME=" + i.dir, "PATH=" + os.Getenv("PATH")}, nil, i.theirs.ControllerManager,
		"--kubeconfig="+file, "--secure-port=0", "--use-service-account-credentials", "--service-account-private-key-file=tls.key", "--root-ca-file=ca.crt")
	if err != nil {
		return err
	}
	i.endsWith(p)
	i.Manager = &Server{Name: i.Name + "-controllers", PID: p.PID()}
	return nil
}

// endsWith kills a process when the incumbent is stopped: what it would still write is thrown away.
func (i *Incumbent) endsWith(p *programs.Process) {
	if p != nil {
		i.ends = append(i.ends, p.Kill)
	}
}

// Stop ends all that belongs to it, the last first.
func (i *Incumbent) Stop() error {
	var err error
	for ; len(i.ends) > 0; i.ends = i.ends[:len(i.ends)-1] {
		err = errors.Join(err, i.ends[len(i.ends)-1]())
	}
	return err
}
