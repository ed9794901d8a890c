package environment

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/e2e/programs"
	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/routetable"
)

// GatewayScheduler is an environment variable that deploy/gateway sets for a gateway.
const GatewayScheduler = "GODEBUG=schedtrace=2147483647"

// Gateway is `aggregator gateway` between an API server and its backends.
type Gateway struct {
	*Server
	service adoption.Service
	exited  <-chan struct{}
}

// Gateway starts one replica of a gateway, with the permissions of an administrator.
func (i *Incumbent) Gateway(ctx context.Context) (*Gateway, error) {
	program, err := i.y.Aggregator()
	if err != nil {
		return nil, err
	}
	portText, err := i.y.port()
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseInt(portText, 10, 32)
	if err != nil {
		return nil, err
	}
	service := adoption.Service{Namespace: "portico-gateway", Name: "portico-gateway", Port: int32(port)}
	if _, err := i.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: service.Namespace}}, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create the namespace: %w", err)
	}
	_, err = i.Client.CoreV1().Services(service.Namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: service.Name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create the Service: %w", err)
	}
	kubeconfig, err := i.Kubeconfig()
	if err != nil {
		return nil, err
	}
	p, err := programs.Start("gateway", i.dir, []string{"HOME=" + i.dir, "PATH=" + os.Getenv("PATH"), GatewayScheduler}, i.y.log, program,
		"gateway", "--kubeconfig="+kubeconfig, "--namespace="+service.Namespace, "--service-port="+portText, "--bind-address=127.0.0.1", "--secure-port="+portText)
	if err != nil {
		return nil, err
	}
	i.endsWith(p)
	return &Gateway{&Server{Name: "gateway", Address: net.JoinHostPort("127.0.0.1", portText), PID: p.PID()}, service, p.Exited()}, nil
}

// RegisterAdopted registers the numbered group of the backend as adopted by the gateway, and waits until it is
// served.
func (i *Incumbent) RegisterAdopted(ctx context.Context, g *Gateway, n int) error {
	_, port, err := net.SplitHostPort(i.y.orders.Backend)
	if err != nil {
		return err
	}
	_, err = i.Client.CoreV1().Services(Namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: ServiceOf(n)}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create a Service: %w", err)
	}
	all := i.APIService.ApiregistrationV1().APIServices()
	o, err := all.Create(ctx, &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1." + GroupName(n), Annotations: map[string]string{
			adoption.OriginalServiceAnnotation:  Namespace + "/" + ServiceOf(n) + ":" + port,
			adoption.OriginalCABundleAnnotation: base64.StdEncoding.EncodeToString(i.y.ca.PEM()),
			routetable.MaxInFlightAnnotation:    maxInFlight,
		}},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: GroupName(n), Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 10, Service: g.service.Reference(),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create an APIService: %w", err)
	}
	return programs.Poll(g.exited, func() error {
		if o, err = all.Get(ctx, o.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, t := range []apiregistrationv1.APIServiceConditionType{apiregistrationv1.Available, adoption.BackendAvailable} {
			if c, _ := adoption.Condition(o, t); c.Status != apiregistrationv1.ConditionTrue {
				return fmt.Errorf("APIService %s: %+v", o.Name, o.Status.Conditions)
			}
		}
		return nil
	})
}

// RegisterThrough registers the numbered group with a proxy to the backend, and waits until it is available.
func (i *Incumbent) RegisterThrough(ctx context.Context, proxy *Server, n int) error {
	_, portText, err := net.SplitHostPort(proxy.Address)
	if err != nil {
		return err
	}
	port, err := strconv.ParseInt(portText, 10, 32)
	if err != nil {
		return err
	}
	if err := i.RegisterAt(ctx, ServiceOf(n), int32(port), i.y.ca.PEM()); err != nil {
		return err
	}
	return i.Register(ctx, 0, 0)
}
