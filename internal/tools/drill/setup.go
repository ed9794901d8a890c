package drill

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"portico.dev/internal/routes/v1alpha1"
)

// openWithin bounds the time until the front door serves a new, healthy extension server.
const openWithin = time.Minute

// extensionServers is the setting of drills about extension servers.
type extensionServers struct{ *Stage }

// newExtensionServers makes the extension servers, which do not listen yet.
func newExtensionServers(s *Stage) (setting, error) {
	home := s.Namespace
	if s.drill.OwnHome {
		home += "-home"
	}
	var err error
	if s.subject, err = s.actor(Subject, "s", home, s.drill.Stores); err != nil {
		return nil, err
	}
	if s.bystander, err = s.actor(Bystander, "b", s.Namespace, true); err != nil {
		return nil, err
	}
	if s.target.APIRoute {
		if s.other, err = s.otherBackend(); err != nil {
			return nil, err
		}
	}
	s.record.history.Group, s.record.history.Registration = s.subject.group, s.subject.apiService
	return extensionServers{s}, nil
}

// setUp implements setting: it registers the extension servers and waits until they are served.
func (s extensionServers) setUp(ctx context.Context) error {
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
	if s.other != nil {
		if err := s.createAPIRoute(ctx); err != nil {
			return err
		}
	}
	for _, a := range s.actors() {
		if err := s.awaitServed(ctx, a); err != nil {
			return err
		}
		if a.stores {
			if err := s.createObject(ctx, a, s.Namespace, "kept"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Stage) labels() map[string]string { return map[string]string{idLabel: s.id} }

func (s *Stage) createNamespace(ctx context.Context, name string) error {
	if !slices.Contains(s.namespaces, name) {
		s.namespaces = append(s.namespaces, name) // even if the response is lost
	}
	_, err := s.client.Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: s.labels()}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return nil
}

// createService publishes the address of an extension server. On the same machine that is an ExternalName, because an
// endpoint must not be a loopback address. On other machines it is a Service without a selector and an EndpointSlice.
func (s *Stage) createService(ctx context.Context, a *actor) error {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: a.service, Namespace: a.home, Labels: s.labels()}}
	host := s.target.Advertise
	address, err := netip.ParseAddr(host)
	if len(a.replicas) > 0 {
		address, err = s.target.endpointAddress(), nil
		host = address.String()
	}
	switch {
	case host == "":
		service.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}
	case err != nil:
		service.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: host}
	default:
		service.Spec = corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: a.port(), Protocol: corev1.ProtocolTCP}}}
	}
	if _, err := s.client.Services(a.home).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create service %s/%s: %w", a.home, a.service, err)
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	for i, server := range a.servers() {
		if err := s.createSlice(ctx, a, i, address, server.Port()); err != nil {
			return err
		}
	}
	return nil
}

// sliceName returns the name of an endpoint's EndpointSlice. Each endpoint has its own slice because their ports
// differ.
func sliceName(a *actor, endpoint int) string {
	if endpoint == 0 {
		return a.service
	}
	return fmt.Sprintf("%s-%d", a.service, endpoint)
}

func (s *Stage) createSlice(ctx context.Context, a *actor, endpoint int, address netip.Addr, port int32) error {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: sliceName(a, endpoint), Namespace: a.home,
			Labels: map[string]string{idLabel: s.id, discoveryv1.LabelServiceName: a.service, discoveryv1.LabelManagedBy: "portico-drill"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address.String()}}},
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(port), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	if address.Is6() {
		slice.AddressType = discoveryv1.AddressTypeIPv6
	}
	if _, err := s.client.EndpointSlices(a.home).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create endpoint slice %s/%s: %w", a.home, a.service, err)
	}
	return nil
}

