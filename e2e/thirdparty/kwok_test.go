package thirdparty

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/e2e/programs"
	"portico.dev/internal/pki"
)

// kwokConfig makes kwok simulate Nodes and Pods with a kubelet's API. Its stages are shorter than kwok's defaults.
const kwokConfig = `
kind: Stage
apiVersion: kwok.x-k8s.io/v1alpha1
metadata: {name: node}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions:
    - {key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: NotIn, values: ["True"]}
  next:
    statusTemplate: |
      addresses:
      - {type: InternalIP, address: {{ NodeIP | Quote }}}
      daemonEndpoints: {kubeletEndpoint: {Port: {{ NodePort }}}}
      conditions:
      - {type: Ready, status: "True", reason: KubeletReady, message: "", lastHeartbeatTime: {{ Now | Quote }}, lastTransitionTime: {{ Now | Quote }}}
---
kind: Stage
apiVersion: kwok.x-k8s.io/v1alpha1
metadata: {name: pod}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .status.phase, operator: In, values: [Pending]}
  next:
    statusTemplate: |
      conditions:
      - {type: Ready, status: "True", lastTransitionTime: {{ Now | Quote }}}
      containerStatuses:
      {{ range .spec.containers }}
      - {name: {{ .name | Quote }}, image: {{ .image | Quote }}, imageID: "", ready: true, restartCount: 0, state: {running: {startedAt: {{ Now | Quote }}}}}
      {{ end }}
      podIP: {{ NodeIP | Quote }}
      podIPs: [{ip: {{ NodeIP | Quote }}}]
      phase: Running
---
kind: Stage
apiVersion: kwok.x-k8s.io/v1alpha1
metadata: {name: debug}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .status.phase, operator: In, values: [Running]}
    - {key: '[.spec.ephemeralContainers[]?.name] - [.status.ephemeralContainerStatuses[]?.name] | .[]', operator: Exists}
  next:
    statusTemplate: |
      ephemeralContainerStatuses:
      {{ range .spec.ephemeralContainers }}
      - {name: {{ .name | Quote }}, image: {{ .image | Quote }}, imageID: "", ready: false, restartCount: 0, state: {running: {startedAt: {{ Now | Quote }}}}}
      {{ end }}
---
kind: ClusterLogs
apiVersion: kwok.x-k8s.io/v1alpha1
metadata: {name: all}
spec:
  logs:
  - {logsFile: DIR/log, previousLogsFile: DIR/previous, follow: true}
---
kind: ClusterAttach
apiVersion: kwok.x-k8s.io/v1alpha1
metadata: {name: all}
spec:
  attaches:
  - {logsFile: DIR/log}
---
kind: ClusterExec
apiVersion: kwok.x-k8s.io/v1alpha1
metadata: {name: all}
spec:
  execs:
  - local: {workDir: DIR/container, envs: [{name: PATH, value: /usr/local/bin:/usr/bin:/bin}]}
---
kind: ClusterPortForward
apiVersion: kwok.x-k8s.io/v1alpha1
metadata: {name: all}
spec:
  forwards:
  - ports: [80]
    target: {address: 127.0.0.1, port: PORT}
`

// Kubectl reaches pods and nodes through the front door, which reaches kwok's kubelet: with SPDY to kwok, and with websockets
// and SPDY from kubectl. With two front doors over one etcd, each kubectl uses the next one.
func TestKwok(t *testing.T) {
	t.Parallel()
	t.Run("one front door", func(t *testing.T) { throughFrontDoors(t, "front-kwok") })
	t.Run("two front doors", func(t *testing.T) { throughFrontDoors(t, "front-kwok-a", "front-kwok-b") })
}

