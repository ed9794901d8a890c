package deploy

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/e2e/programs"
)

// deployed are the directories that a person applies.
var deployed = []string{"aggregator/overlays/embedded", "aggregator/overlays/replicas", "front", "extserver/base", "gateway"}

// The API accepts every field of the deployed objects. Unknown fields and values out of range are errors. A second apply
// changes nothing.
func TestDeployedObjectsAreAccepted(t *testing.T) {
	t.Parallel()
	_, kubeconfig := deployFront(t)
	kubectl := func(t *testing.T, args ...string) string {
		return output(t, []string{"KUBECONFIG=" + kubeconfig}, "kubectl", args...)
	}
	for _, dir := range deployed {
		t.Run(dir, func(t *testing.T) {
			apply := func() []unstructured.Unstructured {
				var list unstructured.UnstructuredList
				said := kubectl(t, "apply", "--server-side", "--validate=strict", "--force-conflicts", "-k", "../../deploy/"+dir, "--output=json")
				if err := list.UnmarshalJSON([]byte(said)); err != nil {
					t.Fatal(err)
				}
				for _, o := range list.Items {
					unstructured.RemoveNestedField(o.Object, "metadata", "managedFields") // has the moment of the apply
					unstructured.RemoveNestedField(o.Object, "metadata", "resourceVersion")
					unstructured.RemoveNestedField(o.Object, "status") // is set by other clients
				}
				return list.Items
			}
			first, again := apply(), apply()
			if want := len(objects(t, "kubectl", "kustomize", "../../deploy/"+dir)); len(first) != want || len(again) != want {
				t.Fatalf("applied %d and then %d objects, want %d", len(first), len(again), want)
			}
			for i, o := range again {
				if !reflect.DeepEqual(o, first[i]) {
					t.Errorf("object after the second apply = %v\nwant %v", o, first[i])
				}
			}
			// The overlays are alternatives, so each starts without the objects of the previous one.
			kubectl(t, "delete", "-k", "../../deploy/"+dir, "--wait", "--timeout=2m", "--ignore-not-found")
		})
	}
	t.Run("a field that nobody knows", func(t *testing.T) {
		dir := t.TempDir()
		text := readFile(t, "../../deploy/aggregator/base/service.yaml") + "  loadBalancer: none\n"
		if err := os.WriteFile(filepath.Join(dir, "service.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := try([]string{"KUBECONFIG=" + kubeconfig}, "kubectl", "apply", "--server-side", "--validate=strict", "-f", dir)
		if err == nil || !strings.Contains(err.Error(), "loadBalancer") {
			t.Errorf("apply of an unknown field = %v, want an error with its name", err)
		}
	})
}

// No pod has more rights than it needs: the restricted profile of pod security, a read-only root file system, no token for
// programs that make no requests, and images without a registry.
func TestDeployedPodsAreConfined(t *testing.T) {
	t.Parallel()
	for _, dir := range deployed {
		t.Run(dir, func(t *testing.T) {
			pods := 0
			for id, o := range objects(t, "kubectl", "kustomize", "../../deploy/"+dir) {
				spec, found, err := unstructured.NestedMap(o, "spec", "template", "spec")
				if err != nil || !found {
					continue
				}
				pods++
				for _, want := range []struct {
					value any
					path  []string
				}{
					{true, []string{"securityContext", "runAsNonRoot"}},
					{"RuntimeDefault", []string{"securityContext", "seccompProfile", "type"}},
				} {
					if got, _, _ := unstructured.NestedFieldNoCopy(spec, want.path...); got != want.value {
						t.Errorf("pod spec of %s: %s = %v, want %v", id, strings.Join(want.path, "."), got, want.value)
					}
				}
				container := spec["containers"].([]any)[0].(map[string]any)
				for _, want := range []struct {
					value any
					path  []string
				}{
					{false, []string{"securityContext", "allowPrivilegeEscalation"}},
					{true, []string{"securityContext", "readOnlyRootFilesystem"}},
				} {
					if got, _, _ := unstructured.NestedFieldNoCopy(container, want.path...); got != want.value {
						t.Errorf("%s: container's %s is %v, want %v", id, strings.Join(want.path, "."), got, want.value)
					}
				}
				if drop, _, _ := unstructured.NestedStringSlice(container, "securityContext", "capabilities", "drop"); len(drop) != 1 || drop[0] != "ALL" {
					t.Errorf("%s: capabilities dropped are %v, want ALL", id, drop)
				}
				if image := container["image"].(string); strings.ContainsAny(image, "/.:") {
					t.Errorf("%s: image %s has a registry or a version, want neither: the operator sets both", id, image)
				}
			}
			if pods != 1 {
				t.Errorf("looked at %d workloads, want 1", pods)
			}
		})
	}
}

var openAt = regexp.MustCompile(`"msg":"the front door is open","url":"([^"]+)"`)

// The command lines of the overlays work together: the embedded front door, and two replicas over one etcd with the keys of a
// third directory, as in docs/deploying.md. Only directories, addresses and the etcd differ.
func TestDeployedCommandLinesServe(t *testing.T) {
	t.Parallel()
	sockets, err := os.MkdirTemp("", "p") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	seed, socket := t.TempDir(), filepath.Join(sockets, "etcd")
	here := strings.NewReplacer("$(POD_IP)", "192.0.2.10", "=0.0.0.0", "=127.0.0.1", "--secure-port=6443", "--secure-port=0",
		"--shutdown-delay-duration=10s", "--shutdown-delay-duration=100ms", "/keys/", filepath.Join(seed, "pki")+"/",
		"https://etcd-client.etcd.svc:2379", "unix://"+socket)
	start := func(overlay, data string, more ...string) string {
		var args []string
		for _, arg := range arguments(t, overlay) {
			switch {
			case regexp.MustCompile(`^--etcd-(ca|cert|key)file=`).MatchString(arg): // a unix socket has no TLS
			case arg == "--data-dir=/data":
				args = append(args, "--data-dir="+data)
			default:
				args = append(args, here.Replace(arg))
			}
		}
		return startedAt(t, data, append(args, more...))
	}
	embedded := start("embedded", seed, "--etcd-unix-socket", socket) // its etcd is the replicas' etcd
	one, two := start("replicas", t.TempDir()), start("replicas", t.TempDir())

	ctx, cancel := context.WithTimeout(context.Background(), programs.Patience)
	defer cancel()
	clients := map[string]*kubernetes.Clientset{}
	for _, url := range []string{embedded, one, two} {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		output(t, nil, "aggregator", "kubeconfig", "--data-dir", seed, "--user", "admin", "--group", "system:masters", "--server", url, "--file", file)
		config, err := clientcmd.BuildConfigFromFlags("", file)
		if err != nil {
			t.Fatal(err)
		}
		clients[url] = kubernetes.NewForConfigOrDie(config)
		// Connect by the name inside a cluster, which the certificate has.
		config.ServerName = "portico-aggregator.portico.svc"
		if _, err := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err != nil {
			t.Errorf("Get at %s by the name of the Service failed: %v, want no error", url, err)
		}
	}
	// A token that one replica signed is valid at the second one.
	token, err := clients[one].CoreV1().ServiceAccounts("kube-system").CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	review, err := clients[two].AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token.Status.Token}}, metav1.CreateOptions{})
	if err != nil || !review.Status.Authenticated {
		t.Errorf("review of a token of the other replica = %v %+v, want authenticated", err, review)
	}
}

