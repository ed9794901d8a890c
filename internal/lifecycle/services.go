package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/clients"
	"portico.dev/internal/lifecycle/reconcile"
	"portico.dev/internal/run"
)

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still read by clients from before EndpointSlices

const (
	frontDoorName = "kubernetes"
	frontDoorPort = 443
	portName      = "https"
)

// FrontDoor is the Service kubernetes in the namespace default, which workloads use to reach the API.
type FrontDoor struct {
	// Address is the Service's address, the first of the range. Required.
	Address netip.Addr
	// Port is the port on which this replica listens.
	Port int32
	// Replicas returns the addresses of the live replicas, including this one. It omits replicas without a known address.
	Replicas func() []netip.AddrPort
	// Changed returns a channel that is closed when the result of Replicas may have changed. Callers must obtain it before they
	// call Replicas.
	Changed func() <-chan struct{}
	// Services and EndpointSlices are shared with the rest of the server, which runs them.
	Services       coreinformers.ServiceInformer
	EndpointSlices discoveryinformers.EndpointSliceInformer
}

// frontDoor reconciles the Service, its EndpointSlices, and its Endpoints.
type frontDoor struct {
	FrontDoor
	client    clients.Interface
	endpoints cache.SharedIndexInformer
	election  reconcile.Election
	log       *zap.Logger
}

func newFrontDoor(cfg Config, log *zap.Logger) *frontDoor {
	return &frontDoor{
		FrontDoor: cfg.FrontDoor, client: cfg.BootstrapClient, election: cfg.Election, log: log,
		endpoints: reconcile.NewInformer(cfg.Client, cfg.Client.CoreV1().Endpoints(metav1.NamespaceDefault), &corev1.Endpoints{}, frontDoorName),
	}
}

func (d *frontDoor) run(ctx context.Context) error {
	ours := func(is func(metav1.Object) bool) func(any) string {
		return func(obj any) string {
			if o, ok := obj.(metav1.Object); ok && o.GetNamespace() == metav1.NamespaceDefault && is(o) {
				return metav1.NamespaceDefault
			}
			return ""
		}
	}
	named := ours(func(o metav1.Object) bool { return o.GetName() == frontDoorName })
	l := &reconcile.Loop{
		Name: "kubernetes-service", Workers: 1, Resync: time.Minute, Election: d.election, Log: d.log,
		Changed: []func() <-chan struct{}{d.Changed}, Waiting: func() []string { return []string{metav1.NamespaceDefault} },
		Reconcile: func(ctx context.Context, _ string) (time.Duration, error) { return 0, d.reconcile(ctx) },
	}
	return l.Run(ctx,
		reconcile.Source{Informer: d.Services.Informer(), Key: named},
		reconcile.Source{Informer: d.EndpointSlices.Informer(), Key: ours(func(o metav1.Object) bool {
			return o.GetLabels()[discoveryv1.LabelServiceName] == frontDoorName
		})},
		reconcile.Source{Informer: d.endpoints, Key: named, Owned: true})
}

func (d *frontDoor) reconcile(ctx context.Context) error {
	if err := d.ensure(ctx); err != nil {
		return err
	}
	replicas := d.Replicas()
	if len(replicas) == 0 {
		return nil // no replica has a known address; the existing endpoints may be right
	}
	slices.SortFunc(replicas, netip.AddrPort.Compare)
	replicas = slices.Compact(replicas)
	return errors.Join(d.writeSlices(ctx, replicas), d.writeEndpoints(ctx, replicas))
}

// ensure creates or repairs the Service.
func (d *frontDoor) ensure(ctx context.Context) error {
	all := d.client.CoreV1().Services(metav1.NamespaceDefault)
	ports := []corev1.ServicePort{{
		Name: portName, Protocol: corev1.ProtocolTCP, Port: frontDoorPort, TargetPort: intstr.FromInt32(d.Port),
	}}
	single := corev1.IPFamilyPolicySingleStack
	current, err := all.Get(ctx, frontDoorName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = all.Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: frontDoorName, Labels: map[string]string{"provider": "kubernetes", "component": "apiserver"}},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, ClusterIP: d.Address.String(), IPFamilyPolicy: &single,
				SessionAffinity: corev1.ServiceAffinityNone, Ports: ports,
			},
		}, metav1.CreateOptions{})
		if err == nil || apierrors.IsAlreadyExists(err) || apierrors.IsInvalid(err) && d.appears(ctx) {
			return nil
		}
		return fmt.Errorf("create service %s: %w", frontDoorName, err)
	}
	if err != nil {
		return fmt.Errorf("get service %s: %w", frontDoorName, err)
	}
	if current.Spec.Type == corev1.ServiceTypeClusterIP && len(current.Spec.Selector) == 0 && d.portsMatch(current.Spec.Ports) {
		return nil
	}
	updated := current.DeepCopy()
	updated.Spec.Type, updated.Spec.Ports, updated.Spec.Selector = corev1.ServiceTypeClusterIP, ports, nil
	if _, err := all.Update(ctx, updated, metav1.UpdateOptions{}); reconcile.Ignoring(err, reconcile.IsOutdated) != nil {
		return fmt.Errorf("repair service %s: %w", frontDoorName, err)
	}
	return nil
}

