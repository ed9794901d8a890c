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

// DefaultGrace is how long the write of a Service may be under way, if its process lives: twice as long as a request may take
// by default. One that lasts for longer fails.
const DefaultGrace = 2 * time.Minute

// Repairer mends what crashes leave: claims without a Service, Services without a claim, and Services of older versions
// that have no address at all. One replica at a time runs it; several would do each other no harm.
type Repairer struct {
	allocator *Allocator
	list      func(context.Context) ([]corev1.Service, error)
	touch     func(context.Context, *corev1.Service) error
	grace     time.Duration
	now       func() time.Time
	entries   map[string]time.Time // when a write was first seen to be under way
}

// NewRepairer mends what a hands out. list reads all Services as they are now; touch writes one as it is, so that it is
// given what it lacks. Grace 0 is DefaultGrace.
func NewRepairer(a *Allocator, list func(context.Context) ([]corev1.Service, error), touch func(context.Context, *corev1.Service) error,
	grace time.Duration,
) *Repairer {
	grace = cmp.Or(grace, DefaultGrace)
	return &Repairer{allocator: a, list: list, touch: touch, grace: grace, now: time.Now}
}

// Allocator hands out what is mended here.
func (r *Repairer) Allocator() *Allocator { return r.allocator }

// Repair looks at everything once. It is not for several goroutines.
func (r *Repairer) Repair(ctx context.Context) error {
	// Claims first: one that is read before the Services are has either a Service among them, or none yet, or none.
	cfg := &r.allocator.cfg
	addresses, err := cfg.Addresses.Taken(ctx)
	if err != nil {
		return err
	}
	ports, err := cfg.Ports.Taken(ctx)
	if err != nil {
		return err
	}
	// Then the writes that are under way: each entry was made before its claims, and is removed after the Service is stored. So
	// a claim of nobody who has an entry now has its Service by now, or will never have.
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
	// Last, so that a Service that is given an address now cannot be given one that another has without a claim.
	if err1 == nil && err2 == nil {
		for _, s := range withoutAnything {
			if err := r.touch(ctx, s); err != nil {
				errs = append(errs, fmt.Errorf("give service %s/%s what it lacks: %w", s.Namespace, s.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// lacksSomething is true of Services that were stored before anything was allocated to them.
func lacksSomething(s *corev1.Service) bool {
	if s.DeletionTimestamp != nil {
		return false
	}
	if usesClusterIP(s) && (len(s.Spec.ClusterIPs) == 0 || len(s.Spec.IPFamilies) == 0) {
		return true
	}
	return s.Spec.Type == corev1.ServiceTypeNodePort && slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort == 0 })
}

// mend makes the claims to one kind of thing agree with the Services, but for those of writes that are under way.
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
			log.Warn("several services have the same "+what+"; delete all but one of them", zap.Any(what, thing), zap.Any("services", owners))
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
		log.Info("a claim has no service any more and is given back", zap.Any(what, thing), zap.Stringer("service", held.Owner))
		if err := claims.ReleaseHeld(ctx, thing, held); err != nil {
			errs = append(errs, err)
		}
	}
	if len(unreadable) > 0 {
		log.Warn("claims are damaged, or of a newer release, and stay; run that release again, or delete their keys in etcd",
			zap.String("of", what), zap.Int("number", len(unreadable)), zap.Any("first", unreadable[:min(len(unreadable), 10)]))
	}
	return errors.Join(errs...)
}
