package coreapi

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"

	"portico.dev/internal/coreapi/allocation"
	"portico.dev/internal/coreapi/registry"
)

// ServiceNetwork is what Services are given addresses and ports from.
type ServiceNetwork struct {
	// ClusterIPRanges are one range or one of each family; the first is that of Services that ask for no family.
	// Default allocation.DefaultClusterIPRange. ServiceCIDR objects add to them.
	ClusterIPRanges []netip.Prefix
	// NodePorts default to allocation.DefaultNodePorts.
	NodePorts allocation.PortRange
}

func (n ServiceNetwork) withDefaults() ServiceNetwork {
	if len(n.ClusterIPRanges) == 0 {
		n.ClusterIPRanges = []netip.Prefix{allocation.DefaultClusterIPRange}
	}
	if n.NodePorts == (allocation.PortRange{}) {
		n.NodePorts = allocation.DefaultNodePorts
	}
	return n
}

// services are Services whose writes are transactions of an allocator. The hooks of the library alone would not do: it
// says that an update has succeeded before it is written.
type services struct {
	*registry.REST
	allocator *allocation.Allocator
}

var _ rest.StandardStorage = (*services)(nil)

// newServices makes writes through all, which no other door shares yet, allocate.
func newServices(all *registry.REST, a *allocation.Allocator) *services {
	all.BeginCreate = func(ctx context.Context, obj runtime.Object, o *metav1.CreateOptions) (genericregistry.FinishFunc, error) {
		return registry.Finished, settle(ctx, obj, nil, o.DryRun)
	}
	all.BeginUpdate = func(ctx context.Context, obj, old runtime.Object, o *metav1.UpdateOptions) (genericregistry.FinishFunc, error) {
		return registry.Finished, settle(ctx, obj, old, o.DryRun)
	}
	all.AfterDelete = func(obj runtime.Object, o *metav1.DeleteOptions) {
		if s, ok := obj.(*corev1.Service); ok && !dryrun.IsDryRun(o.DryRun) {
			a.Deleted(s)
		}
	}
	return &services{all, a}
}

var errNoTransaction = apierrors.NewInternalError(errors.New("a service is written outside of a transaction"))

func settle(ctx context.Context, obj, old runtime.Object, dryRun []string) error {
	t := allocation.Of(ctx)
	if t == nil {
		return errNoTransaction
	}
	var before *corev1.Service
	if old != nil {
		before = old.(*corev1.Service)
	}
	return t.Settle(ctx, obj.(*corev1.Service), before, dryrun.IsDryRun(dryRun))
}

func (s *services) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	ctx, t := s.allocator.Begin(ctx)
	out, err := s.REST.Create(ctx, obj, validate, options)
	t.End(ctx, serviceOf(out), err)
	return out, err
}

func (s *services) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, forceCreate bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	ctx, t := s.allocator.Begin(ctx)
	out, created, err := s.REST.Update(ctx, name, info, create, update, forceCreate, options)
	t.End(ctx, serviceOf(out), err)
	return out, created, err
}

func serviceOf(obj runtime.Object) *corev1.Service {
	s, _ := obj.(*corev1.Service)
	return s
}

// portKeys are the own keys that claim node ports.
const portKeys = "nodeports/"

// newAllocator hands out what network says, and keeps the claims in addresses and in ports.
func newAllocator(cfg Config, all, addresses, cidrs *registry.REST, ports allocation.EtcdPorts, writes allocation.InFlight) *allocation.Allocator {
	network := cfg.ServiceNetwork.withDefaults()
	return allocation.New(allocation.Config{
		Ranges:   serviceRanges(network.ClusterIPRanges, cidrs),
		Reserved: []netip.Addr{allocation.FirstAddress(network.ClusterIPRanges[0])}, NodePorts: network.NodePorts,
		Addresses: addressClaims{addresses}, Ports: ports, InFlight: writes, Stored: storedService(all), Logger: cfg.Logger.Named("allocation"),
	})
}

func storedService(all *registry.REST) func(ctx context.Context, namespace, name string) (*corev1.Service, error) {
	return func(ctx context.Context, namespace, name string) (*corev1.Service, error) {
		obj, err := all.Get(registry.ReadContext(ctx, "", "services", namespace, name), name, &metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return obj.(*corev1.Service), nil
	}
}

// serviceRanges are those of the flags, and those of ServiceCIDRs that are ready and not going. A cache is good enough for
// the latter: one that goes waits for its addresses.
func serviceRanges(own []netip.Prefix, cidrs *registry.REST) func(context.Context) ([]netip.Prefix, error) {
	return func(ctx context.Context) ([]netip.Prefix, error) {
		list, err := cidrs.List(registry.ReadContext(ctx, networkingv1.GroupName, "servicecidrs", "", ""), &metainternalversion.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return nil, fmt.Errorf("list servicecidrs: %w", err)
		}
		ranges := slices.Clone(own)
		for _, c := range list.(*networkingv1.ServiceCIDRList).Items {
			if c.DeletionTimestamp != nil || !isReady(&c) {
				continue
			}
			for _, text := range c.Spec.CIDRs {
				if p, err := netip.ParsePrefix(text); err == nil && allocation.CheckRange(p) == nil && !slices.Contains(ranges, p.Masked()) {
					ranges = append(ranges, p.Masked())
				}
			}
		}
		return ranges, nil
	}
}

func isReady(c *networkingv1.ServiceCIDR) bool {
	return slices.ContainsFunc(c.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == networkingv1.ServiceCIDRConditionReady && c.Status == metav1.ConditionTrue
	})
}