// arguments returns the arguments of the front door's container in an overlay.
func arguments(t *testing.T, overlay string) []string {
	t.Helper()
	set := objects(t, "kubectl", "kustomize", "../../deploy/aggregator/overlays/"+overlay)["StatefulSet/portico/portico-aggregator"]
	containers, _, err := unstructured.NestedSlice(set, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatalf("containers of the overlay %s = %v, %v; want one", overlay, containers, err)
	}
	args, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	if err != nil {
		t.Fatal(err)
	}
	return args
}

// startedAt starts a front door that logs in JSON and returns its URL once it is open.
func startedAt(t *testing.T, dir string, args []string) (url string) {
	t.Helper()
	_, url = startFrontDoor(t, dir, args)
	return url
}

// startFrontDoor is startedAt with the process.
func startFrontDoor(t *testing.T, dir string, args []string) (p *programs.Process, url string) {
	t.Helper()
	p, err := startProcess("aggregator", dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, "aggregator", args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Finish(t)
		p.Show(t)
	})
	if err := programs.Poll(p.Exited(), func() error {
		match := openAt.FindStringSubmatch(p.Output())
		if match == nil {
			return errors.New("it does not say that it is open")
		}
		url = match[1]
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return p, url
}

// deployFront starts a front door and returns its directory and an administrator's kubeconfig.
func deployFront(t *testing.T, args ...string) (dir, kubeconfig string) {
	t.Helper()
	dir = t.TempDir()
	data := filepath.Join(dir, "data")
	startedAt(t, dir, serveFrom(data, args...))
	return dir, filepath.Join(data, "admin.kubeconfig")
}

// serveFrom are the arguments of a front door with a data directory.
func serveFrom(data string, args ...string) []string {
	return append([]string{"serve", "--data-dir", data, "--secure-port", "0", "--access-log=false", "--logging-format=json"}, args...)
}

// output returns the output of a program that must succeed.
func output(t *testing.T, env []string, program string, args ...string) string {
	t.Helper()
	out, err := try(env, program, args...)
	if err != nil {
		t.Fatalf("%s %s failed: %v, want no error", program, strings.Join(args, " "), err)
	}
	return out
}

// try runs a program without a home directory: kubectl caches discovery there for hours, by host and port, and another front
// door may have the same port by then.
func try(env []string, program string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(binaries, program), args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "KUBECACHEDIR=" + os.DevNull}, env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", errors.Join(err, errors.New(stderr.String()))
	}
	return string(out), nil
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