// appears waits up to a second for the Service that another replica is creating, because that replica has already claimed the
// address.
func (d *frontDoor) appears(ctx context.Context) bool {
	for range 20 {
		if !run.Pause(ctx, 50*time.Millisecond) {
			return false
		}
		if _, err := d.client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, frontDoorName, metav1.GetOptions{}); err == nil {
			return true
		}
	}
	return false
}

// portsMatch accepts any target port, because replicas may listen on different ports. These are in the slices.
func (d *frontDoor) portsMatch(ports []corev1.ServicePort) bool {
	return len(ports) == 1 && ports[0].Name == portName && ports[0].Port == frontDoorPort && ports[0].Protocol == corev1.ProtocolTCP
}

// sliceKey identifies an EndpointSlice by the address family and port common to its endpoints.
type sliceKey struct {
	family discoveryv1.AddressType
	port   uint16
}

// desiredSlices returns one slice for each address family and port. The first has the name of the Service, like
// kube-apiserver's only slice.
func desiredSlices(replicas []netip.AddrPort) map[string]*discoveryv1.EndpointSlice {
	byKey := map[sliceKey][]discoveryv1.Endpoint{}
	var keys []sliceKey
	for _, r := range replicas {
		key := sliceKey{discoveryv1.AddressTypeIPv4, r.Port()}
		if r.Addr().Is6() {
			key.family = discoveryv1.AddressTypeIPv6
		}
		if byKey[key] == nil {
			keys = append(keys, key)
		}
		ready := true
		byKey[key] = append(byKey[key], discoveryv1.Endpoint{
			Addresses: []string{r.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	wanted := map[string]*discoveryv1.EndpointSlice{}
	for i, key := range keys {
		name := frontDoorName
		if i > 0 {
			name = fmt.Sprintf("%s-%s-%d", frontDoorName, strings.ToLower(string(key.family)), key.port)
		}
		port, https, tcp := int32(key.port), portName, corev1.ProtocolTCP
		wanted[name] = &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: frontDoorName}},
			AddressType: key.family, Endpoints: byKey[key],
			Ports: []discoveryv1.EndpointPort{{Name: &https, Protocol: &tcp, Port: &port}},
		}
	}
	return wanted
}

func (d *frontDoor) writeSlices(ctx context.Context, replicas []netip.AddrPort) error {
	current, err := d.EndpointSlices.Lister().EndpointSlices(metav1.NamespaceDefault).List(
		labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: frontDoorName}))
	if err != nil {
		return err
	}
	all := d.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	wanted := desiredSlices(replicas)
	var errs []error
	for _, slice := range current {
		want := wanted[slice.Name]
		if want != nil && want.AddressType == slice.AddressType {
			delete(wanted, slice.Name)
			if apiequality.Semantic.DeepEqual(want.Endpoints, slice.Endpoints) && apiequality.Semantic.DeepEqual(want.Ports, slice.Ports) {
				continue
			}
			updated := slice.DeepCopy()
			updated.Endpoints, updated.Ports = want.Endpoints, want.Ports
			_, err := all.Update(ctx, updated, metav1.UpdateOptions{})
			errs = append(errs, reconcile.Ignoring(err, reconcile.IsOutdated))
			continue
		}
		// The address family of a slice is immutable. Slices with another family and surplus slices of the Service are deleted.
		errs = append(errs, reconcile.Ignoring(all.Delete(ctx, slice.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(slice.UID))}), reconcile.IsOutdated))
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		_, err := all.Create(ctx, wanted[name], metav1.CreateOptions{})
		errs = append(errs, reconcile.Ignoring(err, apierrors.IsAlreadyExists)) // the cache is behind
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("endpointslices of service %s: %w", frontDoorName, err)
	}
	return nil
}

