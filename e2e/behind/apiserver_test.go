package behind

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"portico.dev/e2e/programs"
)

// apiServer is an API server in front of the servers under test.
type apiServer struct {
	// Kubeconfig is an administrator's.
	Kubeconfig string
	// stop kills it as a machine failure does, and start restarts it.
	stop  func() error
	start func(context.Context) error
}

// portico starts a front door in the place of a kube-apiserver.
func portico(t *testing.T) *apiServer {
	t.Helper()
	dir, port := t.TempDir(), fmt.Sprint(freePort(t))
	s := &apiServer{}
	var p *programs.Process
	s.stop = func() error {
		if p == nil {
			return nil
		}
		p.Show(t)
		defer func() { p = nil }()
		return p.Kill()
	}
	s.start = func(context.Context) (err error) {
		p, s.Kubeconfig, err = programs.StartDev(binaries, dir, nil, "--secure-port", port)
		return err
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// accountKubeconfig writes the kubeconfig of a service account.
func accountKubeconfig(t *testing.T, admin, file, namespace, name string) {
	t.Helper()
	tokenKubeconfig(t, admin, file, strings.TrimSpace(kubectl(t, admin, "", "-n", namespace, "create", "token", name, "--duration=12h")))
}

// tokenKubeconfig writes the kubeconfig of the bearer of a token.
func tokenKubeconfig(t *testing.T, admin, file, token string) {
	t.Helper()
	c, err := clientcmd.LoadFromFile(admin)
	if err != nil {
		t.Fatal(err)
	}
	const bearer = "bearer"
	c.AuthInfos = map[string]*clientcmdapi.AuthInfo{bearer: {Token: token}}
	c.Contexts[c.CurrentContext].AuthInfo = bearer
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		t.Fatal(err)
	}
}
