package environment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/ptr"

	"portico.dev/e2e/programs"
	"portico.dev/internal/routetable"
)

// maxInFlight is the limit of concurrent requests of a backend. A user of the benchmark sends up to 256 at once,
// which may overlap with the previous ones on a busy machine. The default limit of a user is 300.
const maxInFlight = "1000"

// registrars is the number of concurrent writes during registration.
const registrars = 16

// FrontDoor is an API server with APIServices, either Portico or kube-apiserver.
type FrontDoor struct {
	*Server
	// Client is the client of an administrator.
	Client     kubernetes.Interface
	APIService aggregatorclient.Interface
	// Dir contains the files used to start it: ca.crt and ca.key of the client authority, tls.crt and tls.key of the
	// server. It is empty for a front door that generates its files.
	Dir    string
	y      *Environment
	exited <-chan struct{}
}

// Alive reports whether the process is running.
func (d *FrontDoor) Alive() bool {
	select {
	case <-d.exited:
		return false
	default:
		return true
	}
}

func (d *FrontDoor) connect(admin *rest.Config) (err error) {
	admin.QPS = -1
	if d.Client, err = kubernetes.NewForConfig(admin); err != nil {
		return err
	}
	d.APIService, err = aggregatorclient.NewForConfig(admin)
	return err
}

// Grant creates the namespace, and the Role that permits alice to read and create the backend's resources in it.
func (d *FrontDoor) Grant(ctx context.Context) error {
	if _, err := d.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the namespace: %w", err)
	}
	meta := metav1.ObjectMeta{Name: "things", Namespace: Namespace}
	_, err := d.Client.RbacV1().Roles(Namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		Verbs: verbs, APIGroups: []string{"*"}, Resources: []string{Resource},
	}}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the role: %w", err)
	}
	_, err = d.Client.RbacV1().RoleBindings(Namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "alice"}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("bind the role: %w", err)
	}
	return nil
}

// Register creates the Services and APIServices of the groups from <= n < before, and waits until all are Available.
func (d *FrontDoor) Register(ctx context.Context, from, before int) error {
	if err := Concurrency(ctx, registrars, from, before, func(ctx context.Context, n int) error { return d.RegisterOne(ctx, n) }); err != nil {
		return err
	}
	return programs.Poll(d.exited, func() error {
		list, err := d.APIService.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
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

// RegisterOne creates one Service and one APIService for the backend. It does not wait.
func (d *FrontDoor) RegisterOne(ctx context.Context, n int) error {
	_, portText, err := net.SplitHostPort(d.y.orders.Backend)
	if err != nil {
		return errors.New("start the backend first")
	}
	port, err := strconv.ParseInt(portText, 10, 32)
	if err != nil {
		return err
	}
	return d.RegisterAt(ctx, ServiceOf(n), int32(port), d.y.ca.PEM())
}

// RegisterAt creates a Service and an APIService of its group for a server that listens on port and has a certificate
// from roots.
func (d *FrontDoor) RegisterAt(ctx context.Context, service string, port int32, roots []byte) error {
	_, err := d.Client.CoreV1().Services(Namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: service}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create a Service: %w", err)
	}
	group := GroupOf(service)
	_, err = d.APIService.ApiregistrationV1().APIServices().Create(ctx, &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{
			Name: "v1." + group, Annotations: map[string]string{routetable.MaxInFlightAnnotation: maxInFlight},
		},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: group, Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 10, CABundle: roots,
			Service: &apiregistrationv1.ServiceReference{Namespace: Namespace, Name: service, Port: ptr.To(port)},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create an APIService: %w", err)
	}
	return nil
}

// askAgain is the retry interval of a client while the resource does not exist.
const askAgain = 2 * time.Millisecond

// Appear registers the numbered group and requests an object of it, as alice and with client, until the response is
// successful. It returns the elapsed time.
func (d *FrontDoor) Appear(ctx context.Context, client *http.Client, n int) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("a new APIService did not answer in 30 s"))
	defer cancel()
	began := time.Now()
	if err := d.RegisterOne(ctx, n); err != nil {
		return 0, err
	}
	for {
		r, err := NewRequest(ctx, d.Server, Ask{Method: http.MethodGet, Path: Path(n) + "/small", Token: UserToken}, "")
		if err != nil {
			return 0, err
		}
		resp, err := client.Do(r)
		if err == nil {
			err = resp.Body.Close()
		}
		switch {
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case err != nil:
			return 0, err
		case resp.StatusCode == http.StatusOK:
			return time.Since(began), nil
		}
		if err := Pause(ctx, askAgain); err != nil {
			return 0, context.Cause(ctx)
		}
	}
}

// Concurrency calls do with every number from <= n < before, at most many at a time.
func Concurrency(ctx context.Context, many, from, before int, do func(ctx context.Context, n int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(many)
	for n := from; n < before && ctx.Err() == nil; n++ {
		g.Go(func() error { return do(ctx, n) })
	}
	return g.Wait()
}