func throughFrontDoors(t *testing.T, names ...string) {
	t.Parallel()
	authority := newAuthority(t, "kubelets")
	dir := t.TempDir()
	place(t, filepath.Join(dir, "ca.crt"), authority.PEM())
	flags := []string{"--kubelet-preferred-address-types", "InternalIP", "--kubelet-certificate-authority", filepath.Join(dir, "ca.crt"), "--audit-log-path", "audit.log"}
	if len(names) > 1 {
		flags = append(flags, "--etcd-servers", startEtcd(t), "--peer-advertise-ip", "127.0.0.1")
	}
	d := startFrontDoor(t, names[0], flags...)
	k := &kwok{frontDoor: d, fronts: []*frontDoor{d}, dir: dir, ip: addressOfKubelets(), port: freePort(t)}
	for _, name := range names[1:] {
		k.fronts = append(k.fronts, d.beside(t, name))
	}
	k.start(t, authority)

	t.Run("logs", k.logs)
	t.Run("exec", k.exec)
	t.Run("attach", k.attach)
	t.Run("debug", k.debug)
	t.Run("cp", k.cp)
	t.Run("port-forward", k.forward)
	t.Run("proxy", k.proxies)
	t.Run("audit", k.audited)
	t.Run("no kubelet", k.gone)
}

// kwok is a kubelet of one Node, n1, with one Pod, a in the namespace default.
type kwok struct {
	*frontDoor // the first one
	fronts     []*frontDoor
	asked      int // how often kubectl was run
	dir, ip    string
	port       int
	web        int // port of a web server on all addresses, which the pod declares
	process    *programs.Process
}

// copied is the size of the file that kubectl copies.
const copied = 1 << 20

// addressOfKubelets is one of this machine that is not loopback, if it has one.
func addressOfKubelets() string { return cmp.Or(programs.MachineAddress(), "127.0.0.1") }

func (k *kwok) onLoopback() bool { return k.ip == "127.0.0.1" }

func (k *kwok) start(t *testing.T, authority *pki.Authority) {
	t.Helper()
	listener := must[net.Listener](t)(net.Listen("tcp", net.JoinHostPort(k.ip, "0")))
	k.web = listener.Addr().(*net.TCPAddr).Port
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			http.Redirect(w, r, "/here", http.StatusFound)
			return
		}
		body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<10))
		fmt.Fprintf(w, "%s %s %s authorization=%q user=%q", r.Method, r.URL.RequestURI(), body, r.Header.Get("Authorization"), r.Header.Get("X-Remote-User"))
	})}
	go func() { _ = server.Serve(listener) }() // ends with Close
	t.Cleanup(func() { _ = server.Close() })

	cert, key, err := authority.Issue(pki.Leaf{CommonName: "system:node:n1", Server: true, IPs: []net.IP{net.ParseIP(k.ip)}})
	if err != nil {
		t.Fatal(err)
	}
	place(t, filepath.Join(k.dir, "kubelet.crt"), cert)
	place(t, filepath.Join(k.dir, "kubelet.key"), key)
	place(t, filepath.Join(k.dir, "log"), []byte("2026-11-28T01:00:00.000000000Z stdout F one\n2026-11-28T01:00:01.000000000Z stdout F two\n"))
	place(t, filepath.Join(k.dir, "previous"), []byte("2026-11-28T00:00:00.000000000Z stdout F before\n"))
	if err := os.Mkdir(filepath.Join(k.dir, "container"), 0o755); err != nil {
		t.Fatal(err)
	}
	// kwok never closes the standard input of a command, and tar waits for its end. A file of 1 MiB makes an archive of this size.
	bin := filepath.Join(k.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	tar := must[string](t)(exec.LookPath("tar"))
	script := fmt.Sprintf("#!/bin/sh\ncase $1 in\n-xmf) head -c %d | %s \"$@\" ;;\n*) exec %[2]s \"$@\" ;;\nesac\n", 512+copied+1024, tar)
	if err := os.WriteFile(filepath.Join(bin, "tar"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	// A port-forward leads to a server on loopback, where no proxy leads.
	config := strings.NewReplacer("DIR", k.dir, "PORT", strconv.Itoa(k.echo(t))).Replace(kwokConfig)
	place(t, filepath.Join(k.dir, "kwok.yaml"), []byte(config))
	k.run(t)

	ctx, core := t.Context(), k.typed.CoreV1()
	if _, err := core.Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace has its service account", func() error {
		_, err := core.ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	// kwok reports no status of pods that it sees before it holds the lease of their node.
	eventually(t, "the node is ready", func() error {
		node, err := core.Nodes().Get(ctx, "n1", metav1.GetOptions{})
		if err == nil && !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			err = errors.New("it is not")
		}
		return err
	})
	_, err = core.Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{
			Name: "c", Image: "i", Stdin: true, Ports: []corev1.ContainerPort{{ContainerPort: int32(k.web)}},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod runs", func() error {
		pod, err := core.Pods("default").Get(ctx, "a", metav1.GetOptions{})
		if err == nil && (pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "") {
			err = fmt.Errorf("it is %s", pod.Status.Phase)
		}
		return err
	})
}

