//go:build incumbent

package behind

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"portico.dev/e2e/behind/cluster"
	"portico.dev/e2e/programs"
	"portico.dev/internal/pki"
)

// apiServersPerCluster are over one etcd.
const apiServersPerCluster = 3

// fleet is clusters behind two replicas of a front door.
type fleet struct {
	dir      string
	etcd     *cluster.Etcd
	fronts   []*fleetFront
	clusters map[string]*fleetCluster
}

// fleetFront is a replica of the front door, which keeps its port.
type fleetFront struct {
	dir, port string
	args      []string
	process   *programs.Process
}

// fleetCluster is a cluster with several API servers.
type fleetCluster struct {
	*cluster.Cluster
	endpoints []string
}

// Two clusters of three kube-apiservers each are behind two replicas of a front door. Reads succeed while each part is killed and
// started again, one after another, and informers miss nothing.
func TestFleet(t *testing.T) {
	f := newFleet(t, "east", "west")
	admin := f.kubeconfig(t, "", "root", "system:masters")
	for name, c := range f.clusters {
		f.enroll(t, admin, name)
		kubectl(t, c.Kubeconfig, "", "create", "clusterrolebinding", "alice", "--clusterrole", "cluster-admin", "--user", "alice")
	}
	kubectl(t, admin, "", "create", "clusterrole", "fleet", "--verb", "*", "--resource", "clusters.clusters.portico.dev/proxy")
	kubectl(t, admin, "", "create", "clusterrolebinding", "fleet", "--clusterrole", "fleet", "--group", team)
	for name := range f.clusters {
		f.awaitReady(t, admin, name, apiServersPerCluster)
	}

	t.Run("kubectl reads and writes as without a front", func(t *testing.T) { f.kubectl(t) })
	t.Run("Helm installs, upgrades, rolls back and removes a release", f.helm)
	t.Run("users are known in the cluster in both modes", func(t *testing.T) { f.identities(t, admin) })
	t.Run("kubectl uses kubelets in both modes", func(t *testing.T) { f.kubelets(t, admin) })
	server := f.startExtension(t, admin)
	t.Run("an extension server of the front door serves its API in the clusters", func(t *testing.T) { f.extensionAPI(t, admin) })
	t.Run("nothing fails while parts fail", func(t *testing.T) { f.faults(t, admin) })
	t.Run("only its API fails without the extension server", func(t *testing.T) { f.extensionKilled(t, admin, server) })
	t.Run("informers share a watch", func(t *testing.T) { f.sharedWatches(t, admin) })
}

// enroll makes the front door serve a cluster.
func (f *fleet) enroll(t *testing.T, admin, name string) {
	t.Helper()
	c := f.clusters[name]
	out := runProgram(t, c.Kubeconfig, "", "aggregator", "enroll", name, "--endpoints", strings.Join(c.endpoints, ","), "--server-name", "kubernetes.default.svc", "--hosts", hostOf[name])
	if out.code != 0 {
		t.Fatalf("aggregator enroll %s = %s, want exit status 0", name, out)
	}
	kubectl(t, admin, out.stdout, "apply", "-f", "-")
	f.awaitServed(t, admin, name)
}

// team is the group of all users who may use the clusters.
const team = "team"

// hostOf has the host names of the clusters, which do not resolve.
var hostOf = map[string]string{"east": "east.example.com", "west": "west.example.com"}

