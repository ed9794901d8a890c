package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The package measures itself: one test that waits and starts a process, and an empty one.
func TestPackageIsMeasured(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/measured\n\ngo 1.26\n",
		"measured_test.go": `package measured

import (
	"os/exec"
	"testing"
)

func TestWaits(t *testing.T) {
	if err := exec.Command("sleep", "0.3").Run(); err != nil {
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
	var r report
	if err := r.measure(listed{"example.com/measured", dir}, 200_000_000); err != nil {
		t.Fatal(err)
	}
	if len(r.Packages) != 1 || r.Packages[0].Tests != 2 || r.Packages[0].Link <= 0 || r.Packages[0].Processes != 1 || r.Packages[0].Failed {
		t.Errorf("packages: %+v, want one that links in some time and has 2 tests and 1 process", r.Packages)
	}
	if len(r.Tests) != 2 || r.Tests[0].Test != "TestWaits" || !r.Tests[0].Alone || r.Tests[0].Processes != 1 || r.Tests[0].Wait < 0.2 || r.Tests[1].Alone {
		t.Errorf("tests: %+v, want TestWaits, alone, with 1 process and a wait of 0.3 s, and TestNothing", r.Tests)
	}
	var out strings.Builder
	if err := r.print(&out, 1); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| TestWaits ", "| all 1 "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got the table\n%s\nwant %q in it", &out, want)
		}
	}
	if strings.Contains(out.String(), "TestNothing") {
		t.Errorf("got the table of one test\n%s\nwant no TestNothing", &out)
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
