package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"portico.dev/e2e/programs"
	"portico.dev/internal/tools/drill"
)

// drillsLimit bounds all drills together. Each drill has a separate limit too.
const drillsLimit = 15 * time.Minute

// aggregatorCommand runs the program to its end, and returns its output and exit status.
func aggregatorCommand(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), drillsLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, "aggregator"), programs.WithEngines("aggregator", args)...)
	var out, complaints bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), &out, &complaints
	path := binaries + string(os.PathListSeparator) + os.Getenv("PATH") // for the kubectl under test
	cmd.Env = []string{"HOME=" + cmd.Dir, "TMPDIR=" + cmd.Dir, "PATH=" + path}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), complaints.String(), cmd.ProcessState.ExitCode()
}

var allDrills = flag.Bool("all-drills", false, "hold all drills, which takes minutes, instead of some")

// Without -all-drills only these drills run, the longest first. .ci/run holds all of them.
var (
	someDrills         = []string{"namespace-dead-storage-bearing", "one-endpoint-of-three-hangs", "registered-at-another-replica", "hang", "garbage-discovery", "cluster-unreachable"}
	someAPIRouteDrills = []string{"vanishing-discovery", "reset-mid-body"}
)

func TestEveryDrillPasses(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	drills, want := someDrills, len(someDrills)
	if *allDrills {
		drills, want = []string{"--all"}, len(drill.All())
	}
	page := filepath.Join(t.TempDir(), "drills.html")
	results := passedDrills(t, append([]string{"--html", page}, drills...)...)
	if len(results) != want {
		t.Errorf("%d drills ran, want %d", len(results), want)
	}
	if text, err := os.ReadFile(page); err != nil || bytes.Count(text, []byte("<svg viewBox")) != len(results) {
		t.Errorf("page of the drills: error %v, want one timeline per drill", err)
	}
}

// One of two backends of an APIRoute fails. The expectations are the same, and no request to the other backend fails. All
// drills can run this way. The test runs one of each type.
func TestDrillsOfOneBackendOfAnAPIRoutePass(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	drills := someAPIRouteDrills
	if *allDrills {
		drills = []string{
			"refuse", "hang", "reset-mid-body", "certificate-rotation", "one-endpoint-of-three-hangs", "garbage-discovery", "vanishing-discovery",
			"namespace-dead-storageless", "namespace-dead-storage-bearing", "namespace-policy", "restart-everything-dead", "partial-partition",
		}
	}
	results := passedDrills(t, append([]string{"--apiroute"}, drills...)...)
	if len(results) != len(drills) {
		t.Errorf("%d drills ran, want %d", len(results), len(drills))
	}
	for _, r := range results {
		if !slices.ContainsFunc(r.Traffic, func(row drill.Row) bool { return row.Who == drill.OtherBackend && row.Phase == "during" }) {
			t.Errorf("drill %s: no request to the other backend during the fault, want some", r.Drill)
		}
	}
}

// atOnce is how many drills are held at a time. They mostly wait.
const atOnce = "4"

// passedDrills runs drills, and expects that each passes. Drills have limits of some seconds for what a front door does on a machine
// that has time for it. Here they compete with each other and with the tests of other packages, so a drill that fails is run again,
// alone.
func passedDrills(t *testing.T, args ...string) []*drill.Result {
	t.Helper()
	results := runDrills(t, append([]string{"--parallel", atOnce}, args...)...)
	again := []string{"--parallel", "1"}
	if slices.Contains(args, "--apiroute") {
		again = append(again, "--apiroute")
	}
	kept := results[:0:0]
	for _, r := range results {
		if r.Verdict == drill.Passed {
			kept = append(kept, r)
			continue
		}
		again = append(again, r.Drill)
		t.Logf("drill %s beside others: %s %s; it is run again alone", r.Drill, r.Verdict, r.Why)
		for _, f := range r.Findings {
			if !f.Holds {
				t.Logf("expected: %s; seen: %s", f.Expected, f.Seen)
			}
		}
	}
	if failed := len(results) - len(kept); failed > 0 && failed <= max(2, len(results)/4) { // more are no accident
		results = append(kept, runDrills(t, again...)...)
	}
	limits := map[string]time.Duration{}
	for _, d := range drill.All() {
		limits[d.Name] = d.Limit
	}
	for _, r := range results {
		t.Run(r.Drill, func(t *testing.T) {
			if r.Verdict != drill.Passed {
				t.Errorf("verdict = %s %s, want passed", r.Verdict, r.Why)
			}
			for _, f := range r.Findings {
				if !f.Holds {
					t.Errorf("expected: %s\n    seen: %s", f.Expected, f.Seen)
				}
			}
			if limit := limits[r.Drill]; time.Duration(r.Took) > limit {
				t.Errorf("the drill took %s, want at most %s", r.Took, limit)
			}
			for _, m := range r.Measures {
				t.Logf("%s: %s (never: %t)", m.Name, m.Seconds, m.Never)
			}
		})
	}
	return results
}