// next is the front door for the next kubectl.
func (k *kwok) next() *frontDoor {
	k.asked++
	return k.fronts[k.asked%len(k.fronts)]
}

func (k *kwok) kubectl(input string, args ...string) (string, error) {
	return k.next().kubectl(input, args...)
}

func (k *kwok) run(t *testing.T) {
	t.Helper()
	p, err := programs.Start("kwok", k.dir, append(k.env(), "PATH="+filepath.Join(k.dir, "bin")+":"+os.Getenv("PATH")), openLog(t, "kwok-of-"+k.name), filepath.Join(binaries, "kwok"), "--kubeconfig", k.kubeconfig(),
		"--config", filepath.Join(k.dir, "kwok.yaml"), "--manage-all-nodes", "--node-ip", k.ip, "--node-port", strconv.Itoa(k.port),
		"--server-address", net.JoinHostPort(k.ip, strconv.Itoa(k.port)), "--tls-cert-file", filepath.Join(k.dir, "kubelet.crt"),
		"--tls-private-key-file", filepath.Join(k.dir, "kubelet.key"), "--node-lease-duration-seconds", "40")
	if err != nil {
		t.Fatal(err)
	}
	k.process = p
	t.Cleanup(func() {
		p.Ended = true // its exit code at an interrupt is its own matter
		p.Finish(t)
		p.Show(t)
	})
}

