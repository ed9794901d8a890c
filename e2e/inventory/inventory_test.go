package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The measured package has a test that starts a process, which runs until it has been counted, and an empty test.
func TestPackageIsMeasured(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc on this system")
	}
	dir := t.TempDir()
	counted := filepath.Join(dir, "counted")
	if err := syscall.Mkfifo(counted, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"go.mod": "module example.com/measured\n\ngo 1.26\n",
		"measured_test.go": `package measured

import (
	"os/exec"
	"testing"
)

func TestStartsProcess(t *testing.T) {
	if err := exec.Command("cat", "counted").Run(); err != nil {
		t.Fatal(err)
	}
	t.Run("nested", func(*testing.T) {})
}

func TestNothing(*testing.T) {}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOWORK", "off")
	var released sync.WaitGroup
	r := report{found: func(int) {
		released.Go(func() {
			if f, err := os.OpenFile(counted, os.O_WRONLY, 0); err != nil { // waits until the process reads
				t.Error(err)
			} else if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}}
	if err := r.measure(listed{"example.com/measured", dir}, 0); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(counted, os.O_RDONLY|syscall.O_NONBLOCK, 0) // ends writers that no process waited for
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	released.Wait()
	// The os package starts a process of its own before the first one, to see if the kernel supports PID file descriptors.
	counts := func(n int) bool { return n == 1 || n == 2 }
	if len(r.Packages) != 1 || r.Packages[0].Tests != 2 || r.Packages[0].Link <= 0 || !counts(r.Packages[0].Processes) || r.Packages[0].Failed {
		t.Errorf("packages: %+v, want one that links in some time and has 2 tests and 1 process", r.Packages)
	}
	if len(r.Tests) != 2 || r.Tests[0].Test != "TestStartsProcess" || !r.Tests[0].Alone || !counts(r.Tests[0].Processes) || r.Tests[1].Processes != 0 {
		t.Errorf("tests: %+v, want TestStartsProcess, alone, with 1 process, and TestNothing with none", r.Tests)
	}
	var out strings.Builder
	if err := r.print(&out, 1); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| TestStartsProcess ", "| all 1 "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got the table\n%s\nwant %q in it", &out, want)
		}
	}
	if strings.Contains(out.String(), "TestNothing") {
		t.Errorf("got the table of one test\n%s\nwant no TestNothing", &out)
	}
}

func TestCostsOfBinaryAreNotChargedToTest(t *testing.T) {
	none := &usage{wall: 2 * time.Second, cpu: time.Second, processes: 1}
	for _, test := range []struct {
		name string
		used usage
		want testedTest
	}{
		{"more than the binary", usage{wall: 10 * time.Second, cpu: 4 * time.Second, processes: 3}, testedTest{Alone: true, CPU: 3, Wait: 5, Processes: 2}},
		{"less than the binary", usage{wall: time.Second, cpu: time.Second / 2}, testedTest{Alone: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got testedTest
			if got.charge(&test.used, none); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestProcessesBelowOthersAreCounted(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc on this system")
	}
	cmd := exec.Command("sh", "-c", "sh -c 'echo; read x' & read y")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // the inner shell runs
		t.Fatal(err)
	}
	known := map[int]bool{cmd.Process.Pid: true}
	addChildren(known)
	if len(known) != 2 {
		t.Errorf("known processes = %v, want %d and the shell below it", known, cmd.Process.Pid)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() < 0 {
		t.Fatal(err)
	}
}
