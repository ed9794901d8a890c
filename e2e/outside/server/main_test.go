package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"portico.dev/pkg/apitest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var mailboxes = schema.GroupVersionResource{Group: "mail.example.com", Version: "v1", Resource: "mailboxes"}

// The program is built by the documented command, and is served through the front door.
func TestTheServerIsServedThroughAFrontDoor(t *testing.T) {
	program := filepath.Join(t.TempDir(), "server")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build failed: %v\n%s\nwant no error", err, out)
	}
	info, err := os.Stat(program)
	must(t, err)
	const most = 26_000_000
	if t.Logf("%.1f MB", float64(info.Size())/1e6); info.Size() > most {
		t.Errorf("size of the program = %d bytes, want at most %d", info.Size(), most)
	}
	spool := t.TempDir()
	must(t, os.WriteFile(filepath.Join(spool, "alice"), make([]byte, 42), 0o600))
	env := apitest.Start(t)
	server := exec.Command(program, "--kubeconfig="+env.WriteKubeconfig(), "--spool="+spool, "--bind-address=127.0.0.1", "--secure-port=0")
	server.Stderr = os.Stderr
	must(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Signal(os.Interrupt)
		if err := server.Wait(); err != nil {
			t.Errorf("the server ended with %v, want status 0", err)
		}
	})
	client, err := dynamic.NewForConfig(env.Config)
	must(t, err)
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		list, err := client.Resource(mailboxes).List(t.Context(), metav1.ListOptions{})
		if err == nil {
			if len(list.Items) != 1 || list.Items[0].GetName() != "alice" || list.Items[0].Object["bytes"] != int64(42) {
				t.Errorf("mailboxes = %v, want alice with 42 bytes", list.Items)
			}
			break
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("List of mailboxes in time: %v, want no error", err)
		}
	}
	resident := residentKiB(t, server.Process.Pid)
	if t.Logf("%.1f MiB resident", float64(resident)/1024); resident > 25<<10 {
		t.Errorf("resident memory = %d KiB, want at most 25 MiB", resident)
	}
}

func residentKiB(t *testing.T, pid int) (kib int) {
	t.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			if _, err := fmt.Sscan(value, &kib); err != nil {
				t.Fatal(err)
			}
		}
	}
	return kib
}
