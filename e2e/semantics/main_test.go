package semantics

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/e2e/programs"
)

// patience limits every wait for a condition.
const patience = 3 * time.Minute

var directory = flag.String("programs", "", "directory of the aggregator to test; default one built from the tree")

// front is the shared front door. Each test uses separate namespaces and names.
var front *frontDoor

type frontDoor struct {
	config  *rest.Config // of an administrator
	http    *http.Client // the same, without the headers of a client
	typed   kubernetes.Interface
	socket  string // of its etcd
	process *programs.Process
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "semantics-")
	if err != nil {
		return failed(err)
	}
	defer os.RemoveAll(dir)
	built := *directory
	if built == "" {
		built = dir
		if err := programs.Build(built, "aggregator"); err != nil {
			return failed(err)
		}
	}
	socket := filepath.Join(dir, "etcd.sock")
	p, kubeconfig, err := programs.StartDev(built, dir, io.Discard, "--etcd-unix-socket", socket)
	if err != nil {
		return failed(err)
	}
	if front, err = connect(kubeconfig); err == nil {
		front.socket, front.process = socket, p
		code = m.Run()
	}
	ended, stopping := p.Stop(os.Interrupt)
	if err := errors.Join(err, stopping); err != nil || ended != 0 {
		return failed(fmt.Errorf("the front door ended with %d, %w\n%s", ended, err, p.Output()))
	}
	return code
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func connect(kubeconfig string) (*frontDoor, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &frontDoor{config: config, http: client, typed: typed}, nil
}

// poll calls try until it returns nil.
func poll(ctx context.Context, try func() error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("still: %w", err)
		}
	}
}

// eventually fails the test if try does not return nil in time.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	if err := poll(within(t), try); err != nil {
		t.Fatal(err)
	}
}

// within is the time that anything in these tests may take.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// etcd is a client of the storage of the front door.
func etcd(t *testing.T) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + front.socket}, DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}