// echo starts a server on loopback that repeats every line.
func (k *kwok) echo(t *testing.T) int {
	t.Helper()
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

// says runs kubectl, and fails unless its output is wanted.
func (k *kwok) says(t *testing.T, wanted, input string, args ...string) {
	t.Helper()
	out, err := k.kubectl(input, args...)
	if err != nil {
		t.Error(err)
		return
	}
	if out != wanted {
		t.Errorf("kubectl %q printed %q, want %q", args, out, wanted)
	}
}

func (k *kwok) logs(t *testing.T) {
	k.says(t, "one\ntwo\n", "", "logs", "a")
	k.says(t, "two\n", "", "logs", "a", "-c", "c", "--tail=1")
	k.says(t, "before\n", "", "logs", "a", "--previous")
	k.says(t, "one\ntwo\n", "", "logs", "a", "--insecure-skip-tls-verify-backend")
	if out, err := k.kubectl("", "logs", "a", "--timestamps", "--tail=1"); err != nil || !strings.HasPrefix(out, "2026-11-28T01:00:01") {
		t.Errorf("log with timestamps = %q, %v; want the time first", out, err)
	}
	for wanted, args := range map[string][]string{
		"container x is not valid for pod a":         {"logs", "a", "-c", "x"},
		`pods "b" not found`:                         {"logs", "b"},
		"limitBytes: Invalid value: -1: must be":     {"get", "--raw", "/api/v1/namespaces/default/pods/a/log?limitBytes=-1"},
		"at most one of `sinceTime` or":              {"get", "--raw", "/api/v1/namespaces/default/pods/a/log?sinceSeconds=5&sinceTime=2026-01-01T00:00:00Z"},
		"Upgrade request required":                   {"get", "--raw", "/api/v1/namespaces/default/pods/a/exec?command=id"},
		"stream: Forbidden: may not be specified":    {"get", "--raw", "/api/v1/namespaces/default/pods/a/log?stream=Stdout"},
		"tailLines: Invalid value: -1: must be grea": {"get", "--raw", "/api/v1/namespaces/default/pods/a/log?tailLines=-1"},
	} {
		if _, err := k.kubectl("", args...); err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("kubectl %q: %v, want %q", args, err, wanted)
		}
	}
	// A followed log stays open, without a deadline.
	ctx, cancel := context.WithTimeout(t.Context(), programs.Patience)
	defer cancel()
	stream, err := k.typed.CoreV1().Pods("default").GetLogs("a", &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	readUntil(t, stream, "two\n")
	log := must[*os.File](t)(os.OpenFile(filepath.Join(k.dir, "log"), os.O_APPEND|os.O_WRONLY, 0))
	defer log.Close()
	fmt.Fprintln(log, "2026-11-28T01:00:02.000000000Z stdout F three")
	readUntil(t, stream, "three\n")
}

func readUntil(t *testing.T, from io.Reader, wanted string) {
	t.Helper()
	var got []byte
	for b := make([]byte, 1); !bytes.HasSuffix(got, []byte(wanted)); {
		if _, err := io.ReadFull(from, b); err != nil {
			t.Fatalf("stream after %q: %v, want further data", got, err)
		}
		got = append(got, b[0])
	}
}

// exec is by websocket, which the front door makes SPDY, and by SPDY, which it relays.
func (k *kwok) exec(t *testing.T) {
	for _, websockets := range []string{"true", "false"} {
		k.saysIn(t, websockets, "hello\n", "hello\n", "exec", "-i", "a", "--", "head", "-n", "1")
		k.saysIn(t, websockets, "out\n", "", "exec", "a", "-c", "c", "--", "sh", "-c", "echo out")
		out, err := k.kubectlIn(websockets, "", "exec", "a", "--", "sh", "-c", "exit 7")
		var exit *exec.ExitError
		if !errors.As(err, &exit) || !strings.Contains(string(exit.Stderr), "exit status 7") { // kwok forwards the text without the code
			t.Errorf("websockets %s: command that exits with 7 = %q, %v; want \"exit status 7\"", websockets, out, err)
		}
	}
	for _, websockets := range []string{"true", "false"} {
		k.interactive(t, websockets)
	}
}

// interactive types into a command with a terminal of kubectl's size. kwok closes it when the command ends, and does not read
// the rest.
func (k *kwok) interactive(t *testing.T, websockets string) {
	const command = `
until_it_is() { i=0; until test "$(stty size)" = "$1"; do i=$((i+1)); test $i -lt 600 || exit 1; sleep 0.1; done; echo "it is $1"; }
until_it_is "31 97"
read line; echo "read <$line>"
until_it_is "40 120"
echo done; sleep 0.5`
	s := k.next().onTerminal(t, websockets, "exec", "-it", "a", "--", "sh", "-c", command)
	s.shows("it is 31 97")
	s.types("some words\n")
	s.shows("some words", "read <some words>") // the terminal echoes the input
	if err := s.terminal.resize(40, 120); err != nil {
		t.Fatal(err)
	}
	s.shows("it is 40 120", "done")
	if err := s.ends(); err != nil {
		t.Errorf("exec -it, websockets %s, failed: %v, want no error", websockets, err)
	}
}

func (k *kwok) kubectlIn(websockets, input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), programs.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, "kubectl"), args...)
	cmd.Dir, cmd.Stdin = k.frontDoor.dir, strings.NewReader(input)
	cmd.Env = append(k.next().env(), "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+websockets, "KUBECTL_PORT_FORWARD_WEBSOCKETS="+websockets)
	out, err := cmd.Output()
	return string(out), err
}

func (k *kwok) saysIn(t *testing.T, websockets, wanted, input string, args ...string) {
	t.Helper()
	if out, err := k.kubectlIn(websockets, input, args...); err != nil || out != wanted {
		t.Errorf("websockets %s: kubectl %q printed %q, %v, want %q", websockets, args, out, err, wanted)
	}
}

