//go:build kubelet && linux

package thirdparty

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"portico.dev/e2e/kubelet"
	"portico.dev/e2e/programs"
	"portico.dev/internal/pki"
)

const (
	joinToken   = "abcdef.0123456789abcdef"
	kubeletPort = 10250
	// apiClient is the user that the front door is to the kubelet.
	apiClient = "kube-apiserver-kubelet-client"
)

// realNode is a cluster with one node, n1, with a real kubelet and running containers.
type realNode struct {
	*cluster
	*machine
	keys    *pki.Directory
	kubelet *programs.Process
	proxy   *programs.Process // kube-proxy
	token   string            // of a service account, bound to a pod
}

// A kubelet of Kubernetes, with containerd, is a node of the front door: it joins with a bootstrap token, and runs pods, which
// kubectl reaches through the front door. kube-scheduler and kube-controller-manager run too.
func TestKubelet(t *testing.T) {
	n := &realNode{machine: newMachine(t)}
	n.openFrontDoor(t)
	n.startControllers(t, "--controllers=-certificatesigningrequest-approving-controller,-certificatesigningrequest-cleaner-controller")
	n.startContainerd(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"the machine becomes a node", n.joins},
		{"a deployment runs", n.deploys},
		{"what the node may do", n.authorized},
		{"a token of a pod", n.tokens},
		{"services", n.services},
		{"a job", n.completes},
		{"logs", n.logs},
		{"exec", n.executes},
		{"attach", n.attaches},
		{"cp", n.copies},
		{"port-forward", n.forwards},
		{"proxy", n.proxied},
		{"debug", n.debugged},
		{"top", n.top},
		{"the front door restarts", n.frontDoorRestarts},
		{"the kubelet is killed", n.killed},
		{"everything is deleted", n.deleted},
	} {
		if !t.Run(step.name, step.run) {
			t.FailNow() // most steps depend on the previous one
		}
	}
}

// openFrontDoor starts a front door with the node support that kubeadm configures at kube-apiserver and
// kube-controller-manager.
func (n *realNode) openFrontDoor(t *testing.T) {
	t.Helper()
	d := &frontDoor{t: t, name: "front-kubelet", dir: t.TempDir(), port: freePort(t)}
	n.keys = must[*pki.Directory](t)(pki.OpenDirectory(d.file("data/pki"), pki.Leaf{CommonName: "front door", DNSNames: []string{"localhost"}, Server: true}))
	cert, key, err := n.keys.ClientKeyPair(apiClient, nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	place(t, d.file("kubelet-client.crt"), cert)
	place(t, d.file("kubelet-client.key"), key)
	d.flags = []string{
		"--bind-address", "0.0.0.0", "--advertise-address", n.hostIP.String(), "--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction",
		"--enable-bootstrap-token-auth", "--controllers", "*,bootstrap-signer-controller,token-cleaner-controller",
		"--cluster-signing-cert-file", "data/pki/client-ca.crt", "--cluster-signing-key-file", "data/pki/client-ca.key",
		"--kubelet-certificate-authority", "data/pki/client-ca.crt", "--kubelet-client-certificate", "kubelet-client.crt", "--kubelet-client-key", "kubelet-client.key",
		"--kubelet-preferred-address-types", "InternalIP",
	}
	d.open(t, newAuthority(t, "front proxies"))
	d.letUsersIn(t)
	n.cluster = &cluster{frontDoor: d}
}

func (n *realNode) startKubelet(t *testing.T) {
	t.Helper()
	n.kubelet = n.machine.start(n.t, "kubelet", filepath.Join(binaries, "kubelet"), "--config", n.in("kubelet.yaml"), "--kubeconfig", n.in("kubelet.conf"),
		"--bootstrap-kubeconfig", n.in("bootstrap.conf"), "--node-ip", n.nodeIP.String(), "--hostname-override", "n1")
}

// in is a file of the machine.
func (n *realNode) in(name string) string { return filepath.Join(n.machine.dir, name) }

// writeKubeconfig writes a kubeconfig for a program on the machine.
func (n *realNode) writeKubeconfig(t *testing.T, name string, user *clientcmdapi.AuthInfo) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: fmt.Sprintf("https://%s:%d", n.hostIP, n.port), CertificateAuthorityData: n.keys.Cluster().BundlePEM()}
	config.AuthInfos["u"] = user
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "c"
	place(t, n.in(name), must[[]byte](t)(clientcmd.Write(*config)))
}

