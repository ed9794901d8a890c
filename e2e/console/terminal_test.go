//go:build chromium

package console

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"portico.dev/e2e/programs"
)

// session is a tmux with one window.
type session struct {
	t      *testing.T
	socket string
}

func (s session) tmux(args ...string) (string, error) {
	out, err := exec.CommandContext(s.t.Context(), "tmux", append([]string{"-S", s.socket}, args...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("tmux %q: %w: %s", args, err, out)
	}
	return string(out), err
}

func (s session) do(args ...string) string {
	s.t.Helper()
	out, err := s.tmux(args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// shows waits until all of these are on the screen.
func (s session) shows(texts ...string) {
	s.t.Helper()
	err := programs.Poll(nil, func() error {
		screen, err := s.tmux("capture-pane", "-p")
		for _, text := range texts {
			if err == nil && !strings.Contains(screen, text) {
				err = fmt.Errorf("the screen lacks %q:\n%s", text, screen)
			}
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// The console in a terminal, at the size of the smallest and of a large one.
func TestTerminal(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Fatalf("tmux was not found: %v, want Debian's package tmux", err)
	}
	dir := t.TempDir()
	_, kubeconfig := programs.Dev(t, binaries, dir)
	if err := os.WriteFile(filepath.Join(dir, "dead.yaml"), []byte(dead), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl := programs.Kubectl(binaries, dir, kubeconfig)
	if _, err := kubectl("apply", "-f", filepath.Join(dir, "dead.yaml")); err != nil {
		t.Fatal(err)
	}
	if _, err := kubectl("delete", "namespace", "held", "--wait=false"); err != nil {
		t.Fatal(err)
	}
	for _, size := range [][2]string{{"80", "24"}, {"200", "50"}} {
		t.Run(size[0]+"x"+size[1], func(t *testing.T) {
			s := session{t, filepath.Join(t.TempDir(), "tmux")}
			s.do("-f", "/dev/null", "new-session", "-d", "-x", size[0], "-y", size[1], "-e", "KUBECONFIG="+kubeconfig, filepath.Join(binaries, "kubectl-portico")+" console --tui; echo ended; read line")
			t.Cleanup(func() { _, _ = exec.Command("tmux", "-S", s.socket, "kill-server").CombinedOutput() }) // which has ended if the test has passed
			s.shows("[1 APIServices]", "v1.dead.example.com", "unavailable", "v1beta1.metrics.k8s.io")
			s.do("send-keys", "Enter")
			s.shows("ServiceNotFound", "verdict")
			s.do("send-keys", "d")
			s.shows("doctor: done", "first broken hop: service")
			s.do("send-keys", "Escape")
			s.do("send-keys", "2")
			s.shows("[2 Endpoints]", "portico-extserver")
			s.do("send-keys", "4")
			s.shows("[4 Namespaces]", "held", "example.com/hold")
			s.do("send-keys", "1", "/", "metrics", "Enter")
			s.shows("filter: metrics")
			s.do("resize-window", "-x", "60", "-y", "15")
			s.shows("filter: metrics", "[1 APIServices]")
			s.do("send-keys", "q")
			s.shows("ended")
			s.do("send-keys", "Enter")
		})
	}
}
