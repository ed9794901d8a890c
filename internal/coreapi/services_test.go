package coreapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"portico.dev/internal/coreapi/allocation"
)

// narrow leaves few addresses and ports, so that writers compete.
func narrow(c *Config) {
	c.ServiceNetwork = ServiceNetwork{
		ClusterIPRanges: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/27"), netip.MustParsePrefix("fd00:9::/122")},
		NodePorts:       allocation.PortRange{First: 30000, Last: 30019},
	}
}

// second is another server with the etcd of h.
func (h *testServer) second(t *testing.T, change ...func(*Config)) *testServer {
	t.Helper()
	cfg := h.Server.cfg
	cfg.Logger = zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel))
	for _, f := range change {
		f(&cfg)
	}
	server, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, "second server", server.Run, server.Ready())
	return &testServer{server, h.store}
}

func aService(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": name},
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
}

// holders watches Services and detects an address or a port of two Services at one time.
type holders struct {
	t       *testing.T
	has     map[string][]string // by Service
	holder  map[string]string   // by address or port
	changes int
}

func (h *holders) see(e watch.Event) {
	s, ok := e.Object.(*corev1.Service)
	if !ok {
		h.t.Errorf("watch event with %v, want a Service", e.Object)
		return
	}
	h.changes++
	for _, thing := range h.has[s.Name] {
		delete(h.holder, thing)
	}
	delete(h.has, s.Name)
	if e.Type == watch.Deleted {
		return
	}
	things := held(s)
	for _, thing := range things {
		if other := h.holder[thing]; other != "" {
			h.t.Errorf("%s and %s both have %s, want one holder", other, s.Name, thing)
		}
		h.holder[thing] = s.Name
	}
	h.has[s.Name] = things
}

// held returns the addresses and ports of a Service.
func held(s *corev1.Service) []string {
	var things []string
	for _, ip := range s.Spec.ClusterIPs {
		if ip != corev1.ClusterIPNone {
			things = append(things, ip)
		}
	}
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			things = append(things, fmt.Sprint("port ", p.NodePort))
		}
	}
	if p := s.Spec.HealthCheckNodePort; p != 0 {
		things = append(things, fmt.Sprint("port ", p))
	}
	return things
}