func (d *frontDoor) writeEndpoints(ctx context.Context, replicas []netip.AddrPort) error {
	want := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{
		Name: frontDoorName, Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}, // the slices are written here
	}}
	for _, r := range replicas {
		i := slices.IndexFunc(want.Subsets, func(s corev1.EndpointSubset) bool { return s.Ports[0].Port == int32(r.Port()) })
		if i < 0 {
			i = len(want.Subsets)
			want.Subsets = append(want.Subsets, corev1.EndpointSubset{
				Ports: []corev1.EndpointPort{{Name: portName, Port: int32(r.Port()), Protocol: corev1.ProtocolTCP}},
			})
		}
		want.Subsets[i].Addresses = append(want.Subsets[i].Addresses, corev1.EndpointAddress{IP: r.Addr().String()})
	}
	all := d.client.CoreV1().Endpoints(metav1.NamespaceDefault)
	obj, there, err := d.endpoints.GetIndexer().GetByKey(metav1.NamespaceDefault + "/" + frontDoorName)
	if err != nil {
		return err
	}
	if !there {
		_, err = all.Create(ctx, want, metav1.CreateOptions{})
		err = reconcile.Ignoring(err, apierrors.IsAlreadyExists)
	} else {
		current := obj.(*corev1.Endpoints)
		if apiequality.Semantic.DeepEqual(current.Subsets, want.Subsets) && current.Labels[discoveryv1.LabelSkipMirror] == "true" {
			return nil
		}
		updated := current.DeepCopy()
		updated.Subsets = want.Subsets
		metav1.SetMetaDataLabel(&updated.ObjectMeta, discoveryv1.LabelSkipMirror, "true")
		_, err = all.Update(ctx, updated, metav1.UpdateOptions{})
		err = reconcile.Ignoring(err, reconcile.IsOutdated)
	}
	if err != nil {
		return fmt.Errorf("endpoints of service %s: %w", frontDoorName, err)
	}
	return nil
}

const (
	defaultCIDRName = "kubernetes"
	// cidrFinalizer equals kube-controller-manager's. It keeps a range while its addresses are in use.
	cidrFinalizer = "networking.k8s.io/service-cidr-finalizer"
	// cidrPause is the interval between checks of a range that is being deleted.
	cidrPause = 10 * time.Second
)

// serviceCIDRs creates the ServiceCIDR kubernetes from the flags, sets the Ready condition of all ServiceCIDRs, and removes the
// finalizer of deleted ones when none of their addresses is in use.
type serviceCIDRs struct {
	client   clients.Interface
	cidrs    networkinginformers.ServiceCIDRInformer
	ranges   []netip.Prefix
	election reconcile.Election
	log      *zap.Logger
}

func (c *serviceCIDRs) run(ctx context.Context) error {
	l := &reconcile.Loop{
		Name: "servicecidrs", Workers: 1, Resync: time.Minute, Election: c.election, Log: c.log,
		Reconcile: func(ctx context.Context, _ string) (time.Duration, error) { return c.reconcile(ctx) },
	}
	return l.Run(ctx, reconcile.Source{Informer: c.cidrs.Informer(), Key: func(any) string { return "servicecidrs" }})
}

// ensure creates the ServiceCIDR for the ranges in the flags if it is missing. It logs ranges that differ from an earlier
// start, because addresses of the old ranges stay in use.
func (c *serviceCIDRs) ensure(ctx context.Context) error {
	want := make([]string, len(c.ranges))
	for i, r := range c.ranges {
		want[i] = r.String()
	}
	all := c.client.NetworkingV1().ServiceCIDRs()
	current, err := all.Get(ctx, defaultCIDRName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = all.Create(ctx, &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: defaultCIDRName}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: want},
		}, metav1.CreateOptions{})
		return reconcile.Ignoring(err, apierrors.IsAlreadyExists)
	}
	if err != nil {
		return fmt.Errorf("get servicecidr %s: %w", defaultCIDRName, err)
	}
	if !slices.Equal(current.Spec.CIDRs, want) {
		c.log.Warn("--service-cluster-ip-range differs from the ServiceCIDR kubernetes; both are used; delete the ServiceCIDR to recreate it",
			zap.Strings("flag", want), zap.Strings("object", current.Spec.CIDRs))
	}
	return nil
}

func (c *serviceCIDRs) reconcile(ctx context.Context) (again time.Duration, err error) {
	// Bypass the cache: a range deleted because a stale object seems to cover its addresses cannot be recovered.
	list, err := c.client.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list servicecidrs: %w", err)
	}
	if !slices.ContainsFunc(list.Items, func(r networkingv1.ServiceCIDR) bool { return r.Name == defaultCIDRName }) {
		if err := c.ensure(ctx); err != nil {
			return 0, err
		}
	}
	var errs []error
	for i := range list.Items {
		r := &list.Items[i]
		if r.DeletionTimestamp == nil {
			errs = append(errs, c.keep(ctx, r))
			continue
		}
		again = cidrPause
		errs = append(errs, c.release(ctx, r, list.Items))
	}
	for i, err := range errs {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			errs[i], again = nil, time.Second
		}
	}
	return again, errors.Join(errs...)
}

