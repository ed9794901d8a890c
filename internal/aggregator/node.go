package aggregator

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"portico.dev/internal/clients"
	"portico.dev/internal/version"
)

// hostObject is the Node that stands for this machine in `aggregator dev`. Nothing runs on it; it is what
// `kubectl top nodes` takes its percentages of.
type hostObject struct {
	Name   string
	status corev1.NodeStatus
}

func hostNode() (*hostObject, error) {
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
	return &hostObject{Name: name, status: corev1.NodeStatus{
		Capacity:    capacity,
		Allocatable: capacity,
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: name},
			{Type: corev1.NodeInternalIP, Address: "127.0.0.1"},
		},
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "PorticoDev",
			Message:           "this machine, for its metrics only: no kubelet runs here",
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

// readText is a file's content, empty when it cannot be read: these facts are of use, not needed.
func readText(name string) string {
	data, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return string(data)
}

// ensure creates the Node, or brings the one of an earlier start up to date.
func (n *hostObject) ensure(ctx context.Context, admin *rest.Config) error {
	client, err := clients.New(admin)
	if err != nil {
		return fmt.Errorf("client of an administrator: %w", err)
	}
	nodes := client.CoreV1().Nodes()
	wanted := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{
		corev1.LabelHostname: n.Name, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
	}}}
	if _, err := nodes.Create(ctx, wanted, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create node %s: %w", n.Name, err)
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := nodes.Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
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