// addressClaims are IPAddress objects, named by the address, that refer to a Service.
type addressClaims struct {
	all *registry.REST
}

var _ allocation.Claims[netip.Addr] = addressClaims{}

// claimedBy is what kube-apiserver says: whatever looks after IPAddresses knows its own by it.
const claimedBy = "ipallocator.k8s.io"

func (c addressClaims) context(ctx context.Context, name string) context.Context {
	return registry.ReadContext(ctx, networkingv1.GroupName, "ipaddresses", "", name)
}

func (c addressClaims) Claim(ctx context.Context, a netip.Addr, owner allocation.Owner) error {
	claim := &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: a.String(), Labels: map[string]string{
			networkingv1.LabelIPAddressFamily: string(allocation.FamilyOf(a)), networkingv1.LabelManagedBy: claimedBy,
		}},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: owner.Namespace, Name: owner.Name}},
	}
	_, err := c.all.Create(c.context(ctx, claim.Name), claim, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return allocation.ErrTaken
	}
	return err
}

func (c addressClaims) Release(ctx context.Context, a netip.Addr, owner allocation.Owner) error {
	ctx = c.context(ctx, a.String())
	obj, err := c.all.Get(ctx, a.String(), &metav1.GetOptions{})
	if err == nil {
		claim := obj.(*networkingv1.IPAddress)
		if ownerOfClaim(claim) != owner.NamespacedName {
			return nil
		}
		_, _, err = c.all.Delete(ctx, claim.Name, rest.ValidateAllObjectFunc, metav1.NewPreconditionDeleteOptions(string(claim.UID)))
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it has gone, or is another's by now
	}
	return err
}

// ReleaseHeld deletes the IPAddress that was read.
func (c addressClaims) ReleaseHeld(ctx context.Context, a netip.Addr, held allocation.Held) error {
	_, _, err := c.all.Delete(c.context(ctx, a.String()), a.String(), rest.ValidateAllObjectFunc, metav1.NewPreconditionDeleteOptions(held.ID))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it has gone, or is another by now
	}
	return err
}

func (c addressClaims) Taken(ctx context.Context) (map[netip.Addr]allocation.Held, error) {
	list, err := c.all.List(c.context(ctx, ""), &metainternalversion.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list ipaddresses: %w", err)
	}
	claims := list.(*networkingv1.IPAddressList).Items
	taken := make(map[netip.Addr]allocation.Held, len(claims))
	for i := range claims {
		a, err := netip.ParseAddr(claims[i].Name)
		if err != nil {
			continue
		}
		taken[a] = allocation.Held{
			Owner: allocation.Owner{NamespacedName: ownerOfClaim(&claims[i])}, ID: string(claims[i].UID),
			Foreign: claims[i].Labels[networkingv1.LabelManagedBy] != claimedBy,
		}
	}
	return taken, nil
}

// ownerOfClaim is the Service that an IPAddress refers to; empty when it refers to something else.
func ownerOfClaim(a *networkingv1.IPAddress) types.NamespacedName {
	p := a.Spec.ParentRef
	if p == nil || p.Group != "" || p.Resource != "services" {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// newRepairer mends what the allocator hands out.
func newRepairer(a *allocation.Allocator, all *services) *allocation.Repairer {
	list := func(ctx context.Context) ([]corev1.Service, error) {
		found, err := all.List(registry.ReadContext(ctx, "", "services", "", ""), &metainternalversion.ListOptions{})
		if err != nil {
			return nil, err
		}
		return found.(*corev1.ServiceList).Items, nil
	}
	touch := func(ctx context.Context, s *corev1.Service) error {
		ctx = registry.ReadContext(ctx, "", "services", s.Namespace, s.Name)
		_, _, err := all.Update(ctx, s.Name, rest.DefaultUpdatedObjectInfo(s.DeepCopy()), rest.ValidateAllObjectFunc,
			rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // it is another one by now; the next round sees it
		}
		return err
	}
	return allocation.NewRepairer(a, list, touch, 0)
}

// RepairAllocations mends claims of addresses and ports that a crash has left, and gives Services of older versions what
// they lack. It is for one goroutine, once Ready.
func (s *Server) RepairAllocations(ctx context.Context) error {
	select {
	case <-s.ready:
		return s.repairer.Repair(ctx)
	default:
		return notReady()
	}
}

// serviceDoors are all doors to Services. Each of them may be the one through which the last finalizer goes.
func serviceDoors(c *codecs, main *services) map[string]rest.Storage {
	return map[string]rest.Storage{
		"services":        main,
		"services/status": registry.NewSubresource(main.Store, registry.StatusStrategy{Strategy: registry.NewStrategy(c.scheme, main.Resource)}),
	}
}
