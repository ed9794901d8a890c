package aggregator

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/retry"

	"portico.dev/internal/clients"
	"portico.dev/internal/pki"
	"portico.dev/internal/run"
	"portico.dev/internal/version"
)

// Dev runs a front door with an extension server for the metrics of this machine, and prints instructions to out. The
// extension server is a child process (devProcess) with a separate port, certificate and service account, and is registered through
// the public API. In addition, kwok simulates the Nodes.
func Dev(ctx context.Context, c Config, nodes SimulatedNodes, out io.Writer, log *zap.Logger) error {
	started := time.Now()
	kwok, err := nodes.find()
	if err != nil {
		return err
	}
	warnings := newDevLog(ctx, log)
	log = warnings.log
	front, err := New(c, log)
	if err != nil {
		return err
	}
	d := &devExtserver{config: c, front: front, nodes: nodes, kwok: kwok, out: out, log: log.Named("dev"), ready: make(chan struct{})}
	g := &run.Group{}
	// The first member stops last: a backend that stopped before the front door would be reported as an outage.
	g.Add(run.Member{Name: "demonstration", Run: d.run})
	g.Add(run.Member{Name: "front door", Run: front.Run, Ready: front.Ready()})
	g.Add(run.Member{Name: "banner", Run: func(ctx context.Context) error {
		select {
		case <-d.ready:
		case <-ctx.Done():
			return nil
		}
		if err := printInstructions(out, front.URL(), c.AdminKubeconfig(), (&devProcess{dataDir: c.DataDir}).pidFile(), time.Since(started)); err != nil {
			return err
		}
		front.awaitAvailable(ctx, devNamespace, devName, quietStart)
		warnings.started()
		<-ctx.Done()
		return nil
	}})
	return g.Run(ctx)
}

func printInstructions(out io.Writer, url, kubeconfig, pidFile string, took time.Duration) error {
	path, err := filepath.Abs(kubeconfig)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, `Portico listens on %s (ready in %.1f s). Ctrl-C stops it.

  export KUBECONFIG=%s

Try:
  kubectl get apiservices
  kubectl top nodes
  kubectl create configmap a --from-literal=k=v

Stop the extension server behind kubectl top, which starts again after a minute:
  kill $(cat %s)
  kubectl top nodes
  aggregator doctor
`, url, took.Seconds(), shellQuote(path), shellQuote(pidFile))
	return err
}

