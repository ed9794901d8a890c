package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	metrics "k8s.io/metrics/pkg/client/clientset/versioned"

	"portico.dev/e2e/programs"
)

// Limits of the programs' memory in KiB: extserver while it serves, `aggregator dev` after the start.
const (
	largestResident          = 25 << 10
	largestFrontDoorResident = 140 << 10
)

// mostSeries is the limit of the series at /metrics of `aggregator dev` after the start.
const mostSeries = 2000

// Limits the memory of the extension server while it repeatedly serves the metrics of this machine.
func TestExtserverIsSmall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := frontDoor(t)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(asKubeconfig(config), kubeconfig); err != nil {
		t.Fatal(err)
	}
	server, err := startProcess("extserver", dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, "extserver", "serve", "--kubeconfig", kubeconfig,
		"--bind-address", "127.0.0.1", "--secure-port", "0", "--metric-resolution", "1s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Finish(t)
		server.Show(t)
	})
	client, err := metrics.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	// The demonstration of the front door serves the same until this one has registered itself.
	if err := programs.Poll(server.Exited(), func() error {
		if !strings.Contains(server.Output(), "registered") {
			return errors.New("it has not registered itself")
		}
		pods, err := client.MetricsV1beta1().PodMetricses("").List(t.Context(), metav1.ListOptions{})
		if err == nil && len(pods.Items) == 0 {
			err = errors.New("no pods yet")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		if _, err := client.MetricsV1beta1().PodMetricses("").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	resident := residentKiB(t, server.PID())
	t.Logf("resident: %.1f MiB", float64(resident)/1024)
	if resident >= largestResident {
		t.Errorf("%d KiB are resident while it serves, want less than %d", resident, largestResident)
	}
}

// The memory of the front door, its embedded etcd and the demonstration behind it at rest.
func TestAggregatorIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	front, err := startProcess("aggregator", dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, "aggregator", "dev",
		"--data-dir", filepath.Join(dir, "data"), "--secure-port", "0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		front.Finish(t)
		front.Show(t)
	})
	if err := programs.Poll(front.Exited(), func() error {
		if !strings.Contains(front.Output(), "listens on") {
			return errors.New("it is not ready")
		}
		if resident := residentKiB(t, front.PID()); resident >= largestFrontDoorResident {
			return fmt.Errorf("%d KiB are resident at rest, want less than %d", resident, largestFrontDoorResident)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("resident: %.1f MiB", float64(residentKiB(t, front.PID()))/1024)
}

func TestIdleFrontDoorServesFewSeries(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	dev, kubeconfig := programs.Dev(t, binaries, t.TempDir())
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := metrics.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	// The start is complete once the extension server has registered itself.
	if err := programs.Poll(dev.Exited(), func() error {
		_, err := client.MetricsV1beta1().NodeMetricses().List(t.Context(), metav1.ListOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	page, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	series, total := map[string]int{}, 0
	family := ""
	for line := range strings.Lines(string(page)) {
		if after, ok := strings.CutPrefix(line, "# TYPE "); ok {
			family, _, _ = strings.Cut(after, " ")
			continue
		}
		if !strings.HasPrefix(line, "#") {
			series[family]++
			total++
		}
	}
	names := slices.SortedFunc(maps.Keys(series), func(a, b string) int { return cmp.Compare(series[b], series[a]) })
	var largest strings.Builder
	for _, name := range names[:min(10, len(names))] {
		fmt.Fprintf(&largest, "%6d %s\n", series[name], name)
	}
	t.Logf("series: %d, page: %d KiB", total, len(page)>>10)
	if total == 0 || total > mostSeries {
		t.Errorf("/metrics of an idle front door has %d series, want 1 to %d. The largest families:\n%s", total, mostSeries, &largest)
	}
}

func residentKiB(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	line, _, _ := strings.Cut(after, "\n")
	kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(line, "kB")))
	if err != nil {
		t.Fatal(err)
	}
	return kib
}
