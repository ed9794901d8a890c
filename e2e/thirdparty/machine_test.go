//go:build kubelet && linux

package thirdparty

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"portico.dev/e2e/kubelet"
	"portico.dev/e2e/programs"
)

// tagged are the programs that only tests with a build tag need.
var tagged = []string{"kubelet", "kube-proxy", "fetch"}

// packages are the names of Debian's packages with a node's programs, which are found in PATH or at the given path.
var packages = map[string]string{
	"containerd": "containerd", "ctr": "containerd", "containerd-shim-runc-v2": "containerd", "runc": "runc", plugins + "/bridge": "containernetworking-plugins",
	"busybox": "busybox-static", "iptables": "iptables", "ip": "iproute2", "nsenter": "util-linux", "mount": "mount",
}

// plugins is the directory of Debian's containernetworking-plugins.
const plugins = "/usr/lib/cni"

// lacking returns an error with the packages that must be installed before a machine can be made.
func lacking() error {
	var missing []string
	for program, from := range packages {
		if _, err := exec.LookPath(program); err != nil && !slices.Contains(missing, from) {
			missing = append(missing, from)
		}
	}
	slices.Sort(missing)
	switch {
	case len(missing) > 0:
		return fmt.Errorf("a node needs what this machine lacks: apt-get install --no-install-recommends %s", strings.Join(missing, " "))
	case os.Geteuid() != 0:
		return errors.New("a node needs root: it has namespaces, control groups and containers")
	}
	return nil
}

// machine is a separate machine from a kubelet's view: processes, mounts, network and host name are in namespaces, and control
// groups are below one. Kernel settings that a kubelet changes are copies. Everything in it ends with its process 1, and that
// ends with this process.
type machine struct {
	dir            string
	init           *exec.Cmd // process 1
	hostIP, nodeIP netip.Addr
	pods           netip.Prefix
	groups         string // the control group below which containers are
	log            *os.File
}

const (
	busybox = "registry.example/busybox:1"
	pause   = "registry.example/pause:1"
)

// machineScript is the script of process 1; $1 is a directory. Its input ends with the test.
const machineScript = `
set -e
mount --make-rprivate /
mount -t proc proc /proc
for d in run var/lib var/log; do
	mkdir -p "$1/root/$d"
	mount --bind "$1/root/$d" "/$d"
done
mkdir "$1/settings"
for s in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	f="$1/settings/$(echo $s | tr / .)"
	cat "/proc/sys/$s" >"$f"
	mount --bind "$f" "/proc/sys/$s"
done
echo n1 >/proc/sys/kernel/hostname
ip link set lo up
echo made
cat
`

func newMachine(t *testing.T) *machine {
	t.Helper()
	if err := lacking(); err != nil {
		t.Fatal(err)
	}
	pid := os.Getpid()
	// A part of the networks that are set aside for tests of this kind (RFC 2544).
	network := [4]byte{198, 19, byte(pid), 0}
	at := func(last byte) netip.Addr { network[3] = last; return netip.AddrFrom4(network) }
	m := &machine{dir: t.TempDir(), hostIP: at(1), nodeIP: at(2), pods: netip.PrefixFrom(at(128), 25), groups: fmt.Sprintf("portico-%d", pid), log: openLog(t, "machine")}
	m.init = exec.Command("/bin/sh", "-c", machineScript, "sh", m.dir)
	m.init.Stderr = m.log
	m.init.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	alive := must[io.WriteCloser](t)(m.init.StdinPipe())
	out := must[io.ReadCloser](t)(m.init.StdoutPipe())
	if err := m.init.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = alive.Close()
		if err := m.init.Wait(); err != nil {
			t.Errorf("process 1 of the machine exited with %v, want status 0; its log is %s", err, m.log.Name())
		}
		m.removeGroups(t)
	})
	kubelet.ReadUntil(t, out, "made\n")
	m.connect(t)
	m.makeGroups(t)
	return m
}

// connect gives the machine a link to this one.
func (m *machine) connect(t *testing.T) {
	t.Helper()
	link := fmt.Sprintf("pk%x", os.Getpid()&0xffffff)
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", link).Run() }) // it may have been deleted with the machine
	for _, command := range []string{
		fmt.Sprintf("link add %s type veth peer name eth0 netns %d", link, m.init.Process.Pid),
		fmt.Sprintf("addr add %s/30 dev %s", m.hostIP, link),
		fmt.Sprintf("link set %s up", link),
	} {
		if out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s failed: %v: %s, want no error", command, err, out)
		}
	}
	for _, command := range []string{
		fmt.Sprintf("ip addr add %s/30 dev eth0", m.nodeIP), "ip link set eth0 up", fmt.Sprintf("ip route add default via %s", m.hostIP),
	} {
		m.succeed(t, strings.Fields(command)...)
	}
	if out, err := exec.Command("ip", "route", "add", m.pods.Masked().String(), "via", m.nodeIP.String()).CombinedOutput(); err != nil {
		t.Fatalf("adding a route to pods failed: %v: %s, want no error", err, out)
	}
}

// controllers returns a kubelet's control groups, as directories of version 1, or the one of version 2.
func (m *machine) controllers(t *testing.T) []string {
	t.Helper()
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{"/sys/fs/cgroup"}
	}
	return must[[]string](t)(filepath.Glob("/sys/fs/cgroup/*"))
}

