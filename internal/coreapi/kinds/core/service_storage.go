package core

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

// Services is the storage of Services. Its writes are transactions of an allocator. The hooks of k8s.io/apiserver's Store are
// not sufficient, because Store reports the success of an update before it is written.
type Services struct {
	*registry.REST
	allocator *allocation.Allocator
}

var _ rest.StandardStorage = (*Services)(nil)

func serviceStorages(e *registry.Environment, main *registry.REST) map[string]rest.Storage {
	a := newAllocator(e, main)
	main.BeginCreate = func(ctx context.Context, obj runtime.Object, o *metav1.CreateOptions) (genericregistry.FinishFunc, error) {
		return registry.Finished, settle(ctx, obj, nil, o.DryRun)
	}
	main.BeginUpdate = func(ctx context.Context, obj, old runtime.Object, o *metav1.UpdateOptions) (genericregistry.FinishFunc, error) {
		return registry.Finished, settle(ctx, obj, old, o.DryRun)
	}
	main.AfterDelete = func(obj runtime.Object, o *metav1.DeleteOptions) {
		if s, ok := obj.(*corev1.Service); ok && !dryrun.IsDryRun(o.DryRun) {
			a.Deleted(s)
		}
	}
	return map[string]rest.Storage{"services": &Services{main, a}, "services/proxy": serviceProxy(e)}
}

var errNoTransaction = apierrors.NewInternalError(errors.New("a service is written outside of a transaction"))

func settle(ctx context.Context, obj, old runtime.Object, dryRun []string) error {
	t := allocation.FromContext(ctx)
	if t == nil {
		return errNoTransaction
	}
	var before *corev1.Service
	if old != nil {
		before = old.(*corev1.Service)
	}
	return t.Settle(ctx, obj.(*corev1.Service), before, dryrun.IsDryRun(dryRun))
}

func (s *Services) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	ctx, t := s.allocator.Begin(ctx)
	out, err := s.REST.Create(ctx, obj, validate, options)
	t.End(ctx, serviceOf(out), err)
	return out, err
}

func (s *Services) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
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

// newAllocator returns an allocator for the ranges in e, with claims on addresses stored as IPAddresses.
func newAllocator(e *registry.Environment, main *registry.REST) *allocation.Allocator {
	return allocation.New(allocation.Config{
		Ranges:   serviceRanges(e.ClusterIPRanges, e.Storage(networkingv1.Resource("servicecidrs"))),
		Reserved: []netip.Addr{allocation.FirstAddress(e.ClusterIPRanges[0])}, NodePorts: e.NodePorts,
		Addresses: addressClaims{e.Storage(networkingv1.Resource("ipaddresses"))}, Ports: e.Ports, InFlight: e.InFlight,
		Stored: storedService(main), Logger: e.Logger.Named("allocation"),
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

// serviceRanges returns the ranges from the flags and from ServiceCIDRs that are ready and not being deleted. The cache is
// sufficient for ServiceCIDRs, because deletion waits until the addresses are released.
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

// addressClaims stores claims as IPAddress objects, which are named by the address and refer to a Service.
type addressClaims struct {
	all *registry.REST
}

var _ allocation.Claims[netip.Addr] = addressClaims{}

// claimedBy is kube-apiserver's label value. Controllers of IPAddresses recognize its claims by it.
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
		return nil // already deleted, or claimed by another owner
	}
	return err
}

// ReleaseHeld deletes the IPAddress with the UID in held.
func (c addressClaims) ReleaseHeld(ctx context.Context, a netip.Addr, held allocation.Held) error {
	_, _, err := c.all.Delete(c.context(ctx, a.String()), a.String(), rest.ValidateAllObjectFunc, metav1.NewPreconditionDeleteOptions(held.ID))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // already deleted, or replaced by another claim
	}
	return err
}

func (c addressClaims) List(ctx context.Context) (map[netip.Addr]allocation.Held, error) {
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

// ownerOfClaim returns the Service that an IPAddress refers to, or an empty name if it refers to another kind.
func ownerOfClaim(a *networkingv1.IPAddress) types.NamespacedName {
	p := a.Spec.ParentRef
	if p == nil || p.Group != "" || p.Resource != "services" {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// NewRepairer returns a repairer for the allocations of s.
func (s *Services) NewRepairer() *allocation.Repairer {
	list := func(ctx context.Context) ([]corev1.Service, error) {
		found, err := s.List(registry.ReadContext(ctx, "", "services", "", ""), &metainternalversion.ListOptions{})
		if err != nil {
			return nil, err
		}
		return found.(*corev1.ServiceList).Items, nil
	}
	touch := func(ctx context.Context, service *corev1.Service) error {
		ctx = registry.ReadContext(ctx, "", "services", service.Namespace, service.Name)
		_, _, err := s.Update(ctx, service.Name, rest.DefaultUpdatedObjectInfo(service.DeepCopy()), rest.ValidateAllObjectFunc,
			rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // changed concurrently; the next round checks it
		}
		return err
	}
	return allocation.NewRepairer(s.allocator, list, touch, 0)
}
