package deploy

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"portico.dev/e2e/programs"
)

// exposure is the worst mark, in tenths, that systemd-analyze may give a unit; without settings it is 96.
const exposure = "20"

// systemd accepts the units without a warning. A small parser checks their form and the required settings on every machine,
// also without systemd.
func TestUnitsAreSound(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"aggregator", "extserver"} {
		t.Run(program, func(t *testing.T) {
			file := "../../deploy/systemd/" + program + ".service"
			checkUnit(t, file)
			analyze, err := exec.LookPath("systemd-analyze")
			if err != nil {
				t.Log("systemd-analyze is not installed: only the form of the unit was looked at")
				return
			}
			// As installed: systemd looks for the program too.
			unit := filepath.Join(t.TempDir(), program+".service")
			text := strings.ReplaceAll(readFile(t, file), "/usr/local/bin/", binaries+"/")
			if err := os.WriteFile(unit, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(analyze, "verify", "--man=no", unit).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("systemd-analyze verify = %v: %s; want no output", err, out)
			}
			if out, err := exec.Command(analyze, "security", "--offline=true", "--threshold="+exposure, unit).CombinedOutput(); err != nil {
				t.Errorf("systemd-analyze security = %v: %s; want no error", err, out)
			}
		})
	}
}

// The socket unit is valid together with its service, and both have the same address.
func TestTheSocketUnitIsSound(t *testing.T) {
	t.Parallel()
	socket := readFile(t, "../../deploy/systemd/aggregator.socket")
	service := readFile(t, "../../deploy/systemd/aggregator.service")
	flags := regexp.MustCompile(`--bind-address=(\S+) --secure-port=(\d+)`).FindStringSubmatch(service)
	listens := regexp.MustCompile(`(?m)^ListenStream=(.*)$`).FindStringSubmatch(socket)
	if len(flags) != 3 || len(listens) != 2 || flags[1]+":"+flags[2] != listens[1] {
		t.Errorf("addresses of the service and the socket = %q and %q, want the same", flags, listens)
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd-analyze is not installed: only the address was looked at")
		return
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"aggregator.socket": socket, "aggregator.service": strings.ReplaceAll(service, "/usr/local/bin/", binaries+"/")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(analyze, "verify", "--man=no", filepath.Join(dir, "aggregator.socket")).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify of the socket = %v: %s; want no output", err, out)
	}
}

var (
	unitSection = regexp.MustCompile(`^\[(Unit|Service|Install)\]$`)
	unitSetting = regexp.MustCompile(`^([A-Z][A-Za-z]+)=(.*)$`)
)

// checkUnit checks a unit: comments, sections of services, unique settings, and required settings.
func checkUnit(t *testing.T, file string) {
	t.Helper()
	section, settings := "", map[string]string{}
	for i, line := range strings.Split(readFile(t, file), "\n") {
		where := fmt.Sprintf("%s:%d", filepath.Base(file), i+1)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case unitSection.MatchString(line):
			section = line
		case section == "" || !unitSetting.MatchString(line):
			t.Errorf("%s: %q is neither a section nor a setting in one, want either", where, line)
		default:
			match := unitSetting.FindStringSubmatch(line)
			key := section + match[1]
			if _, twice := settings[key]; twice {
				t.Errorf("%s: %s is set twice, want once", where, key)
			}
			settings[key] = strings.TrimSpace(match[2])
		}
	}
	for key, want := range map[string]string{
		"[Service]Type": "notify", "[Service]NotifyAccess": "main", "[Service]WatchdogSec": "60s", "[Service]Restart": "on-failure",
		"[Service]DynamicUser": "yes", "[Service]NoNewPrivileges": "yes", "[Service]ProtectSystem": "strict", "[Service]ProtectHome": "yes",
		"[Service]PrivateDevices": "yes", "[Service]MemoryDenyWriteExecute": "yes", "[Service]CapabilityBoundingSet": "",
		"[Service]AmbientCapabilities": "", "[Service]RestrictNamespaces": "yes", "[Service]SystemCallFilter": "@system-service",
		"[Service]SystemCallArchitectures": "native", "[Service]KillSignal": "SIGTERM", "[Install]WantedBy": "multi-user.target",
	} {
		if got, ok := settings[key]; !ok || got != want {
			t.Errorf("setting in %s: %s = %q, want %q", filepath.Base(file), key, got, want)
		}
	}
}

