package thirdparty

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"portico.dev/e2e/programs"
)

var (
	clusterNodes = flag.Int("nodes", 100, "how many Nodes TestCluster has")
	clusterPods  = flag.Int("pods", 3000, "about how many Pods TestCluster has at its fullest")
)

const (
	perDeployment = 100 // pods
	teams         = 5   // namespaces that share the Deployments
	failing       = 5   // Nodes in the zone that fails
)

// cluster is a front door with kube-scheduler, kube-controller-manager and kwok, all unmodified.
type cluster struct {
	*frontDoor
	deployments int
	zoneB       *programs.Process // the kwok of the Nodes that fail
}

// A whole cluster in front of it: Nodes and Pods are kwok's, everything else is Kubernetes' own.
func TestCluster(t *testing.T) {
	ours := "--controllers=namespace-controller,garbage-collector-controller,serviceaccount-controller,root-ca-certificate-publisher-controller," +
		"clusterrole-aggregation-controller,resourcequota-controller,validatingadmissionpolicy-status-controller"
	c := &cluster{frontDoor: startFrontDoor(t, "front-cluster", ours), deployments: max(teams, (*clusterPods-*clusterNodes)/perDeployment)}
	c.startControllers(t)
	c.startKwok(t, "a", true)
	c.zoneB = c.startKwok(t, "b", false)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"nodes become ready", c.nodes},
		{"deployments", c.deploy},
		{"a rollout", c.rollout},
		{"jobs", c.jobs},
		{"a daemon set", c.daemonSet},
		{"a stateful set with claims", c.statefulSet},
		{"an autoscaler", c.autoscaler},
		{"a drain keeps to the budget", c.drain},
		{"a taint", c.taint},
		{"preemption", c.preemption},
		{"devices", c.devices},
		{"nodes fail", c.nodesFail},
		{"namespaces are deleted under load", c.deleteNamespaces},
	} {
		if !t.Run(step.name, step.run) {
			t.FailNow() // each step depends on the previous one
		}
	}
}

// startControllers starts kube-controller-manager, with more flags if need be, and kube-scheduler.
func (c *cluster) startControllers(t *testing.T, more ...string) {
	t.Helper()
	common := []string{"--kubeconfig", c.kubeconfig(), "--authentication-kubeconfig", c.kubeconfig(), "--authorization-kubeconfig", c.kubeconfig(),
		"--bind-address", "127.0.0.1", "--secure-port", "0", "--leader-elect=false"}
	launch(t, c.frontDoor, "kube-controller-manager", slices.Concat(common, []string{
		"--controllers=*,-namespace-controller,-garbage-collector-controller,-serviceaccount-controller,-root-ca-certificate-publisher-controller," +
			"-clusterrole-aggregation-controller,-resourcequota-controller,-validatingadmissionpolicy-status-controller",
		"--kube-api-qps", "1000", "--kube-api-burst", "2000", "--node-monitor-grace-period", "20s", "--node-monitor-period", "2s", "--node-eviction-rate", "5",
		"--horizontal-pod-autoscaler-sync-period", "3s", "--concurrent-deployment-syncs", "20", "--concurrent-replicaset-syncs", "20"}, more)...)
	place(t, c.file("scheduler.yaml"), fmt.Appendf(nil, `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q, qps: 2000, burst: 4000}
`, c.kubeconfig()))
	launch(t, c.frontDoor, "kube-scheduler", "--config", c.file("scheduler.yaml"), "--authentication-kubeconfig", c.kubeconfig(),
		"--authorization-kubeconfig", c.kubeconfig(), "--bind-address", "127.0.0.1", "--secure-port", "0")
}