func (m *machine) makeGroups(t *testing.T) {
	t.Helper()
	for _, controller := range m.controllers(t) {
		if err := os.Mkdir(filepath.Join(controller, m.groups), 0o755); err != nil {
			t.Fatal(err)
		}
		if filepath.Base(controller) == "cpuset" { // a new group has none
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				all := must[[]byte](t)(os.ReadFile(filepath.Join(controller, file)))
				if err := os.WriteFile(filepath.Join(controller, m.groups, file), all, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// removeGroups removes the control groups, from the innermost on. Processes that were killed leave them a moment later.
func (m *machine) removeGroups(t *testing.T) {
	t.Helper()
	err := programs.Poll(nil, func() error {
		var left error
		for _, controller := range m.controllers(t) {
			var all []string
			err := filepath.WalkDir(filepath.Join(controller, m.groups), func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					all = append(all, path)
				}
				return err
			})
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				left = err
			}
			for _, group := range slices.Backward(all) {
				if err := syscall.Rmdir(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
					left = fmt.Errorf("remove %s: %w", group, err)
				}
			}
		}
		return left
	})
	if err != nil {
		t.Error(err)
	}
}

// inside is the command line that runs a program in the machine.
func (m *machine) inside(args ...string) []string {
	return append([]string{"--target", strconv.Itoa(m.init.Process.Pid), "--mount", "--net", "--pid", "--uts", "--ipc", "--"}, args...)
}

// run runs a program in the machine, and returns its output.
func (m *machine) run(args ...string) (string, error) {
	out, err := exec.Command("nsenter", m.inside(args...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%q: %w: %s", args, err, out)
	}
	return string(out), err
}

func (m *machine) succeed(t *testing.T, args ...string) string {
	t.Helper()
	return must[string](t)(m.run(args...))
}

// start starts a program in the machine, which ends with it.
func (m *machine) start(t *testing.T, name string, args ...string) *programs.Process {
	t.Helper()
	p, err := programs.Start(name, m.dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + m.dir}, openLog(t, name), "nsenter", m.inside(args...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		select {
		case <-p.Exited():
			if !p.Ended {
				t.Errorf("%s exited during the test, want it running", name)
			}
		default:
			m.kill(t, p)
		}
		p.Show(t)
	})
	return p
}

// kill kills a started process with SIGKILL. nsenter waits for it, and exits too.
func (m *machine) kill(t *testing.T, p *programs.Process) {
	t.Helper()
	p.Ended = true
	text := must[[]byte](t)(os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", p.PID())))
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatalf("children of nsenter = %q, want one PID", text)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
}

// startContainerd starts containerd, with the two images of this test.
func (m *machine) startContainerd(t *testing.T) {
	t.Helper()
	networks := filepath.Join(m.dir, "networks")
	if err := os.Mkdir(networks, 0o755); err != nil {
		t.Fatal(err)
	}
	place(t, filepath.Join(networks, "10-pods.conflist"), fmt.Appendf(nil, `{
  "cniVersion": "1.0.0", "name": "pods",
  "plugins": [{
    "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}`, m.pods.Masked()))
	config := filepath.Join(m.dir, "containerd.toml")
	place(t, config, fmt.Appendf(nil, `
version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = %q
  conf_dir = %q
`, pause, plugins, networks))
	m.start(t, "containerd", "containerd", "--config", config)
	images := filepath.Join(m.dir, "images.tar")
	if err := writeImages(images); err != nil {
		t.Fatal(err)
	}
	eventually(t, "containerd takes images", func() error {
		_, err := m.run("ctr", "--namespace", "k8s.io", "images", "import", images)
		return err
	})
}

// writeImages writes images in the format of `docker save`. They contain Debian's busybox and the test's fetch, which are
// linked statically.
func writeImages(file string) error {
	program, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	shell, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	fetch, err := os.ReadFile(filepath.Join(binaries, "fetch"))
	if err != nil {
		return err
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	add := func(h tar.Header, data []byte) {
		h.Size = int64(len(data))
		if err == nil {
			err = w.WriteHeader(&h)
		}
		if err == nil {
			_, err = w.Write(data)
		}
	}
	for _, dir := range []string{"bin/", "tmp/", "etc/"} {
		add(tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}, nil)
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755}, shell)
	add(tar.Header{Typeflag: tar.TypeReg, Name: "bin/fetch", Mode: 0o755}, fetch)
	for _, command := range strings.Fields("cat chroot cp echo env head hostname httpd id kill ls mkdir ps sh sleep stat stty tail tar test tty") {
		add(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + command, Linkname: "busybox"}, nil)
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0:root:/:/bin/sh\n"))
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	packed, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		return err
	}
	all := map[name.Tag]v1.Image{}
	for as, entrypoint := range map[string][]string{busybox: nil, pause: {"/bin/tail", "-f", "/dev/null"}} {
		tag, err := name.NewTag(as)
		if err != nil {
			return err
		}
		image, err := mutate.AppendLayers(empty.Image, packed)
		if err != nil {
			return err
		}
		described, err := image.ConfigFile()
		if err != nil {
			return err
		}
		described = described.DeepCopy()
		described.Architecture, described.OS = runtime.GOARCH, runtime.GOOS
		described.Config = v1.Config{Env: []string{"PATH=/bin"}, Entrypoint: entrypoint}
		if all[tag], err = mutate.ConfigFile(image, described); err != nil {
			return err
		}
	}
	return tarball.MultiWriteToFile(file, all)
}