func newFleet(t *testing.T, names ...string) *fleet {
	t.Helper()
	f := &fleet{dir: t.TempDir(), clusters: map[string]*fleetCluster{}}
	for _, name := range names {
		f.clusters[name] = newFleetCluster(t)
	}
	var err error
	if f.etcd, err = cluster.StartEtcd(filepath.Join(f.dir, "etcd"), filepath.Join(f.dir, "etcd.log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.etcd.Close)
	for i := range 2 {
		f.startFront(t, i)
	}
	return f
}

func newFleetCluster(t *testing.T) *fleetCluster {
	t.Helper()
	k := control(t, true)
	c := &fleetCluster{Cluster: k, endpoints: []string{strings.TrimPrefix(k.URL(), "https://")}}
	for range apiServersPerCluster - 1 {
		config, kill, err := k.AddReplica(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.endpoints = append(c.endpoints, strings.TrimPrefix(config.Host, "https://"))
		t.Cleanup(func() {
			if err := kill(); err != nil {
				t.Error(err)
			}
		})
	}
	return c
}

// startFront starts a new replica. It has the keys of the first one.
func (f *fleet) startFront(t *testing.T, i int) {
	t.Helper()
	dir := filepath.Join(f.dir, "front"+strconv.Itoa(i))
	port := strconv.Itoa(freePort(t))
	keys := filepath.Join(dir, "data", "pki")
	if err := os.MkdirAll(keys, 0o700); err != nil {
		t.Fatal(err)
	}
	if i > 0 {
		copyKeys(t, filepath.Join(f.fronts[0].dir, "data", "pki"), keys)
	}
	front := &fleetFront{dir: dir, port: port, args: []string{
		"serve", "--data-dir", "data", "--bind-address", "127.0.0.1", "--secure-port", port, "--etcd-servers", f.etcd.URL, "--access-log=false",
		"--runtime-config", "clusters.portico.dev/v1alpha1=true", "--shutdown-delay-duration", "1s",
		"--advertise-name", "*.example.com",
	}}
	front.start(t)
	t.Cleanup(func() {
		front.process.Show(t)
		if err := front.process.Kill(); err != nil {
			t.Error(err)
		}
	})
	f.fronts = append(f.fronts, front)
}

// copyKeys copies the files of a directory. Only their owner may read the copies.
func copyKeys(t *testing.T, from, to string) {
	t.Helper()
	files, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(from, file.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, file.Name()), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (f *fleetFront) start(t *testing.T) {
	t.Helper()
	var err error
	f.process, err = programs.Start("front door", f.dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + f.dir}, nil, filepath.Join(binaries, "aggregator"), f.args...)
	if err != nil {
		t.Fatal(err)
	}
	err = programs.Poll(f.process.Exited(), func() error {
		if out := f.process.Output(); !strings.Contains(out, "the front door is open") {
			return fmt.Errorf("it is not open; its output: %s", out)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("wait for the front door: %v, want it to open", err)
	}
}

// kubeconfig writes the kubeconfig of a user for a cluster, or for the front door itself.
func (f *fleet) kubeconfig(t *testing.T, name, user string, groups ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), user+".kubeconfig")
	args := []string{"kubeconfig", "--data-dir", filepath.Join(f.fronts[0].dir, "data"), "--server", "https://127.0.0.1:" + f.fronts[0].port, "--user", user, "--file", file}
	for _, group := range groups {
		args = append(args, "--group", group)
	}
	if name != "" {
		args = append(args, "--cluster", name)
	}
	if out := runProgram(t, "", "", "aggregator", args...); out.code != 0 {
		t.Fatalf("aggregator %q = %s, want exit status 0", args, out)
	}
	return file
}

// byHost returns a kubeconfig that reaches a cluster by its host name.
func (f *fleet) byHost(t *testing.T, kubeconfig, name string) string {
	t.Helper()
	return changed(t, kubeconfig, func(c *clientcmdapi.Cluster) {
		c.Server, c.ProxyURL = "https://"+net.JoinHostPort(hostOf[name], f.fronts[0].port), programs.ProxyTo(t, "127.0.0.1:"+f.fronts[0].port)
	})
}

// through returns a kubeconfig that reaches the same through replicas of the front door, the first one that is open.
func (f *fleet) through(t *testing.T, kubeconfig string, replicas ...int) string {
	t.Helper()
	var addresses []string
	for _, i := range replicas {
		addresses = append(addresses, "127.0.0.1:"+f.fronts[i].port)
	}
	return changed(t, kubeconfig, func(c *clientcmdapi.Cluster) { c.ProxyURL = programs.ProxyTo(t, addresses...) })
}

// ways returns kubeconfigs of alice for a cluster: by path and by host name, through each replica of the front door.
func (f *fleet) ways(t *testing.T, name string) map[string]string {
	t.Helper()
	ways := map[string]string{}
	byPath := f.kubeconfig(t, name, "alice", team)
	byHost := f.byHost(t, byPath, name)
	for i := range f.fronts {
		ways[fmt.Sprintf("by path, replica %d", i)] = f.through(t, byPath, i)
		ways[fmt.Sprintf("by host, replica %d", i)] = f.through(t, byHost, i)
	}
	return ways
}

// changed returns a changed copy of a kubeconfig.
func changed(t *testing.T, kubeconfig string, change func(*clientcmdapi.Cluster)) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	c, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range c.Clusters {
		change(one)
	}
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// awaitServed waits until the front door serves a cluster as its object says now.
func (f *fleet) awaitServed(t *testing.T, admin, name string) {
	t.Helper()
	kubectl(t, admin, "", "wait", "--for=condition=Available", "--for=condition=Permitted", "--timeout=2m", "cluster/"+name)
}

// awaitReady waits until n API servers of a cluster are ready.
func (f *fleet) awaitReady(t *testing.T, admin, name string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d API servers of %s are ready", n, name), func() error {
		return succeeds(t, admin, "", fmt.Sprintf(" %d/%d ", n, apiServersPerCluster), "get", "cluster", name, "--no-headers")
	})
}

func (f *fleet) kubectl(t *testing.T) {
	for name, c := range f.clusters {
		through := f.kubeconfig(t, name, "alice", team)
		kubectl(t, through, crontabs, "apply", "-f", "-")
		kubectl(t, through, "", "wait", "--for=condition=established", "crd/crontabs.front.example.com")
		eventually(t, "the resource type is served", func() error {
			return succeeds(t, through, crontab, "", "apply", "--server-side", "-f", "-")
		})
		direct := filepath.Join(t.TempDir(), "direct.kubeconfig")
		if err := c.WriteKubeconfig(direct, "alice", team); err != nil {
			t.Fatal(err)
		}
		ways := []string{through, f.byHost(t, through, name)}
		for _, args := range [][]string{
			{"get", "namespaces", "-o", "yaml"}, {"describe", "crontabs", "-A"}, {"api-resources"}, {"api-versions"}, {"get", "--raw", "/version"},
			{"get", "--raw", "/openapi/v3"}, {"get", "--raw", "/apis/apps/v1"}, {"auth", "can-i", "--list"}, {"explain", "crontab.spec.schedule"},
		} {
			want := kubectl(t, direct, "", args...)
			for _, way := range ways {
				if got := kubectl(t, way, "", args...); got != want {
					t.Errorf("cluster %s: kubectl %q with %s = %s, want %s as without a front door", name, args, filepath.Base(way), got, want)
				}
			}
		}
	}
}

// helm runs the operations of Helm through the path and through the host name of a cluster.
func (f *fleet) helm(t *testing.T) {
	byPath := f.kubeconfig(t, "east", "alice", team)
	chart, err := filepath.Abs("../clients/installer/chart")
	if err != nil {
		t.Fatal(err)
	}
	for release, kubeconfig := range map[string]string{"by-path": byPath, "by-host": f.byHost(t, byPath, "east")} {
		for _, c := range []struct {
			want string
			args []string
		}{
			{"revision 1 is deployed", []string{"install", release, chart}},
			{"revision 2 is deployed", []string{"upgrade", release, chart, "color=blue", "replicas=2"}},
			{"revision 3 is deployed", []string{"rollback", release, "1"}},
			{"uninstalled", []string{"uninstall", release}},
		} {
			out := runProgram(t, "", "", "installer", append([]string{kubeconfig, release}, c.args...)...)
			if want := release + " " + c.want + "\n"; out.code != 0 || out.stdout != want {
				t.Fatalf("Helm %q = %s, want %s", c.args, out, want)
			}
		}
	}
}

// identities checks who a user of the front door is in a cluster in both modes. West is in mode FrontProxy afterwards.
func (f *fleet) identities(t *testing.T, admin string) {
	const name = "west"
	inside, through, robot := f.clusters[name].Kubeconfig, f.kubeconfig(t, name, "alice", team), filepath.Join(t.TempDir(), "robot.kubeconfig")
	kubectl(t, admin, "", "create", "clusterrole", "impersonator", "--verb", "impersonate", "--resource", "users,groups")
	kubectl(t, admin, "", "create", "clusterrolebinding", "impersonator", "--clusterrole", "impersonator", "--user", "alice")
	kubectl(t, inside, "", "create", "serviceaccount", "robot")
	kubectl(t, inside, "", "create", "clusterrolebinding", "robot", "--clusterrole", "view", "--serviceaccount", "default:robot")
	tokenKubeconfig(t, through, robot, strings.TrimSpace(kubectl(t, inside, "", "create", "token", "robot")))
	for _, mode := range []string{"Impersonate", "FrontProxy"} {
		if mode == "FrontProxy" {
			f.useFrontProxy(t, admin, name)
		}
		for _, c := range []struct {
			kubeconfig, want string
			flags            []string
		}{
			{through, `alice ["team","system:authenticated"]`, nil},
			{through, `bob ["team","system:authenticated"]`, []string{"--as", "bob", "--as-group", team}},
			{robot, `system:serviceaccount:default:robot ["system:serviceaccounts","system:serviceaccounts:default","system:authenticated"]`, nil},
		} {
			whoami := append([]string{"auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}"}, c.flags...)
			if got := kubectl(t, c.kubeconfig, "", whoami...); got != c.want {
				t.Errorf("mode %s: kubectl %q = %s, want %s", mode, whoami, got, c.want)
			}
		}
		kubectl(t, robot, "", "get", "namespace", "default")
		for kubeconfig, want := range map[string]string{
			robot:   `User "system:serviceaccount:default:robot" cannot list resource "secrets"`,
			through: `User "bob" cannot list resource "secrets"`,
		} {
			args := []string{"get", "secrets"}
			if kubeconfig == through {
				args = append(args, "--as", "bob", "--as-group", team)
			}
			if out := runProgram(t, kubeconfig, "", "kubectl", args...); out.code != 1 || !strings.Contains(out.stderr, want) {
				t.Errorf("mode %s: kubectl %q = %s, want the cluster's refusal %s", mode, args, out, want)
			}
		}
	}
}

// useFrontProxy lets the front door identify itself by a certificate that the API servers of a cluster trust for X-Remote headers.
func (f *fleet) useFrontProxy(t *testing.T, admin, name string) {
	t.Helper()
	cert, key, err := f.clusters[name].Keys().FrontProxy().Issue(pki.Leaf{CommonName: pki.FrontProxyClientName, Client: true})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := map[string][]byte{filepath.Join(dir, "tls.crt"): cert, filepath.Join(dir, "tls.key"): key}
	for file, data := range files {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kubectl(t, admin, "", "create", "secret", "tls", "front-proxy", "--cert", filepath.Join(dir, "tls.crt"), "--key", filepath.Join(dir, "tls.key"))
	kubectl(t, admin, "", "patch", "cluster", name, "--type", "merge", "-p",
		`{"spec":{"identity":{"mode":"FrontProxy"},"credentials":{"secret":{"namespace":"default","name":"front-proxy"}}}}`)
	f.awaitServed(t, admin, name)
}
