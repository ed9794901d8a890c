package yard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/ptr"

	"portico.dev/e2e/bench/measure"
	"portico.dev/e2e/programs"
)

const (
	tokens = AdminToken + `,root,u-0,"system:masters"` + "\n" + UserToken + `,alice,u-1,"dev,ops"` + "\n"
	// registrars write so many objects at once.
	registrars = 16
)

// Front is a front door.
type Front struct {
	*Server
	// Client is an administrator's.
	Client     kubernetes.Interface
	APIService aggregatorclient.Interface
	rest       *rest.Config
	y          *Yard
	process    *programs.Process
}

// Front starts `aggregator serve` with a token file, RBAC and the audit log at level Metadata, without access log. flags are
// for what else a benchmark wants.
func (y *Yard) Front(name string, flags ...string) (*Front, error) {
	program, err := y.aggregator()
	if err != nil {
		return nil, err
	}
	dir, err := y.Dir(name)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "tokens"), []byte(tokens), 0o600); err != nil {
		return nil, err
	}
	args := append([]string{
		"serve", "--data-dir", "data", "--secure-port", "0", "--token-auth-file", "tokens", "--access-log=false",
		"--audit-log-path", "audit.log", "--audit-log-maxbackup", "1",
	}, flags...)
	p, err := programs.Start(name, dir, []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}, y.log, program, args...)
	if err != nil {
		return nil, err
	}
	f := &Front{y: y, process: p}
	y.ends = append(y.ends, f.Stop)
	file := filepath.Join(dir, "data", "admin.kubeconfig")
	if err := programs.Poll(p.Exited(), func() error { _, err := os.Stat(file); return err }); err != nil {
		return nil, fmt.Errorf("start %s: %w\n%s", name, err, p.Output())
	}
	return f, f.connect(name, file)
}

func (f *Front) connect(name, kubeconfig string) (err error) {
	if f.rest, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return err
	}
	f.rest.QPS = -1
	if f.Client, err = kubernetes.NewForConfig(f.rest); err != nil {
		return err
	}
	if f.APIService, err = aggregatorclient.NewForConfig(f.rest); err != nil {
		return err
	}
	u, err := url.Parse(f.rest.Host)
	if err != nil {
		return err
	}
	f.Server = &Server{Name: name, Address: u.Host, PID: f.process.PID(), roots: f.rest.CAData, allocations: f.mallocs}
	return nil
}

// Stop ends it. It may be called before the yard is closed, and is called then anyway.
func (f *Front) Stop() error {
	code, err := f.process.Stop(os.Interrupt)
	if err == nil && code != 0 {
		err = fmt.Errorf("the front door ended with exit code %d\n%s", code, f.process.Output())
	}
	return err
}

// Collect has the front door collect its garbage. One that serves no profiles does not.
func (f *Front) Collect(ctx context.Context) error {
	_, err := f.Client.Discovery().RESTClient().Get().AbsPath("/debug/pprof/heap").Param("gc", "1").DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Memory is what the front door tells of its memory.
func (f *Front) Memory(ctx context.Context) (measure.Memory, error) {
	page, err := f.Client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return measure.Memory{}, fmt.Errorf("read metrics: %w", err)
	}
	return measure.ReadMemory(page)
}

func (f *Front) mallocs() (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	m, err := f.Memory(ctx)
	return m.Allocations, err
}

// Grant makes the namespace, and the Role by which alice may read and create in it whatever the backend serves.
func (f *Front) Grant(ctx context.Context) error {
	if _, err := f.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the namespace: %w", err)
	}
	meta := metav1.ObjectMeta{Name: "things", Namespace: Namespace}
	_, err := f.Client.RbacV1().Roles(Namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		Verbs: verbs, APIGroups: []string{"*"}, Resources: []string{Resource},
	}}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the role: %w", err)
	}
	_, err = f.Client.RbacV1().RoleBindings(Namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "alice"}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("bind the role: %w", err)
	}
	return nil
}

// Register makes the Services and APIServices of groups from to before, and waits until all are Available.
func (f *Front) Register(ctx context.Context, from, before int) error {
	if err := AtOnce(ctx, registrars, from, before, func(ctx context.Context, n int) error { return f.RegisterOne(ctx, n) }); err != nil {
		return err
	}
	return programs.Poll(f.process.Exited(), func() error {
		list, err := f.APIService.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, a := range list.Items {
			if c := a.Status.Conditions; a.Spec.Service != nil && (len(c) == 0 || c[0].Status != apiregistrationv1.ConditionTrue) {
				return fmt.Errorf("APIService %s is not available: %+v", a.Name, c)
			}
		}
		return nil
	})
}

// RegisterOne makes one Service and one APIService, and waits for nothing.
func (f *Front) RegisterOne(ctx context.Context, n int) error {
	_, portText, err := net.SplitHostPort(f.y.orders.Backend)
	if err != nil {
		return errors.New("start the backend first")
	}
	port, err := strconv.ParseInt(portText, 10, 32)
	if err != nil {
		return err
	}
	_, err = f.Client.CoreV1().Services(Namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: ServiceOf(n)}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create a Service: %w", err)
	}
	_, err = f.APIService.ApiregistrationV1().APIServices().Create(ctx, &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1." + GroupName(n)},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: GroupName(n), Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 10, CABundle: f.y.ca.PEM(),
			Service: &apiregistrationv1.ServiceReference{Namespace: Namespace, Name: ServiceOf(n), Port: ptr.To(int32(port))},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create an APIService: %w", err)
	}
	return nil
}

// AtOnce calls do with every number from to before, so many at a time.
func AtOnce(ctx context.Context, many, from, before int, do func(ctx context.Context, n int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(many)
	for n := from; n < before && ctx.Err() == nil; n++ {
		g.Go(func() error { return do(ctx, n) })
	}
	return g.Wait()
}