// shellQuote leaves an ordinary path unchanged, so that the line stays easy to read.
func shellQuote(path string) string {
	if strings.IndexFunc(path, func(r rune) bool {
		return !strings.ContainsRune("/._-+@:,", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) < 0 {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// devExtserver runs the extension server of `aggregator dev`, and does the work of its administrator.
type devExtserver struct {
	config Config
	front  *Aggregator
	nodes  SimulatedNodes
	kwok   string // path of the program; empty without simulated Nodes
	out    io.Writer
	log    *zap.Logger
	ready  chan struct{} // closed when the extension server is ready
}

const prepareTimeout = 30 * time.Second

func (d *devExtserver) run(ctx context.Context) error {
	select {
	case <-d.front.Ready():
	case <-ctx.Done():
		return nil
	}
	if err := requireAdminKubeconfig(d.config); err != nil {
		return err
	}
	admin, err := clientcmd.BuildConfigFromFlags("", d.config.AdminKubeconfig())
	if err != nil {
		return fmt.Errorf("read the administrator's kubeconfig: %w", err)
	}
	node, err := newDevNode()
	if err != nil {
		return err
	}
	token := &tokenFile{admin: admin, file: filepath.Join(d.config.DataDir, "extserver.token"), log: d.log}
	simulated := &kwok{nodes: d.nodes, path: d.kwok, front: d.front, admin: admin, log: d.log}
	if err := d.prepare(ctx, admin, node, token, simulated); err != nil {
		return err
	}
	kubeconfig, err := d.writeKubeconfig(token.file)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("path of this program: %w", err)
	}
	process := &devProcess{
		program: program, kubeconfig: kubeconfig, node: node.Name, dataDir: d.config.DataDir, out: d.out, pause: devPause, ready: d.ready,
	}
	g := &run.Group{}
	g.Add(run.Member{Name: "token", Run: token.renew})
	g.Add(run.Member{Name: "pending pods", Run: func(ctx context.Context) error { return (&pendingPods{d.nodes.Count, d.log}).run(ctx, admin) }})
	g.Add(run.Member{Name: "extension server", Run: process.run, Ready: d.ready})
	if d.kwok != "" {
		g.Add(run.Member{Name: "kwok", Run: simulated.run})
	}
	return g.Run(ctx)
}

// prepare does the work of an administrator before an extension server starts. It creates the Node that the server
// reports on, an identity, and the rights that `extserver manifests --create-registration` prints.
func (d *devExtserver) prepare(ctx context.Context, admin *rest.Config, node *devNode, token *tokenFile, simulated *kwok) error {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	if err := node.ensure(ctx, admin); err != nil {
		return err
	}
	if err := simulated.prepare(ctx); err != nil {
		return err
	}
	if err := applyRights(ctx, admin); err != nil {
		return err
	}
	if err := waitForRights(ctx, admin); err != nil {
		return err
	}
	return token.write(ctx)
}

func (d *devExtserver) writeKubeconfig(tokenFile string) (string, error) {
	token, err := filepath.Abs(tokenFile)
	if err != nil {
		return "", err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[contextName] = &clientcmdapi.Cluster{Server: d.front.URL(), CertificateAuthorityData: d.front.keys.Cluster().BundlePEM()}
	config.AuthInfos[devName] = &clientcmdapi.AuthInfo{TokenFile: token}
	config.Contexts[contextName] = &clientcmdapi.Context{Cluster: contextName, AuthInfo: devName}
	config.CurrentContext = contextName
	data, err := clientcmd.Write(*config)
	if err != nil {
		return "", fmt.Errorf("write kubeconfig of the extension server: %w", err)
	}
	file := filepath.Join(d.config.DataDir, "extserver.kubeconfig")
	return file, pki.WriteFile(file, data, os.FileMode(0o600))
}

// devNode is the Node that represents this machine in `aggregator dev`. No pods run on it. `kubectl top nodes`
// computes its percentages from its capacity.
type devNode struct {
	Name   string
	status corev1.NodeStatus
}

func newDevNode() (*devNode, error) {
	name, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name of this machine: %w", err)
	}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, fmt.Errorf("procfs of this machine: %w", err)
	}
	memory, err := fs.Meminfo()
	if err != nil {
		return nil, fmt.Errorf("memory of this machine: %w", err)
	}
	if memory.MemTotal == nil {
		return nil, fmt.Errorf("memory of this machine: procfs does not say MemTotal")
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(int64(*memory.MemTotal)<<10, resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(0, resource.DecimalSI),
	}
	name = strings.ToLower(name)
	return &devNode{Name: name, status: corev1.NodeStatus{
		Capacity:    capacity,
		Allocatable: capacity,
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: name},
			{Type: corev1.NodeInternalIP, Address: "127.0.0.1"},
		},
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "NoKubelet",
			Message:           "this machine, for its metrics only: no kubelet runs here, and no pod can",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}},
		NodeInfo: nodeInfo(),
	}}, nil
}

func nodeInfo() corev1.NodeSystemInfo {
	info := corev1.NodeSystemInfo{
		OperatingSystem: runtime.GOOS,
		Architecture:    runtime.GOARCH,
		KubeletVersion:  version.Get().GitVersion,
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		info.KernelVersion = unix.ByteSliceToString(u.Release[:])
	}
	for line := range strings.Lines(readText("/etc/os-release")) {
		if value, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			info.OSImage = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	info.MachineID = strings.TrimSpace(readText("/etc/machine-id"))
	info.BootID = strings.TrimSpace(readText("/proc/sys/kernel/random/boot_id"))
	return info
}

// readText returns the content of a file, or an empty string if it cannot be read: these facts are optional.
func readText(name string) string {
	data, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return string(data)
}

// ensure creates the Node, or updates the Node of an earlier start.
func (n *devNode) ensure(ctx context.Context, admin *rest.Config) error {
	client, err := clients.New(admin)
	if err != nil {
		return fmt.Errorf("client of an administrator: %w", err)
	}
	nodes := client.CoreV1().Nodes()
	wanted := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{
		corev1.LabelHostname: n.Name, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
	}}, Spec: corev1.NodeSpec{Unschedulable: true}} // schedulers must not place a pod on it
	if _, err := nodes.Create(ctx, wanted, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create node %s: %w", n.Name, err)
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := nodes.Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !node.Spec.Unschedulable { // created by an earlier version
			node.Spec.Unschedulable = true
			if node, err = nodes.Update(ctx, node, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		node.Status = n.status
		_, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("update status of node %s: %w", n.Name, err)
	}
	return nil
}
