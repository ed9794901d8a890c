//go:build incumbent

package behind

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/e2e/behind/cluster"
	"portico.dev/e2e/programs"
)

// apiServersPerCluster are over one etcd.
const apiServersPerCluster = 3

// fleet is two clusters behind two replicas of a front door.
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
	f := newFleet(t)
	admin := f.kubeconfig(t, "", "root", "system:masters")
	for name, c := range f.clusters {
		out := runProgram(t, c.Kubeconfig, "", "aggregator", "enroll", name, "--endpoints", strings.Join(c.endpoints, ","), "--server-name", "kubernetes.default.svc", "--hosts", hostOf[name])
		if out.code != 0 {
			t.Fatalf("aggregator enroll %s = %s, want exit status 0", name, out)
		}
		kubectl(t, admin, out.stdout, "apply", "-f", "-")
		kubectl(t, admin, "", "wait", "--for=condition=Available", "--for=condition=Permitted", "--timeout=2m", "cluster/"+name)
		kubectl(t, c.Kubeconfig, "", "create", "clusterrolebinding", "alice", "--clusterrole", "cluster-admin", "--user", "alice")
	}
	kubectl(t, admin, "", "create", "clusterrole", "fleet", "--verb", "*", "--resource", "clusters.clusters.portico.dev/proxy")
	kubectl(t, admin, "", "create", "clusterrolebinding", "fleet", "--clusterrole", "fleet", "--user", "alice")
	eventually(t, "all API servers are ready", func() error {
		out := kubectl(t, admin, "", "get", "clusters", "--no-headers")
		if n := strings.Count(out, " 3/3 "); n != len(f.clusters) {
			return fmt.Errorf("%d of %d clusters have 3 ready API servers: %s", n, len(f.clusters), out)
		}
		return nil
	})

	t.Run("kubectl reads and writes as without a front", func(t *testing.T) { f.kubectl(t) })
	t.Run("nothing fails while parts are restarted", func(t *testing.T) { f.restart(t) })
}

