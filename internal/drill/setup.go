package drill

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
)

// openWithin bounds how long the front door may take to find a new extension server that is well.
const openWithin = time.Minute

// setUp makes the drill's objects and waits until both extension servers are served.
func (s *Stage) setUp(ctx context.Context) error {
	if err := s.createNamespace(ctx, s.Namespace); err != nil {
		return err
	}
	if s.subject.home != s.Namespace {
		if err := s.createNamespace(ctx, s.subject.home); err != nil {
			return err
		}
	}
	for _, a := range s.actors() {
		if err := s.createService(ctx, a); err != nil {
			return err
		}
		if err := s.register(ctx, a); err != nil {
			return err
		}
	}
	for _, a := range s.actors() {
		if err := s.awaitServed(ctx, a); err != nil {
			return err
		}
		if a.stores {
			if err := s.createWidget(ctx, a, s.Namespace, "kept"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Stage) labels() map[string]string { return map[string]string{idLabel: s.id} }

func (s *Stage) createNamespace(ctx context.Context, name string) error {
	if !slices.Contains(s.namespaces, name) {
		s.namespaces = append(s.namespaces, name) // also when the answer is lost
	}
	_, err := s.client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: s.labels()}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return nil
}

// createService says where the front door finds an extension server. On the same machine that is an external name, since
// no endpoint may be a loopback address; elsewhere a Service without a selector and a slice of our own.
func (s *Stage) createService(ctx context.Context, a *actor) error {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: a.service, Namespace: a.home, Labels: s.labels()}}
	host := s.target.Advertise
	address, err := netip.ParseAddr(host)
	switch {
	case host == "":
		service.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}
	case err != nil:
		service.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: host}
	default:
		service.Spec = corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: a.Port(), Protocol: corev1.ProtocolTCP}}}
	}
	if _, err := s.client.CoreV1().Services(a.home).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create service %s/%s: %w", a.home, a.service, err)
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	return s.createSlice(ctx, a, address)
}

func (s *Stage) createSlice(ctx context.Context, a *actor, address netip.Addr) error {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: a.service, Namespace: a.home,
			Labels: map[string]string{idLabel: s.id, discoveryv1.LabelServiceName: a.service, discoveryv1.LabelManagedBy: "portico-drill"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address.String()}}},
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(a.Port()), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	if address.Is6() {
		slice.AddressType = discoveryv1.AddressTypeIPv6
	}
	if _, err := s.client.DiscoveryV1().EndpointSlices(a.home).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create endpoint slice %s/%s: %w", a.home, a.service, err)
	}
	return nil
}

// register creates the APIService. The core client carries it: there is one kind, and its client is a module away.
func (s *Stage) register(ctx context.Context, a *actor) error {
	s.apiServices = append(s.apiServices, a.apiService)
	object := apiregistrationv1.APIService{
		TypeMeta:   metav1.TypeMeta{Kind: "APIService", APIVersion: "apiregistration.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{Name: a.apiService, Labels: s.labels()},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: a.group, Version: "v1", GroupPriorityMinimum: 100, VersionPriority: 100, CABundle: a.CABundle(),
			Service: &apiregistrationv1.ServiceReference{Namespace: a.home, Name: a.service, Port: ptr.To(a.Port())},
		},
	}
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	err = s.client.CoreV1().RESTClient().Post().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").Body(body).
		SetHeader("Content-Type", jsonType).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("create apiservice %s: %w", a.apiService, err)
	}
	return nil
}

// awaitServed waits for the first answer, and for discovery to know the kind: from then on all clients do.
func (s *Stage) awaitServed(ctx context.Context, a *actor) error {
	why := "it did not become available"
	took, served, err := s.until(ctx, openWithin, func(ctx context.Context) bool {
		condition, err := s.availableOf(ctx, a.apiService)
		if err != nil || !condition.Available() {
			why = fmt.Sprintf("Available is %s (%s: %s)", condition.Status, condition.Reason, condition.Message)
			return false
		}
		body, err := s.client.CoreV1().RESTClient().Get().AbsPath("/apis").SetHeader("Accept", discoveryType).Do(ctx).Raw()
		if err != nil || standing(body, a.group) != listed {
			why = "discovery does not list its resources"
			return false
		}
		if err := s.get(ctx, a.collection(s.Namespace), &struct{}{}); err != nil {
			why = "a list of its resources: " + err.Error()
			return false
		}
		return true
	})
	if err != nil {
		return err
	}
	if !served {
		return fmt.Errorf("the front door did not serve %s within %s: %s; can it reach this process? see --advertise-address",
			a.apiService, took.Round(time.Second), why)
	}
	return nil
}

func (s *Stage) createWidget(ctx context.Context, a *actor, namespace, name string) error {
	return s.create(ctx, a.collection(namespace), fmt.Sprintf(`{"kind":"Widget","apiVersion":"%s/v1","metadata":{"name":%q}}`, a.group, name))
}

func (s *Stage) create(ctx context.Context, path, object string) error {
	err := s.client.CoreV1().RESTClient().Post().AbsPath(path).Body([]byte(object)).SetHeader("Content-Type", jsonType).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("create in %s: %w", path, err)
	}
	return nil
}
