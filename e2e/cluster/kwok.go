package cluster

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// kubelet configures the responses of kwok's kubelets.
//
//go:embed kubelet.yaml
var kubelet string

// containerLog is the log of every container.
const containerLog = "2026-11-28T01:00:00.000000000Z stdout F kwok simulates this container: it runs nothing\n"

// kwokConfig returns the unmodified stages of kwok's module, and the configuration of its kubelets' responses.
func (c *Cluster) kwokConfig() ([]byte, error) {
	root, err := output("", "go", "list", "-m", "-f", "{{.Dir}}", "portico.dev")
	if err != nil {
		return nil, err
	}
	module, err := output(filepath.Join(root, "e2e", "thirdparty", "kwok"), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok")
	if err != nil {
		return nil, err
	}
	var config bytes.Buffer
	for _, dir := range []string{"node/fast", "node/heartbeat-with-lease", "pod/fast", "volume/fast"} {
		files, err := filepath.Glob(filepath.Join(module, "kustomize", "stage", dir, "*.yaml"))
		if err != nil {
			return nil, err
		}
		stages := 0
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			if bytes.Contains(data, []byte("\nkind: Stage\n")) {
				fmt.Fprintf(&config, "---\n%s\n", data)
				stages++
			}
		}
		if stages == 0 {
			return nil, fmt.Errorf("kwok's module has no stages in %s", dir)
		}
	}
	if err := os.WriteFile(filepath.Join(c.dir, "container.log"), []byte(containerLog), 0o644); err != nil {
		return nil, err
	}
	fmt.Fprintf(&config, "---\n%s", strings.ReplaceAll(kubelet, "DIR", c.dir))
	return config.Bytes(), nil
}

func output(dir string, command ...string) (string, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
