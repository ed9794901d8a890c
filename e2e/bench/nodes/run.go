package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"portico.dev/e2e/cluster"
	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

const (
	perDeployment = 100 // Pods
	namespaces    = 5   // shared by the Deployments
	writers       = 16  // concurrent creations of Nodes
)

// Settings are the sizes and durations of the benchmark.
type Settings struct {
	Nodes, Pods int
	// Rest is the idle time before the measurement of idle CPU, which takes Idle. Without Nodes, both are a third.
	Rest, Idle time.Duration
	// Every is the interval between two requests of a probe for one object, EveryList the interval between two lists.
	Every, EveryList time.Duration
	// Within bounds the wait for all Nodes, and separately for all Pods.
	Within time.Duration
}

// Full returns the settings of the published results. If nodes is above zero, it is the number of Nodes. There are
// ten Pods per Node.
func Full(nodes int) Settings {
	if nodes == 0 {
		nodes = 1000
	}
	return Settings{
		Nodes: nodes, Pods: 10 * nodes, Rest: 30 * time.Second, Idle: time.Minute, Every: 50 * time.Millisecond, EveryList: 5 * time.Second, Within: 8 * time.Minute,
	}
}

// Quick returns settings that show only that the benchmark works.
func Quick() Settings {
	return Settings{Nodes: 5, Pods: 100, Rest: time.Second, Idle: 2 * time.Second, Every: 20 * time.Millisecond, EveryList: 200 * time.Millisecond, Within: 3 * time.Minute}
}

// rig is one API server with its cluster.
type rig struct {
	Settings
	say       func(string, ...any)
	front     *environment.FrontDoor
	cluster   *cluster.Cluster
	processes []process
	row       *Row
}

// process is a measured process.
type process struct {
	name string
	pid  int
}

// Run measures both servers. program is the aggregator to measure; if it is empty, the aggregator is built from the
// tree.
func Run(ctx context.Context, program string, theirs environment.Kubernetes, s Settings, say func(string, ...any)) (*Report, error) {
	if theirs.Scheduler == "" || theirs.Kwok == "" {
		return nil, errors.New("-kube-scheduler and -kwok are needed")
	}
	version, err := theirs.Version()
	if err != nil {
		return nil, err
	}
	r := &Report{Machine: measure.ThisMachine(), Version: version, Settings: s}
	for _, who := range []string{ours, others} {
		row, err := runOne(ctx, program, theirs, s, who, say)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", who, err)
		}
		r.Rows = append(r.Rows, row)
	}
	r.Took = time.Since(r.Machine.Began)
	return r, nil
}

// runOne measures one server in a separate environment, so that the clusters do not affect each other.
func runOne(ctx context.Context, program string, theirs environment.Kubernetes, s Settings, who string, say func(string, ...any)) (row *Row, err error) {
	y, err := environment.New(program)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\nthe log of the front door ends:\n%s", err, y.Log())
		}
		err = errors.Join(err, y.Close())
	}()
	g := &rig{Settings: s, row: &Row{Who: who}, say: func(format string, args ...any) { say(who+": "+format, args...) }}
	g.say("building and starting")
	if err := g.open(ctx, y, theirs); err != nil {
		return nil, err
	}
	dir, err := y.Dir("cluster")
	if err != nil {
		return nil, err
	}
	server := cluster.Server{
		CA: g.file("ca.crt"), CAKey: g.file("ca.key"), Certificate: g.file("tls.crt"), Key: g.file("tls.key"), Client: g.front.Client,
	}
	if server.Kubeconfig, err = g.front.Kubeconfig(); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	g.cluster = cluster.New(cluster.Programs{ControllerManager: theirs.ControllerManager, Scheduler: theirs.Scheduler, Kwok: theirs.Kwok}, server, dir, log)
	defer func() { err = errors.Join(err, g.cluster.Stop()) }()
	if err := g.start(); err != nil {
		return nil, err
	}
	return g.row, g.measure(ctx)
}

func (g *rig) file(name string) string { return filepath.Join(g.front.Dir, name) }

// open starts the API server. All controllers run in kube-controller-manager, with either API server.
func (g *rig) open(ctx context.Context, y *environment.Environment, theirs environment.Kubernetes) error {
	const byAddress = "--kubelet-preferred-address-types=InternalIP"
	if g.row.Who == ours {
		f, _, err := y.FrontBeside(ctx, "ours", nil, byAddress, "--controllers=", "--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=tls.crt", "--service-account-signing-key-file=tls.key")
		if err != nil {
			return err
		}
		g.front, g.processes = f.FrontDoor, []process{{serverProcess, f.PID}}
		return nil
	}
	i, _, err := y.Incumbent(ctx, "theirs", theirs, byAddress)
	if err != nil {
		return err
	}
	g.front, g.processes = i.FrontDoor, []process{{serverProcess, i.PID}, {etcdProcess, i.Etcd.PID}}
	return nil
}

