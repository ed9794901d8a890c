package allocation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DefaultGrace limits how long the write of a Service may be in progress while its process is alive: twice the default request
// timeout. A longer write fails.
const DefaultGrace = 2 * time.Minute

// Repairer repairs the results of crashes: claims without a Service, Services without a claim, and Services of older versions
// without an address. One replica at a time runs it; concurrent runs are harmless.
type Repairer struct {
	allocator *Allocator
	list      func(context.Context) ([]corev1.Service, error)
	touch     func(context.Context, *corev1.Service) error
	grace     time.Duration
	now       func() time.Time
	entries   map[string]time.Time // when each write was first seen
}

// NewRepairer returns a Repairer for the allocations of a. list reads all current Services. touch writes a Service unchanged,
// which allocates missing values. Grace 0 means DefaultGrace.
func NewRepairer(a *Allocator, list func(context.Context) ([]corev1.Service, error), touch func(context.Context, *corev1.Service) error,
	grace time.Duration,
) *Repairer {
	grace = cmp.Or(grace, DefaultGrace)
	return &Repairer{allocator: a, list: list, touch: touch, grace: grace, now: time.Now}
}

// Allocator returns the allocator under repair.
func (r *Repairer) Allocator() *Allocator { return r.allocator }

// Repair checks all claims and Services once. It must not be called concurrently.
func (r *Repairer) Repair(ctx context.Context) error {
	// Read claims before Services: each claim then has a Service in the list, has a Service that is not written yet, or has
	// none.
	cfg := &r.allocator.cfg
	addresses, err := cfg.Addresses.List(ctx)
	if err != nil {
		return err
	}
	ports, err := cfg.Ports.List(ctx)
	if err != nil {
		return err
	}
	// Then read the writes in progress. Each entry was created before its claims, and is removed after the Service is stored.
	// So if the owner of a claim has no entry now, its Service is stored by now, or never will be.
	pending, anybody, err := r.ownersWriting(ctx)
	if err != nil {
		return err
	}
	services, err := r.list(ctx)
	if err != nil {
		return fmt.Errorf("list services: %w", err)
	}
	var (
		errs            []error
		hasAddress      = map[netip.Addr][]Owner{}
		hasPort         = map[int32][]Owner{}
		withoutAnything []*corev1.Service
	)
	for i := range services {
		s := services[i].DeepCopy()
		pairClusterIPs(s, nil)
		if lacksSomething(s) {
			withoutAnything = append(withoutAnything, &services[i])
		}
		for _, a := range addressesOf(s) {
			hasAddress[a] = append(hasAddress[a], ownerOf(s))
		}
		for port := range allPorts(s) {
			hasPort[port] = append(hasPort[port], ownerOf(s))
		}
	}
	isPending := func(name types.NamespacedName) bool { return anybody || pending[name] }
	err1 := mend(ctx, r, cfg.Addresses, "address", addresses, hasAddress, isPending)
	err2 := mend(ctx, r, cfg.Ports, "node port", ports, hasPort, isPending)
	errs = append(errs, err1, err2)
	// Last, so that a Service without an address cannot get one that another Service has without a claim.
	if err1 == nil && err2 == nil {
		for _, s := range withoutAnything {
			if err := r.touch(ctx, s); err != nil {
				errs = append(errs, fmt.Errorf("give service %s/%s what it lacks: %w", s.Namespace, s.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// lacksSomething reports whether a Service was stored before allocation was implemented.
func lacksSomething(s *corev1.Service) bool {
	if s.DeletionTimestamp != nil {
		return false
	}
	if usesClusterIP(s) && (len(s.Spec.ClusterIPs) == 0 || len(s.Spec.IPFamilies) == 0) {
		return true
	}
	return s.Spec.Type == corev1.ServiceTypeNodePort && slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort == 0 })
}

// mend reconciles the claims of addresses or ports with the Services, except for claims of writes in progress.
func mend[T comparable](ctx context.Context, r *Repairer, claims Claims[T], what string, taken map[T]Held, has map[T][]Owner,
	isPending func(types.NamespacedName) bool,
) error {
	var (
		errs       []error
		unreadable []T
		log        = r.allocator.cfg.Logger
	)
	for thing, owners := range has {
		if len(owners) > 1 {
			log.Warn("multiple Services have the same "+what+"; delete all but one of them", zap.Any(what, thing), zap.Any("services", owners))
		}
		if _, is := taken[thing]; is {
			continue
		}
		if err := claims.Claim(ctx, thing, owners[0]); err != nil && !errors.Is(err, ErrTaken) {
			errs = append(errs, fmt.Errorf("claim %s %v for service %s: %w", what, thing, owners[0], err))
		}
	}
	for thing, held := range taken {
		if held.Unreadable {
			unreadable = append(unreadable, thing)
			continue
		}
		if held.Foreign || isPending(held.Owner.NamespacedName) || slices.ContainsFunc(has[thing], func(o Owner) bool { return o.NamespacedName == held.Owner.NamespacedName }) {
			continue
		}
		log.Info("releasing a claim without a Service", zap.Any(what, thing), zap.Stringer("service", held.Owner))
		if err := claims.ReleaseHeld(ctx, thing, held); err != nil {
			errs = append(errs, err)
		}
	}
	if len(unreadable) > 0 {
		log.Warn("claims are damaged or written by a newer release, and are kept; run the newer release or delete their keys in etcd",
			zap.String("of", what), zap.Int("number", len(unreadable)), zap.Any("first", unreadable[:min(len(unreadable), 10)]))
	}
	return errors.Join(errs...)
}
