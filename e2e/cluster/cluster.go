package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"portico.dev/e2e/programs"
	"portico.dev/internal/run/freeport"
)

// Programs contains the paths of the programs.
type Programs struct {
	ControllerManager, Scheduler, Kwok string
}

// In returns the programs in a directory, with their usual names.
func In(dir string) Programs {
	file := func(name string) string { return filepath.Join(dir, name) }
	return Programs{ControllerManager: file("kube-controller-manager"), Scheduler: file("kube-scheduler"), Kwok: file("kwok")}
}

// Server is the API server of the programs.
type Server struct {
	// Kubeconfig is an administrator's kubeconfig file.
	Kubeconfig string
	// CA and CAKey are the files of the certificate authority for client certificates, with which the controllers sign. Key
	// and Certificate are the files of the key pair that signs service account tokens. kwok's kubelets also serve with this
	// certificate.
	CA, CAKey, Certificate, Key string
	// Own are the controllers that the server runs itself, with kube-controller-manager's names.
	Own []string
	// Client is an administrator's client.
	Client kubernetes.Interface
}

// Cluster holds the started programs.
type Cluster struct {
	// Manager, Scheduler and Kwok are nil until they are started.
	Manager, Scheduler, Kwok *programs.Process

	programs Programs
	server   Server
	dir      string
	log      io.Writer
	ports    freeport.Ports
}

// New returns a Cluster without starting a program. The programs run in dir, an absolute path, and log to log, which may be nil.
// The caller must call Stop.
func New(p Programs, s Server, dir string, log io.Writer) *Cluster {
	return &Cluster{programs: p, server: s, dir: dir, log: log}
}

// ManagerFlags raise the client rate limits of kube-controller-manager. Measurements would otherwise be bounded by its default of
// 20 requests per second.
var ManagerFlags = []string{"--kube-api-qps=1000", "--kube-api-burst=2000"}

// StartManager starts kube-controller-manager without the controllers that the server runs itself. MakeNodes
// needs it, because its controllers remove the not-ready taint of a new Node. Pods need it for their service accounts.
func (c *Cluster) StartManager(flags ...string) error {
	controllers := "*"
	for _, name := range c.server.Own {
		controllers += ",-" + name
	}
	args := []string{
		"--kubeconfig=" + c.server.Kubeconfig, "--authentication-kubeconfig=" + c.server.Kubeconfig, "--authorization-kubeconfig=" + c.server.Kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port=0", "--leader-elect=false", "--use-service-account-credentials", "--controllers=" + controllers,
		"--service-account-private-key-file=" + c.server.Key, "--root-ca-file=" + c.server.CA,
		"--cluster-signing-cert-file=" + c.server.CA, "--cluster-signing-key-file=" + c.server.CAKey,
	}
	var err error
	c.Manager, err = c.start("kube-controller-manager", c.programs.ControllerManager, append(args, flags...)...)
	return err
}

// StartScheduler starts kube-scheduler.
func (c *Cluster) StartScheduler() error {
	file := filepath.Join(c.dir, "scheduler.yaml")
	config := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q, qps: 2000, burst: 4000}
`, c.server.Kubeconfig)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return err
	}
	var err error
	c.Scheduler, err = c.start("kube-scheduler", c.programs.Scheduler, "--config="+file, "--authentication-kubeconfig="+c.server.Kubeconfig,
		"--authorization-kubeconfig="+c.server.Kubeconfig, "--bind-address=127.0.0.1", "--secure-port=0")
	return err
}

// StartKwok starts kwok for every Node, with the stages of its module. Its kubelets listen on an address of this machine.
func (c *Cluster) StartKwok() error {
	config, err := c.kwokConfig()
	if err != nil {
		return err
	}
	file := filepath.Join(c.dir, "kwok.yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return err
	}
	port, err := c.ports.Free()
	if err != nil {
		return err
	}
	ip, number := Address(), strconv.Itoa(port)
	c.Kwok, err = c.start("kwok", c.programs.Kwok, "--kubeconfig="+c.server.Kubeconfig, "--config="+file, "--manage-all-nodes", "--node-ip="+ip, "--node-port="+number,
		"--server-address="+net.JoinHostPort(ip, number), "--tls-cert-file="+c.server.Certificate, "--tls-private-key-file="+c.server.Key, "--node-lease-duration-seconds=40")
	return err
}

// Address returns a non-loopback address of this machine, or 127.0.0.1 if there is none. API servers do not proxy to loopback
// addresses.
func Address() string { return cmp.Or(programs.MachineAddress(), "127.0.0.1") }

func (c *Cluster) start(name, program string, args ...string) (*programs.Process, error) {
	return programs.Start(name, c.dir, []string{"HOME=" + c.dir, "PATH=" + os.Getenv("PATH")}, c.log, program, args...)
}

// Node returns a Node for kwok to simulate: 32 CPUs, 256 GiB, 110 Pods, and none of the status that only a kubelet writes.
func Node(name string) *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("110"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		}},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room, NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64"}},
	}
}

// MakeNodes creates count Nodes, named node-0000 and so on, atOnce at a time, and waits until all are ready.
func (c *Cluster) MakeNodes(ctx context.Context, count, atOnce int) error {
	nodes := c.server.Client.CoreV1().Nodes()
	creating, failing := errgroup.WithContext(ctx)
	creating.SetLimit(atOnce)
	for i := range count {
		creating.Go(func() error {
			_, err := nodes.Create(failing, Node(fmt.Sprintf("node-%04d", i)), metav1.CreateOptions{})
			return err
		})
	}
	if err := creating.Wait(); err != nil {
		return fmt.Errorf("create Nodes: %w", err)
	}
	return c.Until(ctx, func(ctx context.Context) error {
		list, err := nodes.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		ready := 0
		for _, node := range list.Items {
			if isReady(&node) {
				ready++
			}
		}
		if ready < count {
			return fmt.Errorf("%d of %d Nodes are ready", ready, count)
		}
		return nil
	})
}

// isReady reports whether a Node is ready and the controllers have removed its initial not-ready taint.
func isReady(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady {
			return false
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Until retries every second until try succeeds, a program exits, or ctx ends.
func (c *Cluster) Until(ctx context.Context, try func(context.Context) error) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if ended := c.Alive(); ended != nil {
			return errors.Join(err, ended)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// Alive returns an error that names a program that has exited.
func (c *Cluster) Alive() error {
	for name, p := range map[string]*programs.Process{"kube-controller-manager": c.Manager, "kube-scheduler": c.Scheduler, "kwok": c.Kwok} {
		if p == nil {
			continue
		}
		select {
		case <-p.Exited():
			const end = 2000
			out := p.Output()
			return fmt.Errorf("%s has ended:\n%s", name, out[max(0, len(out)-end):])
		default:
		}
	}
	return nil
}

// Stop kills the programs.
func (c *Cluster) Stop() error {
	var err error
	for _, p := range []*programs.Process{c.Kwok, c.Scheduler, c.Manager} {
		if p != nil {
			err = errors.Join(err, p.Kill()) // their last writes are not needed
		}
	}
	return err
}

// OwnControllers returns the controllers that a front door runs by default, and that a kube-controller-manager next to it must
// not run.
func OwnControllers() []string {
	return strings.Fields("namespace-controller garbage-collector-controller serviceaccount-controller root-ca-certificate-publisher-controller " +
		"clusterrole-aggregation-controller resourcequota-controller validatingadmissionpolicy-status-controller")
}
