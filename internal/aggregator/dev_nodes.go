package aggregator

import (
	"context"
	_ "embed"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"portico.dev/internal/clients"
	"portico.dev/internal/pki"
	"portico.dev/internal/run"
)

// SimulatedNodes are the Nodes of `aggregator dev` that kwok simulates.
type SimulatedNodes struct {
	// Count is the number of Nodes. If it is 0, kwok is not started.
	Count int
	// Kwok is the path of the program, or a name to look up in PATH.
	Kwok string
}

// maxSimulatedNodes is the number of Nodes that kwok can keep alive on a small machine that also runs all other
// parts.
const maxSimulatedNodes = 1000

// kwokAnnotation marks Nodes for kwok.
const kwokAnnotation = "kwok.x-k8s.io/node"

//reference:annotations Labels of the Nodes of aggregator dev
const (
	// simulatedLabel is "true" on the Nodes of `aggregator dev --nodes`. The next start deletes surplus Nodes by this
	// label.
	simulatedLabel = "portico.dev/simulated"
)

//go:embed dev_kwok.yaml
var kwokConfig string

// find returns the path of kwok.
func (n SimulatedNodes) find() (string, error) {
	if n.Count < 0 || n.Count > maxSimulatedNodes {
		return "", fmt.Errorf("--nodes=%d: must be from 0 to %d", n.Count, maxSimulatedNodes)
	}
	if n.Count == 0 {
		return "", nil
	}
	path, err := exec.LookPath(n.Kwok)
	if err != nil {
		return "", fmt.Errorf("--nodes simulates Nodes with kwok, which was not found (%w): install it as https://kwok.sigs.k8s.io/docs/user/installation says, "+
			"or with `go install sigs.k8s.io/kwok/cmd/kwok@v0.8.0`, and name the program with --kwok-binary if it is not in PATH", err)
	}
	return path, nil
}

// kwok simulates the Nodes, and the pods that are assigned to them.
type kwok struct {
	nodes SimulatedNodes
	path  string // empty without Nodes
	front *Aggregator
	admin *rest.Config
	log   *zap.Logger
}

// prepare creates the Nodes, and deletes surplus Nodes of an earlier start.
func (k *kwok) prepare(ctx context.Context) error {
	client, err := clients.New(k.admin)
	if err != nil {
		return fmt.Errorf("client of an administrator: %w", err)
	}
	nodes := client.CoreV1().Nodes()
	wanted := map[string]bool{}
	for i := range k.nodes.Count {
		node := simulatedNode(fmt.Sprintf("node-%d", i+1))
		wanted[node.Name] = true
		if _, err := nodes.Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create node %s: %w", node.Name, err)
		}
	}
	list, err := nodes.List(ctx, metav1.ListOptions{LabelSelector: simulatedLabel})
	if err != nil {
		return fmt.Errorf("list simulated nodes: %w", err)
	}
	for _, node := range list.Items {
		if wanted[node.Name] {
			if err := k.renew(ctx, client, &node); err != nil {
				return err
			}
			continue
		}
		if err := nodes.Delete(ctx, node.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete node %s, which is not simulated any more: %w", node.Name, err)
		}
	}
	return nil
}

// renew makes kwok write the status of a Node again, because the port of its kubelet changes at each start.
func (k *kwok) renew(ctx context.Context, client *clients.Client, node *corev1.Node) error {
	if len(node.Status.Conditions) == 0 {
		return nil
	}
	node.Status.Conditions = nil
	if _, err := client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update status of node %s: %w", node.Name, err)
	}
	return nil
}

func simulatedNode(name string) *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{kwokAnnotation: "fake"}, Labels: map[string]string{
			simulatedLabel: "true", corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		}},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room, NodeInfo: corev1.NodeSystemInfo{
			OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: "kwok",
		}},
	}
}

// run runs kwok until ctx ends. If kwok ends earlier, run logs a warning, and the Nodes stay unchanged.
func (k *kwok) run(ctx context.Context) error {
	cmd, err := k.command(ctx)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(k.front.cfg.DataDir, "kwok.log"))
	if err != nil {
		return fmt.Errorf("log of kwok: %w", err)
	}
	defer func() { _ = log.Close() }() // the log is read while kwok runs
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); ctx.Err() == nil {
		k.log.Warn("kwok exited; the Nodes and their pods are no longer simulated", zap.String("log", log.Name()), zap.Error(err))
		<-ctx.Done()
	}
	return nil
}

// command writes the files of kwok to the data directory.
func (k *kwok) command(ctx context.Context) (*exec.Cmd, error) {
	dir, err := filepath.Abs(k.front.cfg.DataDir)
	if err != nil {
		return nil, err
	}
	cert, key, err := k.front.keys.Cluster().Issue(pki.Leaf{CommonName: "kwok", Server: true, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		return nil, fmt.Errorf("certificate of kwok: %w", err)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	for name, data := range map[string][]byte{
		"kwok.yaml": []byte(strings.ReplaceAll(kwokConfig, "DIR", dir)), "kwok.crt": cert, "kwok.key": key,
		"container.log": []byte(time.Now().UTC().Format(time.RFC3339Nano) + " stdout F kwok simulates this container: it runs nothing\n"),
	} {
		if err := pki.WriteFile(file(name), data, 0o600); err != nil {
			return nil, err
		}
	}
	admin, err := filepath.Abs(k.front.cfg.AdminKubeconfig())
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, k.path, "--kubeconfig", admin, "--config", file("kwok.yaml"), "--manage-all-nodes=false",
		"--manage-nodes-with-annotation-selector", kwokAnnotation+"=fake", "--node-lease-duration-seconds", "40",
		"--node-ip", "127.0.0.1", "--node-port", strconv.Itoa(port), "--server-address", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		"--tls-cert-file", file("kwok.crt"), "--tls-private-key-file", file("kwok.key"))
	cmd.Env = append(os.Environ(), "HOME="+dir) // where kwok looks for its own configuration
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = run.CommandGrace
	return cmd, nil
}

// freePort returns a loopback port that is free at the moment.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("port for kwok: %w", err)
	}
	defer func() { _ = l.Close() }() // it was never used
	return l.Addr().(*net.TCPAddr).Port, nil
}