// attach shows kwok's output of the container, from then on.
func (k *kwok) attach(t *testing.T) {
	log := must[*os.File](t)(os.OpenFile(filepath.Join(k.dir, "log"), os.O_APPEND|os.O_WRONLY, 0))
	defer log.Close()
	for _, websockets := range []string{"true", "false"} {
		ctx, cancel := context.WithTimeout(t.Context(), programs.Patience)
		cmd := exec.CommandContext(ctx, filepath.Join(binaries, "kubectl"), "attach", "a", "-c", "c")
		cmd.Dir, cmd.Env = k.frontDoor.dir, append(k.next().env(), "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+websockets)
		out := must[io.ReadCloser](t)(cmd.StdoutPipe())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		printed := make(chan struct{})
		go func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if lines.Text() == "attached" {
					close(printed)
					return
				}
			}
		}()
		eventually(t, "kubectl attach prints, websockets "+websockets, func() error {
			fmt.Fprintln(log, "2026-11-28T01:00:03.000000000Z stdout F attached")
			select {
			case <-printed:
				return nil
			default:
				return errors.New("it has not")
			}
		})
		cancel()
		_ = cmd.Wait() // it was killed
	}
}

// debug attaches a terminal to containers that kubectl makes: one in the pod, one on the node, and one in a copy of the pod.
func (k *kwok) debug(t *testing.T) {
	ctx, pods := t.Context(), k.typed.CoreV1().Pods("default")
	for _, websockets := range []string{"true", "false"} {
		k.debugs(t, websockets, "", "debug", "-it", "a", "--image=i", "--target=c", "-c", "in-pod-"+websockets, "--", "sh")
		k.debugs(t, websockets, "Creating debugging pod node-debugger-n1-", "debug", "-it", "node/n1", "--image=i", "-c", "on-node-"+websockets)
		k.debugs(t, websockets, "", "debug", "-it", "a", "--image=i", "--copy-to=copy-"+websockets, "--same-node", "-c", "in-copy-"+websockets)
	}
	pod, err := pods.Get(ctx, "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(pod.Spec.EphemeralContainers); n != 2 {
		t.Fatalf("the pod has %d ephemeral containers, want 2", n)
	}
	if c := pod.Spec.EphemeralContainers[0]; c.Name != "in-pod-true" || c.TargetContainerName != "c" || !c.Stdin || !c.TTY || len(c.Command) != 1 {
		t.Errorf("first ephemeral container = %+v, want in-pod-true for the container c with a terminal", c)
	}
	k.says(t, "before\n", "", "logs", "a", "-c", "in-pod-true", "--previous")
	k.saysIn(t, "true", "out\n", "", "exec", "a", "-c", "in-pod-false", "--", "echo", "out")
	debuggers, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=kubectl-debug", FieldSelector: "spec.nodeName=n1"})
	if err != nil || len(debuggers.Items) != 2 {
		t.Fatalf("%d pods debug the node, %v, want 2", len(debuggers.Items), err)
	}
	for _, debugger := range debuggers.Items {
		if !debugger.Spec.HostPID || !debugger.Spec.HostNetwork || len(debugger.Spec.Volumes) == 0 || debugger.Spec.Volumes[0].HostPath == nil {
			t.Errorf("spec of the pod on the node = %+v, want the host's namespaces and file system", debugger.Spec)
		}
	}
}

// debugs runs kubectl debug on a terminal until it shows kwok's output of the container.
func (k *kwok) debugs(t *testing.T, websockets, before string, args ...string) {
	t.Helper()
	s := k.next().onTerminal(t, websockets, args...)
	s.shows(before, "If you don't see a command prompt, try pressing enter.")
	log := must[*os.File](t)(os.OpenFile(filepath.Join(k.dir, "log"), os.O_APPEND|os.O_WRONLY, 0))
	defer log.Close()
	shown := make(chan error, 1)
	go func() { shown <- s.await("attached to a container") }()
	eventually(t, fmt.Sprintf("kubectl %q, websockets %s", args, websockets), func() error {
		fmt.Fprintln(log, "2026-11-28T01:00:04.000000000Z stdout F attached to a container")
		select {
		case err := <-shown:
			if err != nil {
				t.Fatal(err)
			}
			return nil
		default:
			return errors.New("it shows nothing")
		}
	})
	s.end()
}