// joins starts with only a token.
func (n *realNode) joins(t *testing.T) {
	ctx, core := t.Context(), n.typed.CoreV1()
	id, secret, _ := strings.Cut(joinToken, ".")
	n.apply(t, `
apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-%s, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData: {token-id: %[1]s, token-secret: "%[2]s", usage-bootstrap-authentication: "true"}
`, id, secret)
	n.do(t, "create", "clusterrolebinding", "kubelet-bootstrap", "--clusterrole=system:node-bootstrapper", "--group=system:bootstrappers")
	n.do(t, "create", "clusterrolebinding", "node-autoapprove-bootstrap", "--clusterrole=system:certificates.k8s.io:certificatesigningrequests:nodeclient", "--group=system:bootstrappers")
	n.do(t, "create", "clusterrolebinding", "node-autoapprove-certificate-rotation", "--clusterrole=system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "--group=system:nodes")
	n.do(t, "create", "clusterrolebinding", "kubelet-api-admin", "--clusterrole=system:kubelet-api-admin", "--user="+apiClient)

	n.writeKubeconfig(t, "bootstrap.conf", &clientcmdapi.AuthInfo{Token: joinToken})
	place(t, n.in("client-ca.crt"), n.keys.Client().BundlePEM())
	place(t, n.in("resolv.conf"), nil)
	place(t, n.in("kubelet.yaml"), fmt.Appendf(nil, `
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {x509: {clientCAFile: %q}}
serverTLSBootstrap: true
rotateCertificates: true
nodeLeaseDurationSeconds: 8
resolvConf: %q
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
# What this machine is:
cgroupRoot: /%s
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
evictionHard: {memory.available: 1Mi}
imageGCHighThresholdPercent: 100
`, n.in("client-ca.crt"), n.in("resolv.conf"), n.groups))
	n.startKubelet(t)

	requests := func(signer string) (of certificatesv1.CertificateSigningRequest, err error) {
		all, err := n.typed.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{FieldSelector: "spec.signerName=" + signer})
		if err == nil && len(all.Items) == 0 {
			err = errors.New("there is none")
		}
		if err == nil {
			of = all.Items[0]
		}
		return of, err
	}
	eventually(t, "a client certificate was approved and signed", func() error {
		r, err := requests(certificatesv1.KubeAPIServerClientKubeletSignerName)
		if err == nil && (r.Spec.Username != "system:bootstrap:"+id || len(r.Status.Certificate) == 0) {
			err = fmt.Errorf("it is of %s, and has %+v", r.Spec.Username, r.Status.Conditions)
		}
		return err
	})
	var serving certificatesv1.CertificateSigningRequest
	eventually(t, "the node requests a serving certificate", func() (err error) {
		serving, err = requests(certificatesv1.KubeletServingSignerName)
		return err
	})
	if serving.Spec.Username != "system:node:n1" || len(serving.Status.Conditions) > 0 {
		t.Errorf("request for the serving certificate: user %s, conditions %+v; want system:node:n1 and none",
			serving.Spec.Username, serving.Status.Conditions)
	}
	eventually(t, "the Node says where its kubelet is", func() error {
		node, err := core.Nodes().Get(ctx, "n1", metav1.GetOptions{})
		if err == nil && node.Status.DaemonEndpoints.KubeletEndpoint.Port != kubeletPort {
			err = fmt.Errorf("it has %+v", node.Status.DaemonEndpoints)
		}
		return err
	})
	_, err := n.kubectl("", "get", "--raw", "/api/v1/nodes/n1/proxy/healthz")
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("the kubelet of node n1 at %s:%d (InternalIP): it could not complete the TLS handshake: it may have no serving certificate yet (kubectl get csr)", n.nodeIP, kubeletPort)) {
		t.Errorf("GET of the kubelet without a serving certificate = %v, want the error with the next step", err)
	}
	t.Logf("before it has a serving certificate: %v", err)
	n.do(t, "certificate", "approve", serving.Name)
	n.do(t, "wait", "--for=condition=Ready", "node/n1", "--timeout=170s")
	node, err := core.Nodes().Get(ctx, "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if i := node.Status.NodeInfo; i.KubeletVersion == "" || !strings.HasPrefix(i.ContainerRuntimeVersion, "containerd://") {
		t.Errorf("node info = %+v, want a kubelet with containerd", i)
	}
	if !slices.Contains(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: n.nodeIP.String()}) {
		t.Errorf("addresses of the node = %v, want its internal IP", node.Status.Addresses)
	}
	t.Log(n.do(t, "get", "node", "n1", "-o", "wide"))
	leases := n.typed.CoordinationV1().Leases("kube-node-lease")
	first, err := leases.Get(ctx, "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "its Lease is renewed", func() error {
		lease, err := leases.Get(ctx, "n1", metav1.GetOptions{})
		if err == nil && !lease.Spec.RenewTime.After(first.Spec.RenewTime.Time) {
			err = errors.New("it is not")
		}
		return err
	})
	eventually(t, "the kubelet is reached with its serving certificate", func() error {
		out, err := n.kubectl("", "get", "--raw", "/api/v1/nodes/n1/proxy/healthz")
		if err == nil && out != "ok" {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
}

// deploys has everything from a Deployment down to processes, with a probe, a ConfigMap, a Secret and a Service.
func (n *realNode) deploys(t *testing.T) {
	n.apply(t, `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: shop}
data: {greeting: good morning}
---
apiVersion: v1
kind: Secret
metadata: {name: web, namespace: shop}
stringData: {word: xyzzy}
---
apiVersion: v1
kind: Secret
metadata: {name: unused, namespace: shop}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 10
      volumes: [{name: config, configMap: {name: web}}]
      containers:
      - name: c
        image: %s
        command: [sh, -c, 'echo started; mkdir /www; echo "$(cat /config/greeting) $WORD" > /www/index.html; httpd -f -v -p 8080 -h /www & trap "echo terminated; exit" TERM; wait']
        env: [{name: WORD, valueFrom: {secretKeyRef: {name: web, key: word}}}]
        volumeMounts: [{name: config, mountPath: /config}]
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {port: 8080, path: /}, periodSeconds: 1}
`, busybox)
	n.do(t, "-n", "shop", "rollout", "status", "deployment/web", "--timeout=170s")
	for _, p := range n.web(t) {
		if p.Spec.NodeName != "n1" || p.Status.HostIP != n.nodeIP.String() || !strings.HasPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://") {
			t.Errorf("pod %s is on %s, %s: %+v; want n1 with containerd", p.Name, p.Spec.NodeName, p.Status.HostIP, p.Status.ContainerStatuses)
		}
	}
	t.Log(n.do(t, "-n", "shop", "get", "pods", "-o", "wide"))
}

// web are the pods of the Deployment, which are two.
func (n *realNode) web(t *testing.T) []corev1.Pod {
	t.Helper()
	pods, err := n.typed.CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil || len(pods.Items) != 2 {
		t.Fatalf("%d pods of the Deployment, %v; want 2", len(pods.Items), err)
	}
	return pods.Items
}

// authorized uses the kubelet's own credentials.
func (n *realNode) authorized(t *testing.T) {
	as := func(args ...string) (string, error) {
		return n.run(append([]string{"env", "HOME=" + n.machine.dir, filepath.Join(binaries, "kubectl"), "--kubeconfig", n.in("kubelet.conf")}, args...)...)
	}
	for wanted, args := range map[string][]string{
		"system:node:n1":  {"auth", "whoami", "-o=jsonpath={.status.userInfo.username}"},
		"Opaque":          {"-n", "shop", "get", "secret", "web"},
		"node/n1 labeled": {"label", "node", "n1", "example.com/a=b"},
	} {
		if out, err := as(args...); err != nil || !strings.Contains(out, wanted) {
			t.Errorf("the node: kubectl %q: %s, %v, want %q", args, out, err, wanted)
		}
	}
	for wanted, args := range map[string][]string{
		`no relationship found between node 'n1' and this object`:           {"-n", "shop", "get", "secret", "unused"},
		`secrets is forbidden: User "system:node:n1" cannot list resource`:  {"get", "secrets", "-A"},
		`is not allowed to modify labels: node-restriction.kubernetes.io/a`: {"label", "node", "n1", "node-restriction.kubernetes.io/a=b"},
		`cannot delete resource "nodes"`:                                    {"delete", "node", "n1"},
	} {
		if out, err := as(args...); err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("the node: kubectl %q: %s, %v, want %q", args, out, err, wanted)
		}
	}
}