// launch starts a program that ends with the test, at the latest.
func launch(t *testing.T, d *frontDoor, name string, args ...string) *programs.Process {
	t.Helper()
	p, err := programs.Start(name, d.dir, d.env(), openLog(t, name+"-of-"+d.name), filepath.Join(binaries, name), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // SIGTERM ends these as SIGKILL does
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// startKwok runs the Nodes of a zone and their Pods, by kwok's default stages.
func (c *cluster) startKwok(t *testing.T, zone string, volumes bool) *programs.Process {
	t.Helper()
	find := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok")
	find.Dir, find.Env = filepath.Join(must[string](t)(os.Getwd()), "kwok"), append(os.Environ(), "GOWORK=off")
	stages := filepath.Join(strings.TrimSpace(string(must[[]byte](t)(find.Output()))), "kustomize", "stage")
	directories := []string{"node/fast", "node/heartbeat-with-lease", "pod/fast"}
	if volumes {
		directories = append(directories, "volume/fast")
	}
	var config bytes.Buffer
	for _, dir := range directories {
		for _, file := range must[[]string](t)(filepath.Glob(filepath.Join(stages, dir, "*.yaml"))) {
			if data := must[[]byte](t)(os.ReadFile(file)); bytes.Contains(data, []byte("\nkind: Stage\n")) {
				fmt.Fprintf(&config, "---\n%s\n", data)
			}
		}
	}
	file := c.file("kwok-" + zone + ".yaml")
	place(t, file, config.Bytes())
	port := strconv.Itoa(freePort(t))
	return launch(t, c.frontDoor, "kwok", "--kubeconfig", c.kubeconfig(), "--config", file, "--manage-all-nodes=false", "--manage-nodes-with-label-selector", "zone="+zone,
		"--node-ip", "127.0.0.1", "--node-port", port, "--server-address", "127.0.0.1:"+port, "--node-lease-duration-seconds", "40")
}

func (c *cluster) apply(t *testing.T, manifest string, args ...any) {
	t.Helper()
	if _, err := c.kubectl(fmt.Sprintf(manifest, args...), "apply", "--server-side", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) do(t *testing.T, args ...string) string {
	t.Helper()
	return must[string](t)(c.kubectl("", args...))
}

func (c *cluster) node(i int) string { return fmt.Sprintf("n%03d", i) }

func (c *cluster) team(i int) string { return fmt.Sprintf("team-%d", i%teams) }

func (c *cluster) nodes(t *testing.T) {
	var all strings.Builder
	add := func(name, zone, cpu, more string) {
		fmt.Fprintf(&all, `---
apiVersion: v1
kind: Node
metadata: {name: %s, labels: {kubernetes.io/hostname: %[1]s, zone: %s}}
%s
status:
  allocatable: {cpu: %s, memory: 64Gi, pods: "110"}
  capacity: {cpu: %[4]s, memory: 64Gi, pods: "110"}
`, name, zone, more, cpu)
	}
	for i := range *clusterNodes {
		zone := "a"
		if i < failing {
			zone = "b"
		}
		add(c.node(i), zone, `"16"`, "")
	}
	add("small", "a", `"4"`, "spec: {taints: [{key: small, value: \"yes\", effect: NoSchedule}]}")
	if _, err := c.kubectl(all.String(), "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	c.do(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=170s")
}

// deploy fills the cluster.
func (c *cluster) deploy(t *testing.T) {
	for i := range teams {
		c.do(t, "create", "namespace", c.team(i))
	}
	for i := range c.deployments {
		c.apply(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: app-%d, namespace: %s}
spec:
  replicas: %d
  selector: {matchLabels: {app: app-%[1]d}}
  template:
    metadata: {labels: {app: app-%[1]d}}
    spec:
      terminationGracePeriodSeconds: 1
      tolerations:
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 5}
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 5}
      containers: [{name: c, image: "i:1", resources: {requests: {cpu: 10m, memory: 10Mi}}}]
`, i, c.team(i), perDeployment)
	}
	c.available(t)
}

// available waits until every Deployment has all of its replicas.
func (c *cluster) available(t *testing.T) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d Deployments have their replicas", c.deployments), func() error {
		for i := range teams {
			list, err := c.typed.AppsV1().Deployments(c.team(i)).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, o := range list.Items {
				if o.Status.ObservedGeneration != o.Generation || o.Status.UpdatedReplicas != *o.Spec.Replicas || o.Status.AvailableReplicas != *o.Spec.Replicas || o.Status.Replicas != *o.Spec.Replicas {
					return fmt.Errorf("%s/%s has %+v", o.Namespace, o.Name, o.Status)
				}
			}
		}
		return nil
	})
}

func (c *cluster) rollout(t *testing.T) {
	for i := range teams {
		c.do(t, "-n", c.team(i), "set", "image", fmt.Sprintf("deployment/app-%d", i), "c=i:2")
	}
	for i := range teams {
		c.do(t, "-n", c.team(i), "rollout", "status", fmt.Sprintf("deployment/app-%d", i), "--timeout=170s")
	}
	c.available(t)
	eventually(t, "only pods of the new image are left", func() error {
		pods, err := c.typed.CoreV1().Pods(c.team(0)).List(t.Context(), metav1.ListOptions{LabelSelector: "app=app-0"})
		if err != nil {
			return err
		}
		if len(pods.Items) != perDeployment {
			return fmt.Errorf("there are %d", len(pods.Items))
		}
		for _, p := range pods.Items {
			if p.Spec.Containers[0].Image != "i:2" {
				return fmt.Errorf("%s has %s", p.Name, p.Spec.Containers[0].Image)
			}
		}
		return nil
	})
}

func (c *cluster) jobs(t *testing.T) {
	c.do(t, "create", "namespace", "jobs")
	c.apply(t, `
apiVersion: batch/v1
kind: CronJob
metadata: {name: every-minute, namespace: jobs}
spec:
  schedule: "* * * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}
`)
	for i := range 5 {
		c.apply(t, `
apiVersion: batch/v1
kind: Job
metadata: {name: job-%d, namespace: jobs}
spec:
  completions: 20
  parallelism: 10
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}
`, i)
	}
	for i := range 5 {
		c.do(t, "-n", "jobs", "wait", "--for=condition=complete", fmt.Sprintf("job/job-%d", i), "--timeout=170s")
	}
	eventually(t, "the CronJob ran", func() error {
		o, err := c.typed.BatchV1().CronJobs("jobs").Get(t.Context(), "every-minute", metav1.GetOptions{})
		if err == nil && o.Status.LastSuccessfulTime == nil {
			err = fmt.Errorf("it has %+v", o.Status)
		}
		return err
	})
	c.do(t, "-n", "jobs", "delete", "cronjob", "every-minute")
}

func (c *cluster) daemonSet(t *testing.T) {
	c.do(t, "create", "namespace", "agents")
	c.apply(t, `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: agents}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {tolerations: [{operator: Exists}], containers: [{name: c, image: i}]}
`)
	c.do(t, "-n", "agents", "rollout", "status", "daemonset/agent", "--timeout=170s")
	o, err := c.typed.AppsV1().DaemonSets("agents").Get(t.Context(), "agent", metav1.GetOptions{})
	if err != nil || int(o.Status.NumberAvailable) != *clusterNodes+1 {
		t.Errorf("status of the DaemonSet = %+v, %v; want a pod on each node", o.Status, err)
	}
}

// statefulSet has claims with volumes from kwok.
func (c *cluster) statefulSet(t *testing.T) {
	ctx, core := t.Context(), c.typed.CoreV1()
	c.apply(t, `
apiVersion: v1
kind: Namespace
metadata: {name: data}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: kwok-volume}
provisioner: kwok.x-k8s.io/volume
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: data}
spec:
  serviceName: db
  replicas: 10
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: i, volumeMounts: [{name: data, mountPath: /data}]}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {storageClassName: kwok-volume, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`)
	c.do(t, "-n", "data", "rollout", "status", "statefulset/db", "--timeout=170s")
	bound := func() (volumes []string) {
		claims, err := core.PersistentVolumeClaims("data").List(ctx, metav1.ListOptions{})
		if err != nil || len(claims.Items) != 10 {
			t.Fatalf("%d claims, %v; want 10", len(claims.Items), err)
		}
		for _, claim := range claims.Items {
			if claim.Status.Phase != corev1.ClaimBound {
				t.Errorf("phase of the claim %s = %s, want Bound", claim.Name, claim.Status.Phase)
			}
			volumes = append(volumes, claim.Spec.VolumeName)
		}
		return volumes
	}
	before := bound()
	old, err := core.Pods("data").Get(ctx, "db-3", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.do(t, "-n", "data", "delete", "pod", "db-3")
	eventually(t, "db-3 is back", func() error {
		pod, err := core.Pods("data").Get(ctx, "db-3", metav1.GetOptions{})
		if err == nil && (pod.UID == old.UID || pod.Status.Phase != corev1.PodRunning) {
			err = errors.New("it is not")
		}
		return err
	})
	if after := bound(); strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("volumes after the pod was replaced = %q, want %q", after, before)
	}
	c.do(t, "-n", "data", "scale", "statefulset/db", "--replicas=0")
	c.do(t, "-n", "data", "delete", "pvc", "--all", "--timeout=170s") // protection ends with the pods
	eventually(t, "no volume is left", func() error {
		volumes, err := core.PersistentVolumes().List(ctx, metav1.ListOptions{})
		if err == nil && len(volumes.Items) > 0 {
			err = fmt.Errorf("there are %d, the first is %s", len(volumes.Items), volumes.Items[0].Status.Phase)
		}
		return err
	})
}

// autoscaler scales by a metric of extserver.
func (c *cluster) autoscaler(t *testing.T) {
	var orders atomic.Int64
	orders.Store(10)
	c.do(t, "create", "namespace", "shop")
	metrics := newThird(c.t, c.frontDoor, ours, "extserver", []rbacv1.PolicyRule{described}, externalBeta1)
	prometheus := scrape(c.t, metrics.dir, func(w io.Writer) { fmt.Fprintf(w, "orders_open{namespace=\"shop\"} %d\n", orders.Load()) })
	extserverOf(t, metrics, prometheus)
	metrics.start(t)
	metrics.serves = func(ctx context.Context, config *rest.Config) error {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		return client.RESTClient().Get().AbsPath("/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/orders_open").Do(ctx).Error()
	}
	metrics.register(t)
	metrics.awaitAvailable(t)
	makeDeployment(t, c.frontDoor, "web")
	c.apply(t, `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 30
  metrics: [{type: External, external: {metric: {name: orders_open}, target: {type: AverageValue, averageValue: "2"}}}]
`)
	c.awaitReplicas(t, "web", 5, "10 orders, 2 each")
	orders.Store(24)
	c.awaitReplicas(t, "web", 12, "24 orders, 2 each")
	c.do(t, "-n", "shop", "rollout", "status", "deployment/web", "--timeout=170s")
	c.do(t, "-n", "shop", "delete", "hpa", "web")
}

// drain empties a node, with a disruption budget that permits one pod of a team at a time.
func (c *cluster) drain(t *testing.T) {
	ctx, team, core := t.Context(), c.team(0), c.typed.CoreV1()
	pods, err := core.Pods(team).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := len(pods.Items)
	c.apply(t, `
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: all, namespace: %s}
spec: {minAvailable: %d, selector: {}}
`, team, all-1)
	eventually(t, "the budget is known", func() error {
		o, err := c.typed.PolicyV1().PodDisruptionBudgets(team).Get(ctx, "all", metav1.GetOptions{})
		if err == nil && o.Status.DisruptionsAllowed != 1 {
			err = fmt.Errorf("it has %+v", o.Status)
		}
		return err
	})
	if pods, err = core.Pods(team).List(ctx, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	ready, node, most := map[types.UID]bool{}, "", map[string]int{}
	for i := range pods.Items {
		p := &pods.Items[i]
		ready[p.UID] = isReady(p)
		if most[p.Spec.NodeName]++; most[p.Spec.NodeName] > most[node] {
			node = p.Spec.NodeName
		}
	}
	if most[node] < 2 {
		t.Fatalf("no node has two of the %d pods, want one for the disruption budget", all)
	}
	ctx, cancel := context.WithCancel(ctx)
	w, err := c.typed.CoreV1().Pods(team).Watch(ctx, metav1.ListOptions{ResourceVersion: pods.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	var watching sync.WaitGroup
	fewest := len(ready)
	watching.Go(func() {
		for e := range w.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok {
				ready[p.UID] = e.Type != watch.Deleted && isReady(p)
				fewest = min(fewest, count(ready))
			}
		}
	})
	c.do(t, "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=170s")
	cancel()
	watching.Wait()
	if fewest < all-1 {
		t.Errorf("fewest ready pods = %d, want at least %d", fewest, all-1)
	}
	t.Logf("%s was drained of %d pods of the team; of its %d, %d were ready at the fewest", node, most[node], all, fewest)
	c.onlyDaemons(t, node)

	c.do(t, "-n", team, "patch", "pdb", "all", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"minAvailable":%d}}`, all))
	c.available(t)
	pods, err = core.Pods(team).List(t.Context(), metav1.ListOptions{LabelSelector: "app=app-0"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "no pod may go", func() error {
		o, err := c.typed.PolicyV1().PodDisruptionBudgets(team).Get(t.Context(), "all", metav1.GetOptions{})
		if err == nil && (o.Status.ObservedGeneration != o.Generation || o.Status.DisruptionsAllowed != 0) {
			err = fmt.Errorf("it has %+v", o.Status)
		}
		return err
	})
	err = core.Pods(team).EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pods.Items[0].Name, Namespace: team}})
	if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "Cannot evict pod as it would violate the pod's disruption budget.") {
		t.Errorf("eviction against the budget = %v, want 429", err)
	}
	c.do(t, "uncordon", node)
}

