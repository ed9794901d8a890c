package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	metrics "k8s.io/metrics/pkg/client/clientset/versioned"

	"portico.dev/e2e/programs"
)

const (
	// largestBinary is what a stripped extserver may weigh.
	largestBinary = 25_000_000
	// largestResident is what it may have in memory while it serves, in KiB.
	largestResident = 25 << 10

	// largestFrontDoor is what a stripped aggregator may weigh. gRPC reaches html/template and the embedded etcd go-cmp, which
	// look methods up by name, so that the linker can leave out none: whatever is linked counts with all its methods. Above
	// it, look first for what links kubernetes.NewForConfig or informers.NewSharedInformerFactory (internal/clients).
	largestFrontDoor = 102_900_000
	// largestFrontDoorResident is what `aggregator dev` may have in memory once it has settled, in KiB.
	largestFrontDoorResident = 140 << 10
)

// The extension server stays small: the size of what `make build` makes, and the memory of it while it serves the metrics of
// this machine and is asked again and again.
func TestExtserverIsSmall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const program = "extserver-static"
	binary := filepath.Join(binaries, program)
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", binary, "./cmd/extserver")
	build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("stripped: %.1f MB", float64(info.Size())/1e6)
	if info.Size() >= largestBinary {
		t.Errorf("stripped, it is %d bytes, want less than %d", info.Size(), largestBinary)
	}

	config := frontDoor(t)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(asKubeconfig(config), kubeconfig); err != nil {
		t.Fatal(err)
	}
	server, err := startProcess("extserver", dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, program, "serve", "--kubeconfig", kubeconfig,
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

// The front door keeps within its bounds too: its size, and the memory of it, its embedded etcd and the demonstration
// behind it at rest.
func TestAggregatorIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const program = "aggregator-stripped"
	binary := filepath.Join(binaries, program)
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w", "-o", binary, "./cmd/aggregator")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("stripped: %.1f MB", float64(info.Size())/1e6)
	if info.Size() >= largestFrontDoor {
		t.Errorf("stripped, it is %d bytes, want less than %d", info.Size(), largestFrontDoor)
	}
	front, err := startProcess("aggregator", dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, program, "dev",
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
