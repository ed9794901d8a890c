package environment

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"portico.dev/e2e/programs"
)

// Etcd starts an etcd with its default configuration.
func (y *Environment) Etcd(name string) (*Server, error) {
	return y.etcd(name, func(p *programs.Process) { y.ends = append(y.ends, p.Kill) })
}

// etcd passes the process to endsWith as soon as it has started.
func (y *Environment) etcd(name string, endsWith func(*programs.Process)) (*Server, error) {
	program, err := y.EtcdProgram()
	if err != nil {
		return nil, err
	}
	dir, err := y.Dir(name)
	if err != nil {
		return nil, err
	}
	var at [2]string // for clients and for (nonexistent) peers
	for i := range at {
		port, err := y.port()
		if err != nil {
			return nil, err
		}
		at[i] = net.JoinHostPort("127.0.0.1", port)
	}
	clients, peers := "http://"+at[0], "http://"+at[1]
	p, err := programs.Start(name, dir, []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}, nil, program, "--data-dir=data", "--log-level=error",
		"--listen-client-urls="+clients, "--advertise-client-urls="+clients,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=default="+peers)
	if err != nil {
		return nil, err
	}
	endsWith(p)
	if err := programs.Poll(p.Exited(), func() error { return healthy(clients) }); err != nil {
		return nil, fmt.Errorf("start %s: %w\n%s", name, err, p.Output())
	}
	return &Server{Name: name, Address: at[0], PID: p.PID()}, nil
}

func healthy(url string) error {
	client := &http.Client{
		Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Get(url + "/health")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err == nil && !strings.Contains(string(said), `"health":"true"`) {
		err = errors.New("etcd is not healthy: " + string(said))
	}
	return err
}

// EtcdProgram builds etcd from the module that is the front door's embedded etcd, so that both sides use the same
// version.
func (y *Environment) EtcdProgram() (string, error) {
	dir, err := y.Dir("programs")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "etcd")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, "go.etcd.io/etcd/server/v3").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build etcd: %w\n%s", err, out)
	}
	return program, nil
}