// hostOf has the host names of the clusters. One of them resolves everywhere.
var hostOf = map[string]string{"east": "localhost", "west": "west.example.com"}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{dir: t.TempDir(), clusters: map[string]*fleetCluster{}}
	for name := range hostOf {
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
	if i > 0 {
		if err := os.CopyFS(filepath.Join(dir, "data", "pki"), os.DirFS(filepath.Join(f.fronts[0].dir, "data", "pki"))); err != nil {
			t.Fatal(err)
		}
	} else if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	front := &fleetFront{dir: dir, port: port, args: []string{
		"serve", "--data-dir", "data", "--bind-address", "127.0.0.1", "--secure-port", port, "--etcd-servers", f.etcd.URL, "--access-log=false",
		"--runtime-config", "clusters.portico.dev/v1alpha1=true", "--shutdown-delay-duration", "1s",
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

func (f *fleetFront) start(t *testing.T) {
	t.Helper()
	var err error
	f.process, err = programs.Start("front door", f.dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + f.dir}, nil, filepath.Join(binaries, "aggregator"), f.args...)
	if err != nil {
		t.Fatal(err)
	}
	p := f.process
	eventually(t, "the front door is open", func() error {
		if out := p.Output(); !strings.Contains(out, "the front door is open") {
			return fmt.Errorf("output: %s", out)
		}
		return nil
	})
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

// config returns a client configuration of alice for a cluster, which reaches any replica: by path, or by host name.
func (f *fleet) config(t *testing.T, name string, byHost bool) *rest.Config {
	t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig(t, name, "alice"))
	if err != nil {
		t.Fatal(err)
	}
	if byHost {
		c.Host, c.ServerName = "https://"+net.JoinHostPort(hostOf[name], f.fronts[0].port), "localhost"
	}
	c.QPS, c.WarningHandler = -1, rest.NoWarnings{}
	c.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		var errs []error
		for _, front := range f.fronts {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1:"+front.port)
			if err == nil {
				return conn, nil
			}
			errs = append(errs, err)
		}
		return nil, errors.Join(errs...)
	}
	return c
}

func (f *fleet) kubectl(t *testing.T) {
	for name, c := range f.clusters {
		through := f.kubeconfig(t, name, "alice")
		kubectl(t, through, crontabs, "apply", "-f", "-")
		kubectl(t, through, "", "wait", "--for=condition=established", "crd/crontabs.front.example.com")
		eventually(t, "the resource type is served", func() error {
			return succeeds(t, through, crontab, "", "apply", "--server-side", "-f", "-")
		})
		direct := filepath.Join(t.TempDir(), "direct.kubeconfig")
		if err := c.WriteKubeconfig(direct, "alice"); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{
			{"get", "namespaces", "-o", "yaml"}, {"get", "crontabs", "-A"}, {"api-resources"}, {"api-versions"}, {"get", "--raw", "/version"},
			{"get", "--raw", "/openapi/v3"}, {"get", "--raw", "/apis/apps/v1"}, {"auth", "can-i", "--list"}, {"explain", "crontab.spec.schedule"},
		} {
			if got, want := kubectl(t, through, "", args...), kubectl(t, direct, "", args...); got != want {
				t.Errorf("cluster %s: kubectl %q through the front = %s, want %s as without it", name, args, got, want)
			}
		}
	}
}

// restart kills and starts each part under reads and informers.
func (f *fleet) restart(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var readers sync.WaitGroup
	var reads, failures atomic.Int64
	seen := map[string]func(key string) bool{}
	for name := range f.clusters {
		for _, byHost := range []bool{false, true} {
			client := kubernetes.NewForConfigOrDie(f.config(t, name, byHost))
			readers.Go(func() {
				for ctx.Err() == nil {
					err := read(ctx, client)
					if ctx.Err() != nil {
						return
					}
					reads.Add(1)
					if err != nil {
						failures.Add(1)
						t.Errorf("cluster %s, by host %t: %v, want no error", name, byHost, err)
					}
				}
			})
			factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace("default"))
			configMaps := factory.Core().V1().ConfigMaps()
			store := configMaps.Informer().GetStore()
			factory.Start(ctx.Done())
			factory.WaitForCacheSync(ctx.Done())
			defer factory.Shutdown()
			defer end()
			seen[fmt.Sprintf("%s, by host %t", name, byHost)] = func(key string) bool {
				_, exists, err := store.GetByKey("default/" + name + "-" + key)
				return err == nil && exists
			}
		}
	}
	written := 0
	check := func(what string) {
		written++
		key := strconv.Itoa(written)
		for name, c := range f.clusters {
			client := kubernetes.NewForConfigOrDie(c.anyAdmin())
			eventually(t, "a write in "+name, func() error {
				_, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + key}}, metav1.CreateOptions{})
				return err
			})
		}
		for informer, has := range seen {
			eventually(t, what+": the informer of "+informer+" has the new object", func() error {
				if !has(key) {
					return errors.New("it does not")
				}
				return nil
			})
		}
	}
	check("before any fault")
	for name, c := range f.clusters {
		if err := c.StopAPIServer(); err != nil {
			t.Fatal(err)
		}
		check("an API server of " + name + " is dead")
		bounded, cancel := context.WithTimeout(ctx, 5*time.Minute)
		defer cancel()
		if err := c.StartAPIServer(bounded); err != nil {
			t.Fatal(err)
		}
		check("it is back")
	}
	for i, front := range f.fronts {
		if _, err := front.process.Stop(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		check(fmt.Sprintf("front door %d is stopped", i))
		front.start(t)
		check("it is back")
	}
	end()
	readers.Wait()
	t.Logf("%d of %d reads failed", failures.Load(), reads.Load())
}

func read(ctx context.Context, client kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
	return err
}

// anyAdmin returns an administrator's configuration for an API server that is never stopped.
func (c *fleetCluster) anyAdmin() *rest.Config {
	config := rest.CopyConfig(c.Admin)
	config.Host = "https://" + c.endpoints[1]
	return config
}
