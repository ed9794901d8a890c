package kubelet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/e2e/programs"
)

// bothProtocols are WebSockets and SPDY, as the environment of kubectl chooses them.
var bothProtocols = []string{"true", "false"}

// next is the client for the next kubectl.
func (k *Node) next() *Client {
	k.asked++
	return k.config.Clients[k.asked%len(k.config.Clients)]
}

// says runs kubectl, and fails unless its output is wanted.
func (k *Node) says(t *testing.T, wanted, input string, args ...string) {
	t.Helper()
	out, err := k.next().Kubectl(input, args...)
	if err != nil {
		t.Error(err)
		return
	}
	if out != wanted {
		t.Errorf("kubectl %q printed %q, want %q", args, out, wanted)
	}
}

// Logs reads logs of the pod, and follows one.
func (k *Node) Logs(t *testing.T) {
	place(t, k.file("log"), []byte(log))
	k.says(t, "one\ntwo\n", "", "logs", "a")
	k.says(t, "two\n", "", "logs", "a", "-c", "c", "--tail=1")
	k.says(t, "before\n", "", "logs", "a", "--previous")
	k.says(t, "one\ntwo\n", "", "logs", "a", "--insecure-skip-tls-verify-backend")
	if out, err := k.next().Kubectl("", "logs", "a", "--timestamps", "--tail=1"); err != nil || !strings.HasPrefix(out, "2026-11-28T01:00:01") {
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
		if _, err := k.next().Kubectl("", args...); err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("kubectl %q: %v, want %q", args, err, wanted)
		}
	}
	// A followed log stays open, without a deadline.
	ctx, cancel := context.WithTimeout(t.Context(), programs.Patience)
	defer cancel()
	stream, err := k.next().typed(t).CoreV1().Pods("default").GetLogs("a", &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	ReadUntil(t, stream, "two\n")
	log := must[*os.File](t)(os.OpenFile(k.file("log"), os.O_APPEND|os.O_WRONLY, 0))
	defer log.Close()
	fmt.Fprintln(log, "2026-11-28T01:00:02.000000000Z stdout F three")
	ReadUntil(t, stream, "three\n")
}

// Exec runs commands in the pod over WebSockets and over SPDY, with and without a terminal.
func (k *Node) Exec(t *testing.T) {
	for _, websockets := range bothProtocols {
		k.saysIn(t, websockets, "hello\n", "hello\n", "exec", "-i", "a", "--", "head", "-n", "1")
		k.saysIn(t, websockets, "out\n", "", "exec", "a", "-c", "c", "--", "sh", "-c", "echo out")
		out, err := k.next().kubectlIn(websockets, "", "exec", "a", "--", "sh", "-c", "exit 7")
		var exit *exec.ExitError
		if !errors.As(err, &exit) || !strings.Contains(string(exit.Stderr), "exit status 7") { // kwok forwards the text without the code
			t.Errorf("websockets %s: command that exits with 7 = %q, %v; want \"exit status 7\"", websockets, out, err)
		}
	}
	for _, websockets := range bothProtocols {
		k.interactive(t, websockets)
	}
}

// interactive types into a command with a terminal of kubectl's size. kwok closes it when the command ends, and does not read
// the rest.
func (k *Node) interactive(t *testing.T, websockets string) {
	const command = `
until_it_is() { i=0; until test "$(stty size)" = "$1"; do i=$((i+1)); test $i -lt 600 || exit 1; sleep 0.1; done; echo "it is $1"; }
until_it_is "31 97"
read line; echo "read <$line>"
until_it_is "40 120"
echo done; sleep 0.5`
	s := k.next().OnTerminal(t, websockets, "exec", "-it", "a", "--", "sh", "-c", command)
	s.Shows("it is 31 97")
	s.Types("some words\n")
	s.Shows("some words", "read <some words>") // the terminal echoes the input
	s.Resize(40, 120)
	s.Shows("it is 40 120", "done")
	if err := s.Ends(); err != nil {
		t.Errorf("exec -it, websockets %s, failed: %v, want no error", websockets, err)
	}
}

func (k *Node) saysIn(t *testing.T, websockets, wanted, input string, args ...string) {
	t.Helper()
	if out, err := k.next().kubectlIn(websockets, input, args...); err != nil || out != wanted {
		t.Errorf("websockets %s: kubectl %q printed %q, %v, want %q", websockets, args, out, err, wanted)
	}
}