// keep marks a range as ready. It adds the finalizer first, because addresses may be allocated from a ready range.
func (c *serviceCIDRs) keep(ctx context.Context, r *networkingv1.ServiceCIDR) (err error) {
	all := c.client.NetworkingV1().ServiceCIDRs()
	if !slices.Contains(r.Finalizers, cidrFinalizer) {
		r = r.DeepCopy()
		r.Finalizers = append(r.Finalizers, cidrFinalizer)
		if r, err = all.Update(ctx, r, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	if meta.IsStatusConditionTrue(r.Status.Conditions, networkingv1.ServiceCIDRConditionReady) {
		return nil
	}
	// Without a reason, like kube-controller-manager's controller. Both may run, and must not overwrite each other's writes.
	return c.say(ctx, r, metav1.ConditionTrue, "", "Kubernetes Service CIDR is ready")
}

func (c *serviceCIDRs) say(ctx context.Context, r *networkingv1.ServiceCIDR, status metav1.ConditionStatus, reason, message string) error {
	r = r.DeepCopy()
	if !meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{
		Type: networkingv1.ServiceCIDRConditionReady, Status: status, Reason: reason, Message: message,
	}) {
		return nil
	}
	_, err := c.client.NetworkingV1().ServiceCIDRs().UpdateStatus(ctx, r, metav1.UpdateOptions{})
	return err
}

// release removes the finalizer of a range without allocated addresses. Before that, it marks the range as not ready, so that
// no new addresses are allocated from it.
func (c *serviceCIDRs) release(ctx context.Context, r *networkingv1.ServiceCIDR, ranges []networkingv1.ServiceCIDR) error {
	if !slices.Contains(r.Finalizers, cidrFinalizer) {
		return nil
	}
	ready := meta.FindStatusCondition(r.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse {
		return c.say(ctx, r, metav1.ConditionFalse, networkingv1.ServiceCIDRReasonTerminating,
			"There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR")
	}
	if time.Since(ready.LastTransitionTime.Time) < cidrPause {
		return nil // a replica may not have seen yet that the range is not ready
	}
	addresses, err := c.client.NetworkingV1().IPAddresses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list ipaddresses: %w", err)
	}
	var others []netip.Prefix
	for _, o := range ranges {
		if o.DeletionTimestamp == nil {
			others = append(others, prefixes(&o)...)
		}
	}
	within := func(ranges []netip.Prefix, a netip.Addr) bool {
		return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	own := prefixes(r)
	for _, claim := range addresses.Items {
		if a, err := netip.ParseAddr(claim.Name); err == nil && within(own, a) && !within(others, a) {
			return nil
		}
	}
	r = r.DeepCopy()
	r.Finalizers = slices.DeleteFunc(r.Finalizers, func(f string) bool { return f == cidrFinalizer })
	_, err = c.client.NetworkingV1().ServiceCIDRs().Update(ctx, r, metav1.UpdateOptions{})
	return err
}

func prefixes(r *networkingv1.ServiceCIDR) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range r.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p)
		}
	}
	return out
}

const (
	// repairPause is the time between two checks of all Services and their claims.
	repairPause = time.Minute
	// abandonedPause is the time between two checks for writes of ended replicas, which are cheap. Their claims are released at
	// most this long after their lease has expired.
	abandonedPause = 2 * time.Second
)

// allocationRepair repairs the claims on addresses and ports at the start, periodically, and after a replica ended while it
// wrote a Service.
type allocationRepair struct {
	repair    func(context.Context) error
	abandoned func(context.Context) (bool, error)
	election  reconcile.Election
	log       *zap.Logger
}

func (r *allocationRepair) run(ctx context.Context) error {
	var last time.Time
	for r.election.Wait(ctx) {
		if time.Since(last) >= repairPause || r.isNeeded(ctx) {
			last = time.Now()
			if err := r.repair(ctx); err != nil && ctx.Err() == nil {
				r.log.Warn("failed to repair the claims on addresses and ports of Services; retrying", zap.Error(err))
			}
		}
		if !run.Pause(ctx, abandonedPause) {
			return nil
		}
	}
	return nil
}

// isNeeded ignores errors, because the periodic repair reports them.
func (r *allocationRepair) isNeeded(ctx context.Context) bool {
	abandoned, err := r.abandoned(ctx)
	return err == nil && abandoned
}