// Both programs notify the service manager as their units declare: ready when they serve and not before, watchdog at the
// required interval, and stopping at once on SIGTERM.
func TestTheServiceManagerIsTold(t *testing.T) {
	t.Parallel()
	front := notified(t, "aggregator", "serve", "--data-dir", filepath.Join(t.TempDir(), "data"), "--secure-port", "0", "--access-log=false")
	front.await("READY=1")
	kubeconfig := front.argument("--data-dir") + "/admin.kubeconfig"
	env := []string{"KUBECONFIG=" + kubeconfig}
	if got := output(t, env, "kubectl", "get", "--raw", "/readyz"); got != "ok" {
		t.Errorf("/readyz after READY=1 = %q, want ok", got)
	}
	extension := notified(t, "extserver", "serve", "--kubeconfig", kubeconfig, "--bind-address", "127.0.0.1", "--secure-port", "0", "--service-name", "told")
	extension.await("READY=1")
	if got := output(t, env, "kubectl", "get", "apiservice", "v1.metrics.k8s.io", "-o", "jsonpath={.spec.service.name}"); got != "told" {
		t.Errorf("Service of the APIService after READY=1 = %q, want told", got)
	}
	for _, s := range []*service{front, extension} {
		s.await("WATCHDOG=1")
		s.await("WATCHDOG=1")
	}
	for _, s := range []*service{extension, front} {
		s.stop()
	}
}

// service is a program under a service manager that is this test.
type service struct {
	t       *testing.T
	process *programs.Process
	args    []string
	says    chan string // closed with the socket
	heard   []string
}

func notified(t *testing.T, program string, args ...string) *service {
	t.Helper()
	dir, err := os.MkdirTemp("", "n") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	says := make(chan string, 10_000) // ten notifications per second arrive
	go listen(conn, says)
	t.Cleanup(func() {
		conn.Close()
		for range says { // until it is closed
		}
	})
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "NOTIFY_SOCKET=" + socket, "WATCHDOG_USEC=200000"}
	p, err := startProcess(program, dir, env, program, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Finish(t)
		p.Show(t)
	})
	return &service{t: t, process: p, args: args, says: says}
}

// listen reads notifications at once, as service managers do: an unread socket holds ten messages, and then the sender blocks.
func listen(conn *net.UnixConn, says chan<- string) {
	defer close(says)
	buffer := make([]byte, 256)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		says <- string(buffer[:n])
	}
}

func (s *service) argument(flag string) string { return s.args[slices.Index(s.args, flag)+1] }

// await reads until the state was notified.
func (s *service) await(state string) {
	s.t.Helper()
	late := time.After(programs.Patience)
	for {
		select {
		case said := <-s.says:
			s.heard = append(s.heard, said)
			if said == state {
				return
			}
			if said != "WATCHDOG=1" {
				s.t.Fatalf("notifications = %v, want %s", s.heard, state)
			}
		case <-late:
			s.t.Fatalf("no notification %s in time, want it after %v", state, s.heard)
		}
	}
}

// stop ends the process as systemd does.
func (s *service) stop() {
	s.t.Helper()
	if code, err := s.process.Stop(syscall.SIGTERM); err != nil || code != 0 {
		s.t.Errorf("exit status of the service = %d, %v; want 0", code, err)
	}
	s.await("STOPPING=1")
	select {
	case said := <-s.says:
		s.t.Errorf("notification after STOPPING=1 = %s, want none", said)
	default:
	}
}