// register creates the APIService. It uses the core client, because the client for this single kind would require
// another module.
func (s *Stage) register(ctx context.Context, a *actor) error {
	if !slices.Contains(s.apiServices, a.apiService) {
		s.apiServices = append(s.apiServices, a.apiService)
	}
	object := apiregistrationv1.APIService{
		TypeMeta:   metav1.TypeMeta{Kind: "APIService", APIVersion: "apiregistration.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{Name: a.apiService, Labels: s.labels()},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: a.group, Version: "v1", GroupPriorityMinimum: 100, VersionPriority: 100, CABundle: a.CABundle(),
			Service: &apiregistrationv1.ServiceReference{Namespace: a.home, Name: a.service, Port: ptr.To(a.port())},
		},
	}
	if g := s.target.Gateway; g != nil {
		if err := g.Prepare(&object); err != nil {
			return err
		}
		if err := g.Adopt(&object, nil); err != nil { // the gateway sets its own caBundle
			return err
		}
	}
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	err = s.client.REST().Post().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").Body(body).
		SetHeader("Content-Type", jsonType).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("create apiservice %s: %w", a.apiService, err)
	}
	return nil
}

// apiRoutes is the path of APIRoutes.
const apiRoutes = "/apis/routing.portico.dev/v1alpha1/apiroutes"

// createAPIRoute makes the subject the first of two backends, and waits until the second one is available.
func (s *Stage) createAPIRoute(ctx context.Context) error {
	if err := s.createService(ctx, s.other); err != nil {
		return err
	}
	route := v1alpha1.APIRoute{
		TypeMeta:   metav1.TypeMeta{Kind: "APIRoute", APIVersion: v1alpha1.GroupVersion.String()},
		ObjectMeta: metav1.ObjectMeta{Name: s.subject.apiService, Labels: s.labels()},
		Spec: v1alpha1.APIRouteSpec{
			Backends: []v1alpha1.APIRouteBackend{{Name: Subject}, {
				Name: s.other.service, CABundle: s.other.CABundle(),
				Service: &v1alpha1.ServiceReference{Namespace: s.other.home, Name: s.other.service, Port: ptr.To(s.other.port())},
			}},
			Rules: []v1alpha1.APIRouteRule{{
				Name:        s.other.service,
				Matches:     []v1alpha1.APIRouteMatch{{Headers: []v1alpha1.HeaderMatch{{Name: backendHeader, Value: OtherBackend}}}},
				BackendRefs: []v1alpha1.BackendRef{{Name: s.other.service}},
			}},
		},
	}
	body, err := json.Marshal(route)
	if err != nil {
		return err
	}
	if err := s.create(ctx, apiRoutes, string(body)); err != nil {
		return fmt.Errorf("apiroute %s: %w", route.Name, err)
	}
	// Before the route is in effect, the subject receives the requests for the other backend.
	if _, inEffect, err := s.until(ctx, openWithin, func(ctx context.Context) bool {
		var seen v1alpha1.APIRoute
		return s.get(ctx, apiRoutes+"/"+route.Name, &seen) == nil && meta.IsStatusConditionTrue(seen.Status.Conditions, v1alpha1.ConditionAccepted)
	}); err != nil {
		return err
	} else if !inEffect {
		return fmt.Errorf("the front door did not accept APIRoute %s within %s", route.Name, openWithin)
	}
	collection := s.other.collection(s.Namespace)
	if err := s.awaitOther(ctx, s.other.read("list", collection)); err != nil || !s.other.stores {
		return err
	}
	return s.awaitOther(ctx, call{
		method: http.MethodPost, path: collection, body: s.other.object("kept"), throughHeader: true,
	})
}

// awaitOther repeats a request to the other backend until it succeeds.
func (s *Stage) awaitOther(ctx context.Context, c call) error {
	var last Request
	took, served, err := s.until(ctx, openWithin, func(ctx context.Context) bool {
		last = Request{}
		s.traffic.do(ctx, c, &last)
		return last.OK()
	})
	if err == nil && !served {
		err = fmt.Errorf("the front door did not serve backend %s of APIRoute %s within %s: %s", s.other.service, s.subject.apiService, took.Round(time.Second), last.describe())
	}
	return err
}

