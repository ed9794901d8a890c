package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	defaultCIDRName = "kubernetes"
	// cidrFinalizer is upstream's: a range with addresses in use stays.
	cidrFinalizer = "networking.k8s.io/service-cidr-finalizer"
	// cidrPause is how often a range that is to go is looked at again.
	cidrPause = 10 * time.Second
)

// serviceCIDRs makes the ranges of the flags an object called kubernetes, and ranges that others add ready; it lets those
// that are deleted go when nothing in them is in use.
type serviceCIDRs struct {
	client   kubernetes.Interface
	cidrs    networkinginformers.ServiceCIDRInformer
	ranges   []netip.Prefix
	election election
	log      *zap.Logger
}

func (c *serviceCIDRs) run(ctx context.Context) error {
	l := &loop{
		name: "servicecidrs", workers: 1, every: time.Minute, election: c.election, log: c.log,
		reconcile: func(ctx context.Context, _ string) (time.Duration, error) { return c.reconcile(ctx) },
	}
	return l.run(ctx, source{informer: c.cidrs.Informer(), namespace: func(any) string { return "servicecidrs" }})
}

// ensure creates the object for the ranges of the flags, if it is missing. Ranges that differ from those of an earlier
// start are told: addresses of the old ones stay where they are.
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
		return ignoring(err, apierrors.IsAlreadyExists)
	}
	if err != nil {
		return fmt.Errorf("get servicecidr %s: %w", defaultCIDRName, err)
	}
	if !slices.Equal(current.Spec.CIDRs, want) {
		c.log.Warn("--service-cluster-ip-range is not what servicecidr kubernetes says; both are used. Delete the object to have it made anew",
			zap.Strings("flag", want), zap.Strings("object", current.Spec.CIDRs))
	}
	return nil
}

func (c *serviceCIDRs) reconcile(ctx context.Context) (again time.Duration, err error) {
	// Read past the cache: a range that goes while another is thought to cover its addresses is gone for good.
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

// keep makes a range ready, and puts it under the finalizer first: ready means that addresses may be in it.
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
	// Without a reason, as upstream's controller has it: both may run, and neither may undo what the other wrote.
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

// release lets a range go that nothing is in any more. It has been told before that nothing new may be.
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
		return nil // a replica may not have seen yet that nothing new may be in it
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