// tokens reads the token that the kubelet has requested for a pod, and shows it to the front door.
func (n *realNode) tokens(t *testing.T) {
	pod := n.web(t)[0]
	const directory = "/var/run/secrets/kubernetes.io/serviceaccount/"
	token := n.do(t, "-n", "shop", "exec", pod.Name, "--", "cat", directory+"token")
	review, err := n.typed.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	extra := review.Status.User.Extra
	if review.Status.User.Username != "system:serviceaccount:shop:default" || !slices.Equal(extra["authentication.kubernetes.io/pod-name"], []string{pod.Name}) ||
		!slices.Equal(extra["authentication.kubernetes.io/node-name"], []string{"n1"}) {
		t.Errorf("review of the pod's token = %+v, want the service account, the pod and the node", review.Status)
	}
	if ca := n.do(t, "-n", "shop", "exec", pod.Name, "--", "cat", directory+"ca.crt"); !strings.Contains(ca, strings.TrimSpace(string(n.keys.Cluster().PEM()))) {
		t.Errorf("ca.crt in the pod = %s, want the cluster's CA", ca)
	}
	n.token = token
}

// services checks kube-proxy's rules: a pod reaches another Service, and the front door by the Service kubernetes.
func (n *realNode) services(t *testing.T) {
	cert, key, err := n.keys.ClientKeyPair("system:kube-proxy", nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	n.writeKubeconfig(t, "kube-proxy.conf", &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
	place(t, n.in("kube-proxy.yaml"), fmt.Appendf(nil, `
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: %q}
mode: iptables
clusterCIDR: %q
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`, n.in("kube-proxy.conf"), n.pods.Masked()))
	n.proxy = n.machine.start(n.t, "kube-proxy", filepath.Join(binaries, "kube-proxy"), "--config", n.in("kube-proxy.yaml"), "--hostname-override", "n1")
	pod := n.web(t)[0].Name
	service, err := n.typed.CoreV1().Services("shop").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a pod reaches a Service", func() error {
		out, err := n.kubectl("", "-n", "shop", "exec", pod, "--", "fetch", "http://"+service.Spec.ClusterIP+"/")
		if err == nil && out != "good morning xyzzy\n" {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
	n.do(t, "-n", "shop", "create", "rolebinding", "view", "--clusterrole=view", "--serviceaccount=shop:default")
	eventually(t, "a pod reads from the front door what its service account may", func() error {
		out, err := n.kubectl("", "-n", "shop", "exec", pod, "--", "fetch", "/api/v1/namespaces/shop/configmaps/web")
		if err == nil && !strings.Contains(out, `"greeting":"good morning"`) {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
}

func (n *realNode) completes(t *testing.T) {
	n.do(t, "-n", "shop", "create", "job", "once", "--image="+busybox, "--", "sh", "-c", "echo the job has run")
	n.do(t, "-n", "shop", "wait", "--for=condition=complete", "job/once", "--timeout=170s")
	n.says(t, "the job has run\n", "logs", "job/once")
}

// says runs kubectl in the namespace shop, and fails unless its output is wanted.
func (n *realNode) says(t *testing.T, wanted string, args ...string) {
	t.Helper()
	if out, err := n.kubectl("", append([]string{"-n", "shop"}, args...)...); err != nil || out != wanted {
		t.Errorf("kubectl %q printed %q, %v, want %q", args, out, err, wanted)
	}
}

func (n *realNode) logs(t *testing.T) {
	pod := n.web(t)[0].Name
	if out := n.do(t, "-n", "shop", "logs", pod); !strings.HasPrefix(out, "started\n") {
		t.Errorf("log of the pod = %q, want it to begin with \"started\"", out)
	}
	n.says(t, "started\n", "logs", pod, "--limit-bytes=8")
	n.says(t, "", "logs", pod, "--tail=0")
	if out := n.do(t, "-n", "shop", "logs", pod, "--timestamps", "--limit-bytes=100"); !strings.Contains(out, "Z started\n") {
		t.Errorf("log with timestamps = %q, want a time before \"started\"", out)
	}
	// One that fails is restarted, and has the log of before too.
	n.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: fails, namespace: shop}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: %q, command: [sh, -c, 'if test -e /flag/tried; then echo again; exec sleep 1000000; fi; echo first; echo > /flag/tried; exit 3'], volumeMounts: [{name: flag, mountPath: /flag}]}], volumes: [{name: flag, emptyDir: {}}]}
`, busybox)
	eventually(t, "it runs again", func() error {
		out, err := n.kubectl("", "-n", "shop", "logs", "fails")
		if err == nil && out != "again\n" {
			err = fmt.Errorf("it has logged %q", out)
		}
		return err
	})
	n.says(t, "first\n", "logs", "fails", "--previous")
	failed, err := n.typed.CoreV1().Pods("shop").Get(t.Context(), "fails", metav1.GetOptions{})
	if err != nil || failed.Status.ContainerStatuses[0].RestartCount != 1 || failed.Status.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode != 3 {
		t.Errorf("container statuses = %+v, %v; want one restart after the exit code 3", failed.Status.ContainerStatuses, err)
	}
	// A followed log stays open.
	ctx, cancel := context.WithTimeout(t.Context(), programs.Patience)
	defer cancel()
	stream, err := n.typed.CoreV1().Pods("shop").GetLogs(pod, &corev1.PodLogOptions{Container: "c", Follow: true}).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	kubelet.ReadUntil(t, stream, "started\n")
	n.do(t, "-n", "shop", "exec", pod, "--", "sh", "-c", "echo more > /proc/1/fd/1")
	kubelet.ReadUntil(t, stream, "more\n")
}

var bothProtocols = []string{"true", "false"} // KUBECTL_REMOTE_COMMAND_WEBSOCKETS and KUBECTL_PORT_FORWARD_WEBSOCKETS

// kubectlIn runs kubectl in the namespace shop, over websockets or SPDY.
func (n *realNode) kubectlIn(websockets, input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), programs.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, "kubectl"), append([]string{"-n", "shop"}, args...)...)
	cmd.Dir, cmd.Stdin = n.frontDoor.dir, strings.NewReader(input)
	cmd.Env = append(n.env(), "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+websockets, "KUBECTL_PORT_FORWARD_WEBSOCKETS="+websockets)
	out, err := cmd.Output()
	return string(out), err
}

func (n *realNode) executes(t *testing.T) {
	pod := n.web(t)[0].Name
	for _, websockets := range bothProtocols {
		for wanted, run := range map[string]struct {
			input   string
			command []string
		}{
			"out\n":                {"", []string{"sh", "-c", "echo out; echo err >&2"}},
			"one\ntwo\n":           {"one\ntwo\n", []string{"cat"}}, // until its input ends
			"good morning xyzzy\n": {"", []string{"fetch", "http://127.0.0.1:8080/"}},
		} {
			args := append([]string{"exec", "-i", pod, "-c", "c", "--"}, run.command...)
			if out, err := n.kubectlIn(websockets, run.input, args...); err != nil || out != wanted {
				t.Errorf("websockets %s: kubectl %q printed %q, %v, want %q", websockets, args, out, err, wanted)
			}
		}
		_, err := n.kubectlIn(websockets, "", "exec", pod, "--", "sh", "-c", "exit 7")
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 7 {
			t.Errorf("websockets %s: error of a command that exits with 7 = %v, want the exit code 7", websockets, err)
		}
		s := n.client().OnTerminal(t, websockets, "-n", "shop", "exec", "-it", pod, "--", "sh")
		isOf(s, "31 97")
		s.Resize(40, 120)
		isOf(s, "40 120")
		s.Types("sh -c \"echo run'ning'; exec sleep 1000\"\n")
		s.Shows("running\r\n")
		s.Types("\x03") // Ctrl-C, which ends the command and not kubectl
		s.Types("echo still 'here'; exit 5\n")
		s.Shows("still here\r\n")
		if err := s.Ends(); !errors.As(err, &exit) || exit.ExitCode() != 5 {
			t.Errorf("websockets %s: error of a shell that exits with 5 = %v, want the exit code 5", websockets, err)
		}
	}
}

// isOf waits until the terminal of a shell is of a size.
func isOf(s *kubelet.Session, size string) {
	s.Types("until test \"$(stty size)\" = '" + size + "'; do sleep 0.1; done; echo 'it is' of " + size + "\n")
	s.Shows("it is of " + size + "\r\n")
}

func (n *realNode) attaches(t *testing.T) {
	n.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: console, namespace: shop}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: %q, command: [sh], stdin: true, tty: true}]}
---
apiVersion: v1
kind: Pod
metadata: {name: reader, namespace: shop}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: %[1]q, command: [sh, -c, 'while read line; do echo "read <$line>"; done; sleep 1000000'], stdin: true}]}
`, busybox)
	n.do(t, "-n", "shop", "wait", "--for=condition=Ready", "pod/console", "pod/reader", "--timeout=170s")
	for _, websockets := range bothProtocols {
		s := n.client().OnTerminal(t, websockets, "-n", "shop", "attach", "-it", "console")
		s.Types("echo attached to $(hostname)\n")
		s.Shows("attached to console\r\n")
		isOf(s, "31 97")
		s.End()

		ctx, cancel := context.WithTimeout(t.Context(), programs.Patience)
		cmd := exec.CommandContext(ctx, filepath.Join(binaries, "kubectl"), "-n", "shop", "attach", "-i", "reader")
		cmd.Dir, cmd.Env = n.frontDoor.dir, append(n.env(), "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+websockets)
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
		fmt.Fprintln(in, "websockets "+websockets)
		kubelet.ReadUntil(t, out, "read <websockets "+websockets+">\n")
		cancel()
		_ = cmd.Wait() // it was killed
	}
}

func (n *realNode) copies(t *testing.T) {
	pod := n.web(t)[0].Name
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	place(t, n.file("there"), content)
	for _, websockets := range bothProtocols {
		if _, err := n.kubectlIn(websockets, "", "cp", n.file("there"), pod+":/tmp/copy"); err != nil {
			t.Fatal(err)
		}
		if _, err := n.kubectlIn(websockets, "", "cp", pod+":/tmp/copy", n.file("back-"+websockets)); err != nil {
			t.Fatal(err)
		}
		if back, err := os.ReadFile(n.file("back-" + websockets)); err != nil || !bytes.Equal(back, content) {
			t.Errorf("%d bytes came back, %v, want %d", len(back), err, len(content))
		}
	}
}

func (n *realNode) forwards(t *testing.T) {
	for _, websockets := range bothProtocols {
		for _, to := range []string{"pod/" + n.web(t)[0].Name, "service/web"} {
			ctx, cancel := context.WithTimeout(t.Context(), programs.Patience)
			port, there := freePort(t), 8080
			if strings.HasPrefix(to, "service/") {
				there = 80
			}
			cmd := exec.CommandContext(ctx, filepath.Join(binaries, "kubectl"), "-n", "shop", "port-forward", to, fmt.Sprintf("%d:%d", port, there))
			cmd.Dir, cmd.Env = n.frontDoor.dir, append(n.env(), "KUBECTL_PORT_FORWARD_WEBSOCKETS="+websockets)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			kubelet.ReadUntil(t, out, "\n") // it listens
			for range 3 {
				if body, err := fetch(ctx, "http://127.0.0.1:"+strconv.Itoa(port)+"/"); err != nil || body != "good morning xyzzy\n" {
					t.Errorf("GET through the port-forward to %s, websockets %s = %q, %v; want the page", to, websockets, body, err)
				}
			}
			cancel()
			_ = cmd.Wait() // it was killed
		}
	}
}

// fetch sends a plain HTTP request over a new connection.
func fetch(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var body bytes.Buffer
	_, err = body.ReadFrom(http.MaxBytesReader(nil, response.Body, 1<<20))
	return body.String(), err
}

func (n *realNode) proxied(t *testing.T) {
	pod := n.web(t)[0].Name
	eventually(t, "the Service has endpoints", func() error {
		out, err := n.kubectl("", "get", "--raw", "/api/v1/namespaces/shop/services/web:http/proxy/")
		if err == nil && out != "good morning xyzzy\n" {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
	for path, wanted := range map[string]string{
		"/api/v1/namespaces/shop/pods/" + pod + "/proxy/":      "good morning xyzzy\n",
		"/api/v1/namespaces/shop/pods/" + pod + ":8080/proxy/": "good morning xyzzy\n",
		"/api/v1/namespaces/shop/services/web:80/proxy/":       "good morning xyzzy\n",
		"/api/v1/nodes/n1/proxy/healthz":                       "ok",
		"/api/v1/nodes/n1:10250/proxy/healthz":                 "ok",
	} {
		if out, err := n.kubectl("", "get", "--raw", path); err != nil || out != wanted {
			t.Errorf("GET %s = %q, %v; want %q", path, out, err, wanted)
		}
	}
	for path, wanted := range map[string]string{
		"/api/v1/nodes/n1/proxy/pods":                             `"name":"` + pod + `"`,
		"/api/v1/nodes/n1/proxy/stats/summary":                    `"nodeName": "n1"`,
		"/api/v1/nodes/n1/proxy/metrics/resource":                 "node_memory_working_set_bytes ",
		"/api/v1/nodes/n1/proxy/configz":                          `"serverTLSBootstrap":true`,
		"/api/v1/nodes/n1/proxy/containerLogs/shop/" + pod + "/c": "started\n",
	} {
		if out, err := n.kubectl("", "get", "--raw", path); err != nil || !strings.Contains(out, wanted) {
			t.Errorf("GET %s = %.300q, %v; want %q", path, out, err, wanted)
		}
	}
}

// debugged looks at a process of another container, and at the node.
func (n *realNode) debugged(t *testing.T) {
	pod := n.web(t)[0].Name
	for _, websockets := range bothProtocols {
		s := n.client().OnTerminal(t, websockets, "-n", "shop", "debug", "-it", pod, "--image="+busybox, "--target=c", "-c", "in-pod-"+websockets, "--", "sh")
		s.Shows("try pressing enter.")
		s.Types("head -c 3 /proc/1/root/www/index.html; echo ' is'\" served\"\n")
		s.Shows("goo is served\r\n")
		s.Types("exit\n")
		if err := s.Ends(); err != nil {
			t.Errorf("kubectl debug of a pod, websockets %s, failed: %v, want no error", websockets, err)
		}

		s = n.client().OnTerminal(t, websockets, "-n", "shop", "debug", "-it", "node/n1", "--image="+busybox, "--", "sh")
		s.Shows("Creating debugging pod node-debugger-n1-", "try pressing enter.")
		s.Types("echo on $(hostname), $(cat /host" + n.groupsFile(t) + ")\n")
		s.Shows("on n1, " + n.groups + "\r\n")
		s.Types("exit\n")
		if err := s.Ends(); err != nil {
			t.Errorf("kubectl debug of a node, websockets %s, failed: %v, want no error", websockets, err)
		}
	}
}

// groupsFile is a file of the machine with the name of its control group.
func (n *realNode) groupsFile(t *testing.T) string {
	t.Helper()
	place(t, n.in("groups"), []byte(n.groups))
	return n.in("groups")
}

// top uses metrics-server, which requests the kubelet directly, with the token of its service account.
func (n *realNode) top(t *testing.T) {
	s := metricsServerOf(n.t, n.frontDoor)
	place(t, kubeletCA(s), n.keys.Client().BundlePEM())
	s.start(t)
	s.register(t)
	s.awaitAvailable(t)
	eventually(t, "kubectl top has the node and the pods", func() error {
		nodes, err := n.kubectl("", "top", "node")
		if err != nil {
			return err
		}
		pods, err := n.kubectl("", "-n", "shop", "top", "pod", "-l", "app=web")
		if err == nil && (!strings.Contains(nodes, "n1 ") || strings.Count(pods, "web-") != 2) {
			err = fmt.Errorf("it has %q and %q", nodes, pods)
		}
		if err == nil {
			t.Logf("%s%s", nodes, pods)
		}
		return err
	})
}

// frontDoorRestarts ends consoles; the node finds the front door again.
func (n *realNode) frontDoorRestarts(t *testing.T) {
	n.frontDoor.stop(t)
	n.frontDoor.start(n.t)
	n.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: after, namespace: shop}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: %q, command: [sh, -c, 'echo after; exec sleep 1000000']}]}
`, busybox)
	n.do(t, "-n", "shop", "wait", "--for=condition=Ready", "pod/after", "--timeout=170s")
	n.says(t, "after\n", "logs", "after")
	n.do(t, "wait", "--for=condition=Ready", "node/n1", "--timeout=10s")
}

// killed ends the kubelet, and not the containers.
func (n *realNode) killed(t *testing.T) {
	before := n.web(t)
	n.kill(t, n.kubelet)
	pod := before[0].Name
	where := fmt.Sprintf("the kubelet of node n1 at %s:%d (InternalIP): it refused the connection; it has not answered since 20", n.nodeIP, kubeletPort)
	for _, args := range [][]string{{"logs", pod}, {"exec", pod, "--", "id"}, {"attach", "reader"}, {"get", "--raw", "/api/v1/nodes/n1/proxy/healthz"}} {
		if out, err := n.kubectl("", append([]string{"-n", "shop"}, args...)...); err == nil || !strings.Contains(err.Error(), where) {
			t.Errorf("kubectl %q: %s, %v, want %q", args, out, err, where)
		}
	}
	_, err := n.kubectl("", "-n", "shop", "logs", pod)
	t.Log(err)
	n.says(t, "good morning xyzzy\n", "get", "--raw", "/api/v1/namespaces/shop/pods/"+pod+"/proxy/")
	n.do(t, "wait", "--for=condition=Ready=Unknown", "node/n1", "--timeout=170s") // kube-controller-manager sets the condition

	n.startKubelet(t)
	n.do(t, "wait", "--for=condition=Ready", "node/n1", "--timeout=170s")
	eventually(t, "the kubelet knows its pods again", func() error {
		out, err := n.kubectl("", "-n", "shop", "exec", pod, "-c", "c", "--", "echo", "still here")
		if err == nil && out != "still here\n" {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
	for i, after := range n.web(t) {
		b, a := before[i].Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]
		if a.ContainerID != b.ContainerID || a.RestartCount != 0 {
			t.Errorf("container of %s = %s with %d restarts, want %s without restarts", after.Name, a.ContainerID, a.RestartCount, b.ContainerID)
		}
	}
}

// deleted ends without a container on the node.
func (n *realNode) deleted(t *testing.T) {
	pod := n.web(t)[0].Name
	ctx, cancel := context.WithTimeout(t.Context(), programs.Patience)
	defer cancel()
	stream, err := n.typed.CoreV1().Pods("shop").GetLogs(pod, &corev1.PodLogOptions{Container: "c", Follow: true}).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	kubelet.ReadUntil(t, stream, "started\n")
	n.do(t, "-n", "shop", "delete", "deployment", "web")
	kubelet.ReadUntil(t, stream, "terminated\n") // it got SIGTERM, and its grace period for the output
	n.do(t, "delete", "namespace", "shop", "--timeout=170s")
	eventually(t, "no container is left", func() error {
		out, err := n.run("ctr", "--namespace", "k8s.io", "containers", "list", "--quiet")
		if err == nil && out != "" {
			err = fmt.Errorf("there are %q", out)
		}
		return err
	})
	review, err := n.typed.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: n.token}}, metav1.CreateOptions{})
	if err != nil || review.Status.Authenticated {
		t.Errorf("review of a token of a deleted pod = %+v, %v; want not authenticated", review, err)
	}
	n.kill(t, n.proxy) // it exits when its Node is deleted
	n.do(t, "delete", "node", "n1")
}