func isReady(p *corev1.Pod) bool {
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil
		}
	}
	return false
}

func count[K comparable](m map[K]bool) (n int) {
	for _, is := range m {
		if is {
			n++
		}
	}
	return n
}

// onlyDaemons waits until a node has only pods of DaemonSets.
func (c *cluster) onlyDaemons(t *testing.T, node string) {
	t.Helper()
	eventually(t, "only the daemon is on "+node, func() error {
		pods, err := c.typed.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
		if err == nil && (len(pods.Items) != 1 || pods.Items[0].Namespace != "agents") {
			err = fmt.Errorf("it has %d pods", len(pods.Items))
		}
		return err
	})
}

func (c *cluster) taint(t *testing.T) {
	node := c.node(failing)
	c.do(t, "taint", "node", node, "maintenance=yes:NoExecute")
	c.onlyDaemons(t, node)
	c.do(t, "taint", "node", node, "maintenance-")
	c.available(t)
}

// preemption uses a separate node with room for four pods of the lower priority.
func (c *cluster) preemption(t *testing.T) {
	ctx := t.Context()
	c.apply(t, `
apiVersion: v1
kind: Namespace
metadata: {name: priorities}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: low}
value: 1
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: low, namespace: priorities}
spec:
  replicas: 4
  selector: {matchLabels: {app: low}}
  template:
    metadata: {labels: {app: low}}
    spec:
      priorityClassName: low
      terminationGracePeriodSeconds: 1
      nodeSelector: {kubernetes.io/hostname: small}
      tolerations: [{key: small, operator: Exists}]
      containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]
`)
	c.do(t, "-n", "priorities", "rollout", "status", "deployment/low", "--timeout=170s")
	_, err := c.typed.CoreV1().Pods("priorities").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "high"},
		Spec: corev1.PodSpec{
			PriorityClassName: "high", NodeSelector: map[string]string{corev1.LabelHostname: "small"},
			Tolerations: []corev1.Toleration{{Key: "small", Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
			}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.do(t, "-n", "priorities", "wait", "--for=condition=Ready", "pod/high", "--timeout=170s")
	eventually(t, "two pods of the lower priority are left, and Events say why", func() error {
		o, err := c.typed.AppsV1().Deployments("priorities").Get(ctx, "low", metav1.GetOptions{})
		if err != nil {
			return err
		}
		events, err := c.typed.CoreV1().Events("priorities").List(ctx, metav1.ListOptions{FieldSelector: "reason=Preempted"})
		if err == nil && (o.Status.AvailableReplicas != 2 || len(events.Items) < 2) {
			err = fmt.Errorf("%d are available, and there are %d Events", o.Status.AvailableReplicas, len(events.Items))
		}
		return err
	})
}

// devices are on one node, and fewer than the pods that claim one.
func (c *cluster) devices(t *testing.T) {
	ctx, node := t.Context(), c.node(failing)
	c.apply(t, `
apiVersion: v1
kind: Namespace
metadata: {name: devices}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: %s-gpus}
spec:
  driver: gpu.example.com
  nodeName: %[1]s
  pool: {name: %[1]s, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}, {name: gpu-1}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one, namespace: devices}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: training, namespace: devices}
spec:
  replicas: 2
  selector: {matchLabels: {app: training}}
  template:
    metadata: {labels: {app: training}}
    spec:
      terminationGracePeriodSeconds: 1
      resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]
      containers: [{name: c, image: i, resources: {claims: [{name: gpu}]}}]
`, node)
	c.do(t, "-n", "devices", "rollout", "status", "deployment/training", "--timeout=170s")
	pods, err := c.typed.CoreV1().Pods("devices").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		if p.Spec.NodeName != node {
			t.Errorf("pod %s is on the node %s, want %s with the devices", p.Name, p.Spec.NodeName, node)
		}
	}
	allocated := func() (devices []string, err error) {
		claims, err := c.typed.ResourceV1().ResourceClaims("devices").List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, claim := range claims.Items {
			if a := claim.Status.Allocation; a != nil {
				for _, r := range a.Devices.Results {
					devices = append(devices, r.Device)
				}
			}
		}
		slices.Sort(devices)
		return devices, nil
	}
	if devices, err := allocated(); err != nil || !slices.Equal(devices, []string{"gpu-0", "gpu-1"}) {
		t.Errorf("allocated devices = %q, %v; want gpu-0 and gpu-1", devices, err)
	}
	c.do(t, "-n", "devices", "scale", "deployment/training", "--replicas=3")
	eventually(t, "a third pod finds no device", func() error {
		pods, err := c.typed.CoreV1().Pods("devices").List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Pending"})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			for _, condition := range p.Status.Conditions {
				if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable && strings.Contains(condition.Message, "cannot allocate all claims") {
					return nil
				}
			}
			err = fmt.Errorf("%s has %+v", p.Name, p.Status.Conditions)
		}
		if err == nil {
			err = errors.New("no pod is pending")
		}
		return err
	})
	c.do(t, "-n", "devices", "scale", "deployment/training", "--replicas=0")
	eventually(t, "the devices are free", func() error {
		devices, err := allocated()
		if err == nil && len(devices) > 0 {
			err = fmt.Errorf("allocated are %q", devices)
		}
		return err
	})
}