func runDrills(t *testing.T, args ...string) []*drill.Result {
	t.Helper()
	stdout, stderr, code := aggregatorCommand(t, append([]string{"drill", "run", "-o", "json"}, args...)...)
	var results []*drill.Result
	if err := json.Unmarshal([]byte(stdout), &results); err != nil {
		t.Fatalf("drill run: %v, want JSON\n%s", err, stderr)
	}
	if passed := !slices.ContainsFunc(results, func(r *drill.Result) bool { return r.Verdict != drill.Passed }); passed != (code == 0) {
		t.Errorf("exit status of drill run = %d, all drills passed = %t, want 0 if they did: %s", code, passed, stderr)
	}
	return results
}

// An interrupted drill still removes its objects from the remote server.
func TestAnInterruptedDrillCleansUp(t *testing.T) {
	skipIfShort(t)
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "front", "admin.kubeconfig")
	env := []string{"HOME=" + dir, "TMPDIR=" + dir, "KUBECONFIG=" + kubeconfig}
	begin := func(name string, args ...string) *programs.Process {
		p, err := startProcess(name, dir, env, "aggregator", args...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Show(t) })
		return p
	}
	front := begin("front", "serve", "--data-dir", filepath.Join(dir, "front"), "--secure-port", "0", "--access-log=false")
	defer front.Finish(t)
	// made lists the objects of the kinds that drills create.
	made := func() (string, error) {
		cmd := exec.Command(filepath.Join(binaries, "kubectl"), "get", "namespaces,apiservices", "-l", "portico.dev/drill", "-o", "name")
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if err := programs.Poll(front.Exited(), func() error { _, err := made(); return err }); err != nil {
		t.Fatal(err)
	}
	held := begin("drill", "drill", "run", "hang", "--kubeconfig", kubeconfig)
	defer held.Finish(t)
	if err := programs.Poll(held.Exited(), func() error {
		if out, err := made(); err != nil || strings.Count(out, "\n") != 3 {
			return fmt.Errorf("a namespace and two APIServices are not there: %s %v", out, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	code, err := held.Stop(os.Interrupt)
	held.Ended = true
	if err != nil || code != 1 {
		t.Errorf("exit status %d, %v; want 1", code, err)
	}
	if out, err := made(); err != nil || strings.Contains(out, "/") {
		t.Errorf("objects after the interrupted drill = %s, %v; want none", out, err)
	}
}

func TestDrillsThatAreNotHeld(t *testing.T) {
	skipIfShort(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"kind":"Config","apiVersion":"v1","current-context":"eu-prod",
		"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],"users":[{"name":"u"}],
		"contexts":[{"name":"eu-prod","context":{"cluster":"c","user":"u"}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"a context that looks like production": {[]string{"refuse", "--kubeconfig", kubeconfig}, `--i-know-this-is "eu-prod"`},
		"another name than that":               {[]string{"refuse", "--kubeconfig", kubeconfig, "--i-know-this-is", "eu"}, `--i-know-this-is "eu-prod"`},
		"nothing asked for":                    {nil, "drill list"},
		"a drill that is not there":            {[]string{"earthquake"}, "earthquake"},
		"everything and something":             {[]string{"--all", "refuse"}, "--all"},
		"an unknown form":                      {[]string{"refuse", "-o", "xml"}, "junit"},
		"two at a time on one server":          {[]string{"refuse", "hang", "--kubeconfig", kubeconfig, "--parallel", "2"}, "--parallel"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, code := aggregatorCommand(t, append([]string{"drill", "run"}, tt.args...)...)
			if code != 2 || stdout != "" || !strings.Contains(stderr, tt.says) {
				t.Errorf("drill run = exit status %d, %s%s; want 2 and %q", code, stdout, stderr, tt.says)
			}
		})
	}
}
