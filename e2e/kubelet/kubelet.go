package kubelet

import (
	"cmp"
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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/e2e/programs"
	"portico.dev/internal/pki"
	"portico.dev/internal/run/freeport"
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

// Config is the configuration of a Node.
type Config struct {
	// Programs is the directory of kwok.
	Programs string
	// Dir is an existing directory for the kubelet's files.
	Dir string
	// Kubeconfig belongs to an administrator of the cluster.
	Kubeconfig string
	// Clients run kubectl, one after another.
	Clients []*Client
	// Authority issues the serving certificate of the kubelet.
	Authority *pki.Authority
	Ports     *freeport.Ports
	// Log receives kwok's log, and may be nil.
	Log io.Writer
}

// Node is the Node n1 with a kubelet of kwok, and its Pod, a in the namespace default.
type Node struct {
	config  Config
	asked   int // how often kubectl was run
	ip      string
	port    int
	web     int // port of a web server on all addresses, which the pod declares
	process *programs.Process
}

// copied is the size of the file that kubectl copies.
const copied = 1 << 20

// log is the log of the container at first.
const log = "2026-11-28T01:00:00.000000000Z stdout F one\n2026-11-28T01:00:01.000000000Z stdout F two\n"

// Address returns the address of the kubelet.
func (k *Node) Address() string { return net.JoinHostPort(k.ip, strconv.Itoa(k.port)) }

func (k *Node) file(name string) string { return filepath.Join(k.config.Dir, name) }

// place replaces a file atomically.
func place(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

// SetClients replaces the clients that run kubectl.
func (k *Node) SetClients(clients ...*Client) { k.config.Clients = clients }

// Stop ends the kubelet.
func (k *Node) Stop(t *testing.T) {
	t.Helper()
	if _, err := k.process.Stop(os.Interrupt); err != nil {
		t.Fatal(err)
	}
}

// Start starts kwok and returns when the pod runs. They end with the test.
func Start(t *testing.T, c Config) *Node {
	t.Helper()
	k := &Node{config: c, ip: cmp.Or(programs.MachineAddress(), "127.0.0.1"), port: must[int](t)(c.Ports.Free())}
	client := kubernetes.NewForConfigOrDie(must[*rest.Config](t)(clientcmd.BuildConfigFromFlags("", c.Kubeconfig)))
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

	cert, key, err := c.Authority.Issue(pki.Leaf{CommonName: "system:node:n1", Server: true, IPs: []net.IP{net.ParseIP(k.ip)}})
	if err != nil {
		t.Fatal(err)
	}
	place(t, k.file("kubelet.crt"), cert)
	place(t, k.file("kubelet.key"), key)
	place(t, k.file("log"), []byte(log))
	place(t, k.file("previous"), []byte("2026-11-28T00:00:00.000000000Z stdout F before\n"))
	if err := os.Mkdir(k.file("container"), 0o755); err != nil {
		t.Fatal(err)
	}
	// kwok never closes the standard input of a command, and tar waits for its end. A file of 1 MiB makes an archive of this size.
	bin := k.file("bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	tar := must[string](t)(exec.LookPath("tar"))
	script := fmt.Sprintf("#!/bin/sh\ncase $1 in\n-xmf) head -c %d | %s \"$@\" ;;\n*) exec %[2]s \"$@\" ;;\nesac\n", 512+copied+1024, tar)
	if err := os.WriteFile(filepath.Join(bin, "tar"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	// A port-forward leads to a server on loopback, where no proxy leads.
	config := strings.NewReplacer("DIR", c.Dir, "PORT", strconv.Itoa(k.echo(t))).Replace(kwokConfig)
	place(t, k.file("kwok.yaml"), []byte(config))
	k.run(t)

	ctx, core := t.Context(), client.CoreV1()
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
	return k
}

func (k *Node) run(t *testing.T) {
	t.Helper()
	p, err := programs.Start("kwok", k.config.Dir, []string{"PATH=" + k.file("bin") + ":" + os.Getenv("PATH"), "HOME=" + k.config.Dir}, k.config.Log, filepath.Join(k.config.Programs, "kwok"),
		"--kubeconfig", k.config.Kubeconfig,
		"--config", k.file("kwok.yaml"), "--manage-all-nodes", "--node-ip", k.ip, "--node-port", strconv.Itoa(k.port),
		"--server-address", k.Address(), "--tls-cert-file", k.file("kubelet.crt"),
		"--tls-private-key-file", k.file("kubelet.key"), "--node-lease-duration-seconds", "40")
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
func (k *Node) echo(t *testing.T) int {
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