// nodesFail ends the kwok of a zone. Its Nodes are deleted when their pods were given up, as an administrator does.
func (c *cluster) nodesFail(t *testing.T) {
	ctx, core := t.Context(), c.typed.CoreV1()
	if err := c.zoneB.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Nodes of the zone are unreachable", func() error {
		nodes, err := core.Nodes().List(ctx, metav1.ListOptions{LabelSelector: "zone=b"})
		if err != nil {
			return err
		}
		for _, n := range nodes.Items {
			unreachable := false
			for _, taint := range n.Spec.Taints {
				unreachable = unreachable || taint.Key == corev1.TaintNodeUnreachable && taint.Effect == corev1.TaintEffectNoExecute
			}
			if !unreachable {
				return fmt.Errorf("%s has the taints %v", n.Name, n.Spec.Taints)
			}
		}
		return nil
	})
	left := func() (of []corev1.Pod, err error) {
		for i := range failing {
			pods, err := core.Pods("").List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", c.node(i)).String()})
			if err != nil {
				return nil, err
			}
			of = append(of, pods.Items...)
		}
		return of, nil
	}
	eventually(t, "their pods are given up", func() error {
		pods, err := left()
		for _, p := range pods {
			if strings.HasPrefix(p.Namespace, "team-") && p.DeletionTimestamp == nil {
				err = fmt.Errorf("%s/%s is not", p.Namespace, p.Name)
			}
		}
		return err
	})
	for i := range failing {
		c.do(t, "delete", "node", c.node(i))
	}
	eventually(t, "pods of Nodes that are gone are collected", func() error {
		pods, err := left()
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("%d are left, the first is %s/%s", len(pods), pods[0].Namespace, pods[0].Name)
		}
		return err
	})
	c.available(t)
}