// Writers at two servers create, change and delete Services with few names, with and without requested addresses, as dry runs, invalid,
// and with clients that disconnect early. No two Services ever have the same address or port. At the end the claims equal the
// addresses and ports of the Services, except for claims of disconnected clients, which repair removes.
func TestTwoServersNeverAllocateOneAddressTwice(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	one := start(t, narrow)
	two := one.second(t)
	clients := []kubernetes.Interface{one.typed(t, admin), two.typed(t, admin)}
	namespace(t, clients[0], "default")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	seen := &holders{t: t, has: map[string][]string{}, holder: map[string]string{}}
	var following, writing sync.WaitGroup
	following.Go(func() {
		// The cacher ends a watch that accepts no events for a while, as on a busy machine. Every client resumes such a watch.
		for version := "0"; ; {
			stream, err := clients[0].CoreV1().Services("default").Watch(ctx, metav1.ListOptions{ResourceVersion: version})
			if err != nil {
				t.Errorf("watch from the version %s failed: %v, want no error", version, err)
				return
			}
			for e := range stream.ResultChan() {
				s, ok := e.Object.(*corev1.Service)
				if ok && s.Name == "the-end" {
					stream.Stop()
					return
				}
				if seen.see(e); ok {
					version = s.ResourceVersion
				}
			}
			if ctx.Err() != nil {
				t.Error("the watch did not see the end of the test in time, want it seen")
				return
			}
		}
	})
	const writers, steps = 8, 60
	for i := range writers {
		writing.Go(func() {
			r := rand.New(rand.NewPCG(7, uint64(i)))
			for range steps {
				if err := step(ctx, r, clients[r.IntN(2)].CoreV1().Services("default").Create, clients[r.IntN(2)]); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writing.Wait()
	last := aService("the-end")
	last.Spec.ClusterIP = corev1.ClusterIPNone
	if _, err := clients[0].CoreV1().Services("default").Create(ctx, last, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	following.Wait()
	if seen.changes < writers*steps/4 {
		t.Errorf("%d changes were seen, want at least %d", seen.changes, writers*steps/4)
	}
	missing, leaked := one.compare(t)
	if len(missing) > 0 {
		t.Errorf("addresses and ports of Services without a claim: %v, want none", missing)
	}
	now := time.Now()
	repair := allocation.NewRepairer(one.repairer.Allocator(), one.listServices, func(context.Context, *corev1.Service) error { return nil }, time.Nanosecond)
	for range 2 { // found once, and again after the grace period
		if err := repair.Repair(ctx); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d changes; %d claims were left by early leavers; repaired in %s", seen.changes, len(leaked), time.Since(now))
	if missing, leaked = one.compare(t); len(missing) > 0 || len(leaked) > 0 {
		t.Errorf("after repair: missing %v, leaked %v, want none", missing, leaked)
	}
}

type creator func(context.Context, *corev1.Service, metav1.CreateOptions) (*corev1.Service, error)

// step performs one operation on one Service. Refusals are expected.
func step(ctx context.Context, r *rand.Rand, create creator, client kubernetes.Interface) error {
	all := client.CoreV1().Services("default")
	name := fmt.Sprintf("s%d", r.IntN(24))
	var err error
	switch r.IntN(10) {
	case 0, 1, 2, 3:
		s := wish(r, aService(name))
		_, err = create(ctx, s, metav1.CreateOptions{})
	case 4:
		_, err = create(ctx, wish(r, aService(name)), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	case 5: // the client disconnects
		early, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(4000))*time.Microsecond)
		defer cancel()
		_, _ = create(early, wish(r, aService(name)), metav1.CreateOptions{})
	case 6, 7:
		err = all.Delete(ctx, name, metav1.DeleteOptions{})
	default:
		var s *corev1.Service
		if s, err = all.Get(ctx, name, metav1.GetOptions{}); err == nil {
			_, err = all.Update(ctx, change(r, s), metav1.UpdateOptions{})
		}
	}
	var status apierrors.APIStatus
	switch {
	case err == nil, apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsInvalid(err):
		return nil
	case errors.As(err, &status) && strings.Contains(err.Error(), "range is full"):
		return nil
	}
	return err
}

func wish(r *rand.Rand, s *corev1.Service) *corev1.Service {
	switch r.IntN(8) {
	case 0:
		s.Spec.ClusterIP = fmt.Sprintf("10.9.0.%d", 2+r.IntN(28))
	case 1:
		s.Spec.Type = corev1.ServiceTypeNodePort
	case 2:
		s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, int32(30000+r.IntN(20))
	case 3:
		policy := corev1.IPFamilyPolicyRequireDualStack
		s.Spec.IPFamilyPolicy = &policy
	case 4:
		s.Spec.Ports = nil // invalid, detected after the Service has an address
	case 5:
		s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
	}
	return s
}

func change(r *rand.Rand, s *corev1.Service) *corev1.Service {
	single, both := corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyRequireDualStack
	switch r.IntN(6) {
	case 0:
		s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.com"
	case 1:
		s.Spec.Type = corev1.ServiceTypeClusterIP
	case 2:
		s.Spec.Type = corev1.ServiceTypeNodePort
	case 3:
		s.Spec.IPFamilyPolicy = &single
	case 4:
		s.Spec.IPFamilyPolicy = &both
	case 5:
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", r.IntN(3)), Port: int32(8000 + r.IntN(3)), TargetPort: intstr.FromInt32(1)})
	}
	return s
}

func (h *testServer) listServices(ctx context.Context) ([]corev1.Service, error) {
	list, err := kubernetes.NewForConfigOrDie(h.ClientConfig(admin)).CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// compare finds addresses and ports of Services without a claim, and claims without a Service.
func (h *testServer) compare(t *testing.T) (missing, leaked []string) {
	t.Helper()
	services, err := h.listServices(within(t))
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, s := range services {
		for _, thing := range held(&s) {
			has[thing] = true
		}
	}
	claimed := map[string]bool{}
	addresses, err := h.typed(t, admin).NetworkingV1().IPAddresses().List(within(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses.Items {
		claimed[a.Name] = true
	}
	ports, err := allocation.NewEtcdPorts(h.store.Client().KV, h.store.OwnKey(portKeys)).List(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for p := range ports {
		claimed[fmt.Sprint("port ", p)] = true
	}
	for thing := range maps.Keys(has) {
		if !claimed[thing] {
			missing = append(missing, thing)
		}
	}
	for thing := range maps.Keys(claimed) {
		if !has[thing] {
			leaked = append(leaked, thing)
		}
	}
	slices.Sort(missing)
	slices.Sort(leaked)
	return missing, leaked
}

func TestServiceGetsIPAddressObject(t *testing.T) {
	h := start(t)
	client := h.typed(t, admin)
	namespace(t, client, "default")
	s, err := client.CoreV1().Services("default").Create(within(t), aService("web"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claim, err := client.NetworkingV1().IPAddresses().Get(within(t), s.Spec.ClusterIP, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if p := claim.Spec.ParentRef; p.Resource != "services" || p.Namespace != "default" || p.Name != "web" || p.Group != "" {
		t.Errorf("parentRef of the IPAddress = %+v, want services default/web", p)
	}
	if claim.Labels[networkingv1.LabelIPAddressFamily] != "IPv4" || claim.Labels[networkingv1.LabelManagedBy] != "ipallocator.k8s.io" {
		t.Errorf("labels of the IPAddress = %v, want the family IPv4 and the manager ipallocator.k8s.io", claim.Labels)
	}
	// Values that the client did not set are kept when it applies its manifest again with another type.
	again := aService("web")
	again.Spec.Type = corev1.ServiceTypeNodePort
	if again, err = client.CoreV1().Services("default").Update(within(t), again, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if again.Spec.ClusterIP != s.Spec.ClusterIP || again.Spec.Ports[0].NodePort < 30000 {
		t.Errorf("spec after the second apply = %+v, want the cluster IP %s and a node port", again.Spec, s.Spec.ClusterIP)
	}
	patch := []byte(`{"spec":{"type":"ClusterIP"}}`)
	back, err := client.CoreV1().Services("default").Patch(within(t), "web", types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil || back.Spec.Ports[0].NodePort != 0 || back.Spec.ExternalTrafficPolicy != "" {
		t.Errorf("patch to ClusterIP: %v, %+v, want no node port and no externalTrafficPolicy", err, back.Spec)
	}
	// The deletion waits for a finalizer that is removed through the status subresource.
	back.Finalizers = []string{"example.com/wait"}
	if _, err = client.CoreV1().Services("default").Update(within(t), back, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Services("default").Delete(within(t), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if missing, _ := h.compare(t); len(missing) > 0 {
		t.Errorf("a Service with a pending deletion lost %v, want nothing lost", missing)
	}
	if back, err = client.CoreV1().Services("default").Get(within(t), "web", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	back.Finalizers = nil
	if _, err := client.CoreV1().Services("default").UpdateStatus(within(t), back, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if missing, leaked := h.compare(t); len(missing)+len(leaked) > 0 {
		t.Errorf("after the deletion: missing %v, leaked %v, want none", missing, leaked)
	}
}

func TestInvalidServicesAreRejected(t *testing.T) {
	h := start(t)
	client := h.typed(t, admin)
	namespace(t, client, "default")
	taken := aService("taken")
	taken.Spec.ClusterIP = "10.0.0.20"
	if _, err := client.CoreV1().Services("default").Create(within(t), taken, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	same := aService("same")
	same.Spec.ClusterIP = "10.0.0.20"
	_, err := client.CoreV1().Services("default").Create(within(t), same, metav1.CreateOptions{})
	want := `Service "same" is invalid: spec.clusterIPs: Invalid value: ["10.0.0.20"]: failed to allocate IP 10.0.0.20: provided IP is already allocated`
	if !apierrors.IsInvalid(err) || err.Error() != want {
		t.Errorf("create with a used address: error = %v\nwant %s", err, want)
	}
	port := aService("port")
	port.Spec.Type, port.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 80
	_, err = client.CoreV1().Services("default").Create(within(t), port, metav1.CreateOptions{})
	want = `Service "port" is invalid: spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767`
	if !apierrors.IsInvalid(err) || err.Error() != want {
		t.Errorf("create with a port outside the range: error = %v\nwant %s", err, want)
	}
	if missing, leaked := h.compare(t); len(missing)+len(leaked) > 0 {
		t.Errorf("after the refusals: missing %v, leaked %v, want none", missing, leaked)
	}
}
