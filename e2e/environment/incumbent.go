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

// Kubernetes contains the paths of the Kubernetes programs to compare with.
type Kubernetes struct {
	// APIServer and ControllerManager are the paths of kube-apiserver and kube-controller-manager, in the same
	// version.
	APIServer, ControllerManager string
	// Scheduler is the path of kube-scheduler, in the same version, and Kwok of kwok. They are used for clusters with
	// Nodes only.
	Scheduler, Kwok string
}

// Version returns the version of kube-apiserver.
func (t Kubernetes) Version() (string, error) {
	out, err := exec.Command(t.APIServer, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", t.APIServer, err)
	}
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "Kubernetes "), nil
}

// Incumbent is a kube-apiserver with a separate etcd, and with a kube-controller-manager after Manage.
type Incumbent struct {
	*FrontDoor
	Etcd *Server
	// Manager is nil until Manage.
	Manager *Server

	theirs Kubernetes
	dir    string
	ends   []func() error
}

// Incumbent starts etcd and kube-apiserver, and returns the time until kube-apiserver was ready. It leaves all
// unnecessary flags at their defaults. flags are additional flags.
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
	args, err := y.commonFlags(i.dir, port)
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

// Manage starts kube-controller-manager, which is required for the deletion of namespaces.
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

// endsWith kills a process when the incumbent is stopped. Its remaining writes are not needed.
func (i *Incumbent) endsWith(p *programs.Process) {
	if p != nil {
		i.ends = append(i.ends, p.Kill)
	}
}

// Stop stops all processes in reverse order.
func (i *Incumbent) Stop() error {
	var err error
	for ; len(i.ends) > 0; i.ends = i.ends[:len(i.ends)-1] {
		err = errors.Join(err, i.ends[len(i.ends)-1]())
	}
	return err
}
