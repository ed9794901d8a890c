package environment

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"

	"portico.dev/e2e/programs"
)

// policy is the audit policy of both sides: one event when a request is complete, and one when a watch starts.
const policy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

// commonFlags returns the flags that kube-apiserver and a front door share, and writes the files that they name to dir.
func (y *Environment) commonFlags(dir, port string) ([]string, error) {
	key, err := y.ca.KeyPEM()
	if err != nil {
		return nil, err
	}
	for name, content := range map[string][]byte{
		"tokens": []byte(tokens), "policy": []byte(policy), "ca.crt": y.orders.CA, "ca.key": key, "tls.crt": y.orders.Serving.Certificate, "tls.key": y.orders.Serving.Key,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, err
		}
	}
	return []string{
		"--bind-address=127.0.0.1", "--secure-port=" + port, "--tls-cert-file=tls.crt", "--tls-private-key-file=tls.key", "--token-auth-file=tokens",
		"--audit-log-path=audit.log", "--audit-log-maxbackup=1", "--audit-policy-file=policy",
	}, nil
}

// FrontBeside starts a front door with the same configuration as Incumbent, and returns the time until it was ready.
// Without an etcd it uses its embedded one. flags are additional flags.
func (y *Environment) FrontBeside(ctx context.Context, name string, etcd *Server, flags ...string) (*Front, time.Duration, error) {
	program, err := y.Aggregator()
	if err != nil {
		return nil, 0, err
	}
	dir, err := y.Dir(name)
	if err != nil {
		return nil, 0, err
	}
	port, err := y.port()
	if err != nil {
		return nil, 0, err
	}
	args, err := y.commonFlags(dir, port)
	if err != nil {
		return nil, 0, err
	}
	args = append(append([]string{"serve"}, args...), "--data-dir=data", "--access-log=false")
	if etcd != nil {
		args = append(args, "--etcd-servers=http://"+etcd.Address)
	}
	f := &Front{}
	var took time.Duration
	f.process, f.FrontDoor, took, err = y.open(ctx, name, dir, program, port, y.log, append(args, flags...))
	if f.process != nil {
		y.ends = append(y.ends, f.Stop)
	}
	return f, took, err
}

// open starts an API server, optionally with a log, and waits until it is ready. If it returns a process, even with
// an error, the caller must end it.
func (y *Environment) open(ctx context.Context, name, dir, program, port string, log io.Writer, args []string) (*programs.Process, *FrontDoor, time.Duration, error) {
	began := time.Now()
	p, err := programs.Start(name, dir, []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}, log, program, args...)
	if err != nil {
		return nil, nil, 0, err
	}
	d := &FrontDoor{y: y, Dir: dir, exited: p.Exited(), Server: &Server{Name: name, Address: net.JoinHostPort("127.0.0.1", port), PID: p.PID(), roots: y.ca.PEM()}}
	if err := d.untilReady(ctx); err != nil {
		return p, nil, 0, fmt.Errorf("start %s: %w\n%s", name, err, p.Output())
	}
	took := time.Since(began)
	err = d.connect(&rest.Config{Host: "https://" + d.Address, BearerToken: AdminToken, TLSClientConfig: rest.TLSClientConfig{CAData: d.roots}})
	return p, d, took, err
}

// Kubeconfig writes an administrator's kubeconfig to the directory of the server.
func (d *FrontDoor) Kubeconfig() (file string, err error) {
	file = filepath.Join(d.Dir, "kubeconfig")
	config := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: it, cluster: {server: "https://%s", certificate-authority-data: %s}}]
users: [{name: it, user: {token: %s}}]
contexts: [{name: it, context: {cluster: it, user: it}}]
current-context: it
`, d.Address, base64.StdEncoding.EncodeToString(d.roots), AdminToken)
	return file, os.WriteFile(file, []byte(config), 0o600)
}

// untilReady polls /readyz until it succeeds.
func (d *FrontDoor) untilReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, programs.Patience, fmt.Errorf("it is not ready within %s", programs.Patience))
	defer cancel()
	client, err := NewClient(d.Server, true)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	for {
		select {
		case <-d.exited:
			return errors.New("it has ended")
		default:
		}
		if d.ready(ctx, client) {
			return nil
		}
		if err := Pause(ctx, askAgain); err != nil {
			return context.Cause(ctx)
		}
	}
}

func (d *FrontDoor) ready(ctx context.Context, client *http.Client) bool {
	r, err := NewRequest(ctx, d.Server, Ask{Method: http.MethodGet, Path: "/readyz", Token: AdminToken}, "")
	if err != nil {
		return false
	}
	resp, err := client.Do(r)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK
}