func (k *kwok) cp(t *testing.T) {
	from := filepath.Join(k.frontDoor.dir, "file")
	content := bytes.Repeat([]byte("0123456789abcdef"), copied/16)
	place(t, from, content)
	if _, err := k.kubectl("", "cp", from, "default/a:"+filepath.Join(k.dir, "container", "copy")); err != nil {
		t.Fatal(err)
	}
	if _, err := k.kubectl("", "cp", "default/a:"+filepath.Join(k.dir, "container", "copy"), filepath.Join(k.frontDoor.dir, "back")); err != nil {
		t.Fatal(err)
	}
	back, err := os.ReadFile(filepath.Join(k.frontDoor.dir, "back"))
	if err != nil || !bytes.Equal(back, content) {
		t.Errorf("%d bytes came back, %v, want %d", len(back), err, len(content))
	}
}

func (k *kwok) forward(t *testing.T) {
	for _, websockets := range []string{"true", "false"} {
		ctx, cancel := context.WithTimeout(t.Context(), programs.Patience)
		port := freePort(t)
		cmd := exec.CommandContext(ctx, filepath.Join(binaries, "kubectl"), "port-forward", "pod/a", fmt.Sprintf("%d:80", port))
		cmd.Dir, cmd.Env = k.frontDoor.dir, append(k.next().env(), "KUBECTL_PORT_FORWARD_WEBSOCKETS="+websockets)
		out := must[io.ReadCloser](t)(cmd.StdoutPipe())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		readUntil(t, out, "\n") // it listens
		for range 2 {
			conn := must[net.Conn](t)(net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))))
			_ = conn.SetDeadline(time.Now().Add(programs.Patience))
			fmt.Fprintln(conn, "through the tunnel")
			readUntil(t, conn, "through the tunnel\n")
			_ = conn.Close()
		}
		cancel()
		_ = cmd.Wait() // it was killed
	}
}

func (k *kwok) proxies(t *testing.T) {
	ctx := t.Context()
	if k.onLoopback() { // as in kube-apiserver
		for _, path := range []string{"/api/v1/nodes/n1/proxy/healthz", "/api/v1/namespaces/default/pods/a/proxy/x"} {
			if _, err := k.kubectl("", "get", "--raw", path); err == nil || !strings.Contains(err.Error(), "address not allowed") {
				t.Errorf("GET %s = %v, want \"address not allowed\"", path, err)
			}
		}
		return
	}
	for range k.fronts {
		k.kubectlProxy(t)
	}
	k.says(t, "ok", "", "get", "--raw", "/api/v1/nodes/n1/proxy/healthz")
	k.says(t, "ok", "", "get", "--raw", fmt.Sprintf("/api/v1/nodes/n1:%d/proxy/healthz", k.port))
	const answer = `GET /a/b?c=d&e=f  authorization="" user=""`
	k.says(t, answer, "", "get", "--raw", "/api/v1/namespaces/default/pods/a/proxy/a/b?c=d&e=f")
	k.says(t, answer, "", "get", "--raw", fmt.Sprintf("/api/v1/namespaces/default/pods/http:a:%d/proxy/a/b?c=d&e=f", k.web))
	k.says(t, answer, "", "get", "--raw", fmt.Sprintf("/api/v1/nodes/n1:%d/proxy/a/b?c=d&e=f", k.web))

	_, err := k.typed.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.kubectl("", "get", "--raw", "/api/v1/namespaces/default/services/web:81/proxy/"); err == nil || !strings.Contains(err.Error(), `no service port 81 found for service "web"`) {
		t.Errorf("GET of another port of the Service = %v, want the error with the port", err)
	}
	name, port, ready := "http", int32(k.web), true
	slice := func(name string, of *corev1.ObjectReference) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &[]string{"http"}[0], Port: &port}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{k.ip}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}, TargetRef: of}},
		}
	}
	create := func(s *discoveryv1.EndpointSlice) {
		t.Helper()
		if _, err := k.typed.DiscoveryV1().EndpointSlices("default").Create(ctx, s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create(slice("no-pod", nil))
	if _, err := k.kubectl("", "get", "--raw", "/api/v1/namespaces/default/services/web:"+name+"/proxy/"); err == nil || !strings.Contains(err.Error(), `no endpoints available for service "web"`) {
		t.Errorf("GET of an endpoint without a pod = %v, want \"no endpoints available\"", err)
	}
	create(slice("pod", &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "a"}))
	eventually(t, "the Service has an endpoint", func() error {
		out, err := k.kubectl("", "get", "--raw", "/api/v1/namespaces/default/services/web:80/proxy/a/b?c=d&e=f")
		if err == nil && out != answer {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
	body := must[[]byte](t)(k.typed.CoreV1().RESTClient().Post().AbsPath("/api/v1/namespaces/default/services/http:web:http/proxy/post").Body([]byte("body")).DoRaw(ctx))
	if string(body) != `POST /post?timeout=1m0s body authorization="" user=""` {
		t.Errorf("response to the POST = %q, want its method, path and body without credentials", body)
	}
	k.says(t, `GET /here  authorization="" user=""`, "", "get", "--raw", "/api/v1/namespaces/default/services/web:80/proxy/elsewhere") // a redirect, which kubectl follows
	if out := must[[]byte](t)(k.typed.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default/services/web:80/proxy").DoRaw(ctx)); string(out) != `GET /?timeout=1m0s  authorization="" user=""` {
		t.Errorf("response to a GET without a trailing slash = %q, want the path /", out)
	}
}

// kubectlProxy requests a path of the pod and the node's kubelet through kubectl proxy, as a browser does.
func (k *kwok) kubectlProxy(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programs.Patience)
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, "kubectl"), "proxy", "--port=0")
	cmd.Dir, cmd.Env = k.frontDoor.dir, k.next().env()
	out := must[io.ReadCloser](t)(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}()
	readUntil(t, out, "Starting to serve on ")
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	for path, wanted := range map[string]string{
		"/api/v1/nodes/n1/proxy/healthz":                      "ok",
		"/api/v1/namespaces/default/pods/a/proxy/a/b?c=d&e=f": `GET /a/b?c=d&e=f  authorization="" user=""`,
	} {
		request := must[*http.Request](t)(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+strings.TrimSpace(address)+path, nil))
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || string(body) != wanted {
			t.Errorf("%s through kubectl proxy: %d %q, %v, want %q", path, response.StatusCode, body, err, wanted)
		}
	}
}

