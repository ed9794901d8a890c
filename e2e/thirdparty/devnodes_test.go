package thirdparty

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"portico.dev/e2e/programs"
)

// `aggregator dev --nodes` has the number of Nodes in the last flag, which kwok simulates.
func TestDevNodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, nodes := range []int{3, 1, 0} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			args := []string{"--nodes", fmt.Sprint(nodes)}
			if nodes > 0 {
				args = append(args, "--kwok-binary", filepath.Join(binaries, "kwok"))
			}
			dev, kubeconfig := programs.Dev(t, binaries, dir, args...)
			kubectl := programs.Kubectl(binaries, dir, kubeconfig)
			eventually(t, "the Nodes are ready, and no others are left", func() error {
				out, err := kubectl("get", "nodes", "-l", "portico.dev/simulated", `-o=jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status} {end}`)
				want := ""
				for i := range nodes {
					want += fmt.Sprintf("node-%d True ", i+1)
				}
				if err == nil && out != want {
					err = fmt.Errorf("there are %q, want %q", out, want)
				}
				return err
			})
			if nodes == 0 {
				return
			}
			pod := fmt.Sprintf("pod-%d", nodes)
			eventually(t, "a pod is taken", func() error { // its service account may be created later
				_, err := kubectl("run", pod, "--image=i", `--overrides={"spec":{"nodeName":"node-1"}}`)
				if err != nil && strings.Contains(err.Error(), "AlreadyExists") {
					err = nil
				}
				return err
			})
			if _, err := kubectl("wait", "--for=condition=Ready", "pod/"+pod, "--timeout=170s"); err != nil {
				t.Fatal(err)
			}
			if out, err := kubectl("logs", pod); err != nil || !strings.Contains(out, "kwok simulates this container") {
				t.Errorf("log of the pod = %q, %v; want kwok's line", out, err)
			}
			if out := dev.Output(); strings.Contains(out, "\twarn\t") {
				t.Errorf("output of aggregator dev has a warning, want none: %s", out)
			}
			if _, err := kubectl("delete", "pod", pod, "--timeout=170s"); err != nil {
				t.Error(err)
			}
		})
	}
}