func (g *rig) start() error {
	if err := g.cluster.StartManager(append(cluster.ManagerFlags, "--concurrent-deployment-syncs=20", "--concurrent-replicaset-syncs=20")...); err != nil {
		return err
	}
	if err := g.cluster.StartScheduler(); err != nil {
		return err
	}
	if err := g.cluster.StartKwok(); err != nil {
		return err
	}
	c := g.cluster
	g.processes = append(g.processes, process{"kube-controller-manager", c.Manager.PID()}, process{"kube-scheduler", c.Scheduler.PID()}, process{"kwok", c.Kwok.PID()})
	return nil
}

// measure runs all phases.
func (g *rig) measure(ctx context.Context) error {
	if err := g.idle(ctx, "no Nodes yet", 3); err != nil {
		return err
	}
	if err := g.phase(ctx, "Nodes become ready", g.makeNodes); err != nil {
		return err
	}
	if err := g.phase(ctx, "Pods become available", g.fill); err != nil {
		return err
	}
	if err := g.idle(ctx, "Nodes and Pods, idle", 1); err != nil {
		return err
	}
	page, err := g.front.Client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	if g.row.Calls, err = callsOf(page, durationMetric); err != nil {
		return err
	}
	g.row.SLI, err = callsOf(page, sliMetric)
	return err
}

// phase measures the resources that the processes use while do runs.
func (g *rig) phase(ctx context.Context, name string, do func(context.Context) error) error {
	g.say("%s", name)
	ctx, cancel := context.WithTimeoutCause(ctx, g.Within, fmt.Errorf("%s: not within %s", name, g.Within))
	defer cancel()
	before, began := make([]time.Duration, len(g.processes)), time.Now()
	for i, p := range g.processes {
		var err error
		if before[i], err = measure.CPU(p.pid); err != nil {
			return err
		}
		if err := measure.ResetPeakRSS(p.pid); err != nil {
			return err
		}
	}
	if err := do(ctx); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	phase := Phase{Name: name, Seconds: time.Since(began).Seconds()}
	for i, p := range g.processes {
		after, err := measure.CPU(p.pid)
		if err != nil {
			return err
		}
		use := Use{Process: p.name, CPU: (after - before[i]).Seconds()}
		peak, err := measure.PeakRSS(p.pid)
		if err != nil {
			return err
		}
		rss, err := measure.RSS(p.pid)
		if err != nil {
			return err
		}
		use.Peak, use.RSS = mib(peak), mib(rss)
		phase.Uses = append(phase.Uses, use)
	}
	g.row.Phases = append(g.row.Phases, phase)
	return g.cluster.Alive()
}

// idle measures a phase without activity, after a rest. part divides the durations of the settings.
func (g *rig) idle(ctx context.Context, name string, part time.Duration) error {
	if err := environment.Pause(ctx, g.Rest/part); err != nil {
		return err
	}
	return g.phase(ctx, name, func(ctx context.Context) error { return environment.Pause(ctx, g.Idle/part) })
}

func (g *rig) makeNodes(ctx context.Context) error {
	return g.cluster.MakeNodes(ctx, g.Nodes, writers)
}

func namespace(i int) string { return fmt.Sprintf("team-%d", i%namespaces) }

// fill creates the Deployments and waits until all their Pods are available, while the probes run.
func (g *rig) fill(ctx context.Context) error {
	for i := range namespaces {
		if _, err := g.front.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace(i)}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	probes, err := startProbes(ctx, g)
	if err != nil {
		return err
	}
	defer func() { g.row.Probes = probes.stop() }()
	for i := range g.Pods / perDeployment {
		if _, err := g.front.Client.AppsV1().Deployments(namespace(i)).Create(ctx, deployment(i), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return g.cluster.Until(ctx, func(ctx context.Context) error {
		list, err := g.front.Client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		available := 0
		for _, d := range list.Items {
			available += int(d.Status.AvailableReplicas)
		}
		g.say("%d of %d Pods are available", available, g.Pods)
		if available < g.Pods/perDeployment*perDeployment {
			return fmt.Errorf("%d of %d Pods are available", available, g.Pods)
		}
		return nil
	})
}

func deployment(i int) *appsv1.Deployment {
	labels := map[string]string{"app": fmt.Sprintf("app-%d", i)}
	small := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("10Mi")}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: labels["app"], Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(perDeployment)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i:1", Resources: corev1.ResourceRequirements{Requests: small}}}},
			},
		},
	}
}