// audited checks the entries of the operations in the audit log.
func (k *kwok) audited(t *testing.T) {
	for _, wanted := range []string{
		`/api/v1/namespaces/default/pods/a/log`, `"subresource":"exec"`, `"subresource":"portforward"`, `"subresource":"attach"`, `"subresource":"ephemeralcontainers"`,
	} {
		eventually(t, "the audit log has "+wanted, func() error {
			for _, d := range k.fronts {
				log, err := os.ReadFile(d.file("audit.log"))
				if err != nil {
					return err
				}
				if bytes.Contains(log, []byte(wanted)) {
					return nil
				}
			}
			return errors.New("it has not")
		})
	}
}

// gone checks the error messages when a kubelet does not respond.
func (k *kwok) gone(t *testing.T) {
	if _, err := k.process.Stop(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	where := fmt.Sprintf("the kubelet of node n1 at %s:%d (InternalIP): it refused the connection; it has not answered since 20", k.ip, k.port)
	for _, args := range [][]string{{"logs", "a"}, {"exec", "a", "--", "id"}, {"attach", "a", "-c", "c"}} {
		if _, err := k.kubectl("", args...); err == nil || !strings.Contains(err.Error(), where) {
			t.Errorf("kubectl %q: %v, want %q", args, err, where)
		}
	}
	ctx, core := t.Context(), k.typed.CoreV1()
	if _, err := core.Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "empty"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, node := range map[string]string{"b": "empty", "c": "missing", "d": ""} {
		_, err := core.Pods("default").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	for wanted, args := range map[string][]string{
		"node empty has no kubelet that could be asked": {"logs", "b"},
		`nodes "missing" not found`:                     {"logs", "c"},
		"pod d does not have a host assigned":           {"exec", "d", "--", "id"},
	} {
		if _, err := k.kubectl("", args...); err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("kubectl %q: %v, want %q", args, err, wanted)
		}
	}
	if out, err := k.kubectl("", "logs", "d"); err != nil || !strings.Contains(out, "it is assigned to no node") {
		t.Errorf("logs of a pod without a node = %q, %v; want the message that it has none", out, err)
	}
}