// Attach shows kwok's output of the container, from then on.
func (k *Node) Attach(t *testing.T) {
	log := must[*os.File](t)(os.OpenFile(k.file("log"), os.O_APPEND|os.O_WRONLY, 0))
	defer log.Close()
	for _, websockets := range bothProtocols {
		ctx, cancel := context.WithTimeout(t.Context(), programs.Patience)
		cmd := k.next().Command(ctx, websockets, "attach", "a", "-c", "c")
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

// Debug attaches a terminal to containers that kubectl makes: one in the pod, one on the node, and one in a copy of the pod.
func (k *Node) Debug(t *testing.T) {
	ctx, pods := t.Context(), k.next().typed(t).CoreV1().Pods("default")
	for _, websockets := range bothProtocols {
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
func (k *Node) debugs(t *testing.T, websockets, before string, args ...string) {
	t.Helper()
	s := k.next().OnTerminal(t, websockets, args...)
	s.Shows(before, "If you don't see a command prompt, try pressing enter.")
	log := must[*os.File](t)(os.OpenFile(k.file("log"), os.O_APPEND|os.O_WRONLY, 0))
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
	s.End()
}

// Copy copies a file to the pod and back.
func (k *Node) Copy(t *testing.T) {
	dir := t.TempDir() // the commands of the pod run on this machine
	from, there, back := filepath.Join(dir, "file"), "default/a:"+filepath.Join(dir, "copy"), filepath.Join(dir, "back")
	content := bytes.Repeat([]byte("0123456789abcdef"), copied/16)
	place(t, from, content)
	for _, args := range [][]string{{"cp", from, there}, {"cp", there, back}} {
		if _, err := k.next().Kubectl("", args...); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes came back, %v, want the %d that were copied", len(got), err, len(content))
	}
}

// Forward sends lines through port-forwards to a server that repeats them.
func (k *Node) Forward(t *testing.T) {
	for _, websockets := range bothProtocols {
		ctx, cancel := context.WithTimeout(t.Context(), programs.Patience)
		port := must[int](t)(k.config.Ports.Free())
		cmd := k.next().Command(ctx, websockets, "port-forward", "pod/a", fmt.Sprintf("%d:80", port))
		out := must[io.ReadCloser](t)(cmd.StdoutPipe())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ReadUntil(t, out, "\n") // it listens
		for range 2 {
			conn := must[net.Conn](t)(net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))))
			_ = conn.SetDeadline(time.Now().Add(programs.Patience))
			fmt.Fprintln(conn, "through the tunnel")
			ReadUntil(t, conn, "through the tunnel\n")
			_ = conn.Close()
		}
		cancel()
		_ = cmd.Wait() // it was killed
	}
}

// Proxy sends requests to the node, the pod and a Service, also through kubectl proxy. It creates the Service.
func (k *Node) Proxy(t *testing.T) {
	ctx := t.Context()
	if k.ip == "127.0.0.1" { // as in kube-apiserver
		for _, path := range []string{"/api/v1/nodes/n1/proxy/healthz", "/api/v1/namespaces/default/pods/a/proxy/x"} {
			if _, err := k.next().Kubectl("", "get", "--raw", path); err == nil || !strings.Contains(err.Error(), "address not allowed") {
				t.Errorf("GET %s = %v, want \"address not allowed\"", path, err)
			}
		}
		return
	}
	for range k.config.Clients {
		k.kubectlProxy(t)
	}
	k.says(t, "ok", "", "get", "--raw", "/api/v1/nodes/n1/proxy/healthz")
	k.says(t, "ok", "", "get", "--raw", fmt.Sprintf("/api/v1/nodes/n1:%d/proxy/healthz", k.port))
	const answer = `GET /a/b?c=d&e=f  authorization="" user=""`
	k.says(t, answer, "", "get", "--raw", "/api/v1/namespaces/default/pods/a/proxy/a/b?c=d&e=f")
	k.says(t, answer, "", "get", "--raw", fmt.Sprintf("/api/v1/namespaces/default/pods/http:a:%d/proxy/a/b?c=d&e=f", k.web))
	k.says(t, answer, "", "get", "--raw", fmt.Sprintf("/api/v1/nodes/n1:%d/proxy/a/b?c=d&e=f", k.web))

	_, err := k.next().typed(t).CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.next().Kubectl("", "get", "--raw", "/api/v1/namespaces/default/services/web:81/proxy/"); err == nil || !strings.Contains(err.Error(), `no service port 81 found for service "web"`) {
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
		if _, err := k.next().typed(t).DiscoveryV1().EndpointSlices("default").Create(ctx, s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create(slice("no-pod", nil))
	if _, err := k.next().Kubectl("", "get", "--raw", "/api/v1/namespaces/default/services/web:"+name+"/proxy/"); err == nil || !strings.Contains(err.Error(), `no endpoints available for service "web"`) {
		t.Errorf("GET of an endpoint without a pod = %v, want \"no endpoints available\"", err)
	}
	create(slice("pod", &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "a"}))
	eventually(t, "the Service has an endpoint", func() error {
		out, err := k.next().Kubectl("", "get", "--raw", "/api/v1/namespaces/default/services/web:80/proxy/a/b?c=d&e=f")
		if err == nil && out != answer {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
	body := must[[]byte](t)(k.next().typed(t).CoreV1().RESTClient().Post().AbsPath("/api/v1/namespaces/default/services/http:web:http/proxy/post").Body([]byte("body")).DoRaw(ctx))
	if string(body) != `POST /post?timeout=1m0s body authorization="" user=""` {
		t.Errorf("response to the POST = %q, want its method, path and body without credentials", body)
	}
	k.says(t, `GET /here  authorization="" user=""`, "", "get", "--raw", "/api/v1/namespaces/default/services/web:80/proxy/elsewhere") // a redirect, which kubectl follows
	if out := must[[]byte](t)(k.next().typed(t).CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default/services/web:80/proxy").DoRaw(ctx)); string(out) != `GET /?timeout=1m0s  authorization="" user=""` {
		t.Errorf("response to a GET without a trailing slash = %q, want the path /", out)
	}
}

// kubectlProxy requests a path of the pod and the node's kubelet through kubectl proxy, as a browser does.
func (k *Node) kubectlProxy(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programs.Patience)
	cmd := k.next().Command(ctx, "true", "proxy", "--port=0", "--append-server-path")
	out := must[io.ReadCloser](t)(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}()
	ReadUntil(t, out, "Starting to serve on ")
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