// deleteNamespaces deletes all that is full, while another namespace is in use.
func (c *cluster) deleteNamespaces(t *testing.T) {
	c.do(t, "create", "namespace", "busy")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var used sync.WaitGroup
	var rounds atomic.Int64
	for worker := range 4 {
		used.Go(func() {
			maps := c.typed.CoreV1().ConfigMaps("busy")
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("map-%d-%d", worker, i)
				_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
				if err == nil {
					err = maps.Delete(ctx, name, metav1.DeleteOptions{})
				}
				if err != nil && ctx.Err() == nil {
					t.Errorf("write in the namespace that is kept failed: %v, want no error", err)
					return
				}
				rounds.Add(1)
			}
		})
	}
	args := []string{"delete", "namespace", "--timeout=170s"}
	for i := range teams {
		args = append(args, c.team(i))
	}
	began := time.Now()
	c.do(t, args...)
	cancel()
	used.Wait()
	t.Logf("%d namespaces were deleted after %s, with %d creates and deletes beside", teams, time.Since(began).Round(100*time.Millisecond), rounds.Load())
	for i := range teams {
		pods, err := c.typed.CoreV1().Pods(c.team(i)).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(pods.Items) > 0 {
			t.Errorf("namespace %s has %d pods, %v; want 0", c.team(i), len(pods.Items), err)
		}
	}
}