// awaitServed waits until the extension server is available and discovery lists its kind, so that all clients find
// it.
func (s *Stage) awaitServed(ctx context.Context, a *actor) error {
	why := "it did not become available"
	took, served, err := s.until(ctx, openWithin, func(ctx context.Context) bool {
		condition, err := s.availableOf(ctx, a.apiService)
		if err != nil || !condition.Available() {
			why = fmt.Sprintf("Available is %s (%s: %s)", condition.Status, condition.Reason, condition.Message)
			return false
		}
		body, err := s.client.REST().Get().AbsPath("/apis").SetHeader("Accept", discoveryType).Do(ctx).Raw()
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

func (s *Stage) createObject(ctx context.Context, a *actor, namespace, name string) error {
	return s.create(ctx, a.collection(namespace), a.object(name))
}

// object returns an object in JSON.
func (p component) object(name string) string {
	return fmt.Sprintf(`{%s,"metadata":{"name":%q}}`, p.typed(), name)
}

func (s *Stage) create(ctx context.Context, path, object string) error {
	err := s.client.REST().Post().AbsPath(path).Body([]byte(object)).SetHeader("Content-Type", jsonType).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("create in %s: %w", path, err)
	}
	return nil
}

const (
	// cleanWithin bounds the whole cleanup, even after an interruption.
	cleanWithin = 90 * time.Second
	// removeFinalizers is how long the drill waits for its objects to be deleted before it removes their finalizers.
	removeFinalizers = 30 * time.Second
)

// clean deletes the objects of the drill and returns the failures. It deletes the registrations first, so that the
// servers that the drill broke cannot block the deletion of its namespaces.
func (s *Stage) clean(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, cleanWithin)
	defer cancel()
	left := s.setting.unregister(ctx)
	for _, name := range s.namespaces {
		err := s.client.Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			left = append(left, fmt.Sprintf("namespace %s: %v", name, err))
		}
	}
	for _, name := range s.namespaces {
		if err := s.awaitNamespaceGone(ctx, name); err != nil {
			left = append(left, err.Error())
		}
	}
	return left
}

// unregister implements setting.
func (s extensionServers) unregister(ctx context.Context) (left []string) {
	if s.other != nil {
		err := s.client.REST().Delete().AbsPath(apiRoutes + "/" + s.subject.apiService).Do(ctx).Error()
		if err != nil && !apierrors.IsNotFound(err) {
			left = append(left, fmt.Sprintf("apiroute %s: %v", s.subject.apiService, err))
		}
	}
	for _, name := range s.apiServices {
		if err := s.cleanAPIService(ctx, name); err != nil {
			left = append(left, err.Error())
		}
	}
	return left
}

func (s *Stage) cleanAPIService(ctx context.Context, name string) error {
	path := "/apis/apiregistration.k8s.io/v1/apiservices/" + name
	err := s.client.REST().Delete().AbsPath(path).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("apiservice %s: %w", name, err)
	}
	gone := func(ctx context.Context) bool {
		return apierrors.IsNotFound(s.client.REST().Get().AbsPath(path).Do(ctx).Error())
	}
	if _, went, err := s.until(ctx, removeFinalizers, gone); err != nil || went {
		return err
	}
	// The owners of the finalizers have had time to act.
	err = s.client.REST().Patch(types.MergePatchType).AbsPath(path).Body([]byte(`{"metadata":{"finalizers":null}}`)).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("apiservice %s: %w", name, err)
	}
	return nil
}

// awaitNamespaceGone waits for the deletion of a namespace and finalizes it if the wait times out. That is safe,
// because the namespace belongs to the drill, and the objects in its extension servers disappear with this process.
func (s *Stage) awaitNamespaceGone(ctx context.Context, name string) error {
	if _, went, err := s.until(ctx, removeFinalizers, s.namespaceGone(name)); err != nil || went {
		return err
	}
	ns, err := s.client.Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	ns.Spec.Finalizers = nil
	if err := s.client.Namespaces().Finalize(ctx, ns); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	return fmt.Errorf("namespace %s did not go within %s and was finalized by hand", name, removeFinalizers)
}

func (s *Stage) namespaceGone(name string) func(context.Context) bool {
	return func(ctx context.Context) bool {
		_, err := s.client.Namespaces().Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}
}

// productionMarks matches words in the names of production clusters. It matches whole words only, so "products" and
// "delivery" do not match.
var productionMarks = regexp.MustCompile(`(^|[^a-z])(prod|prd|production|live|prodlike|customer|customers)([^a-z]|$)`)

// LooksLikeProduction returns a reason to confirm a drill against the target, or an empty string. It checks the names
// of the context, the cluster, the user and the server.
func LooksLikeProduction(names ...string) string {
	for _, name := range names {
		if productionMarks.MatchString(strings.ToLower(name)) {
			return fmt.Sprintf("%q looks like production", name)
		}
	}
	return ""
}
