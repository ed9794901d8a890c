package allocation

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// releaseTimeout limits the release of claims after a write, when the client may have disconnected.
const releaseTimeout = 5 * time.Second

// Config contains the dependencies of an Allocator. All fields are required.
type Config struct {
	// Ranges returns the ranges of cluster IPs. The first one determines the first family and contains the Service kubernetes.
	Ranges func(ctx context.Context) ([]netip.Prefix, error)
	// Reserved contains the addresses of the Service kubernetes.
	Reserved []netip.Addr
	// NodePorts is the range of node ports.
	NodePorts PortRange
	// Addresses and Ports store the claims.
	Addresses Claims[netip.Addr]
	Ports     Claims[int32]
	// InFlight stores the writes in progress.
	InFlight InFlight
	// Stored reads the current Service from etcd. It returns nil if the Service does not exist.
	Stored func(ctx context.Context, namespace, name string) (*corev1.Service, error)
	Logger *zap.Logger
}

// Allocator allocates cluster IPs and node ports.
type Allocator struct {
	cfg Config
}

// New returns an Allocator. It needs no Close.
func New(cfg Config) *Allocator { return &Allocator{cfg} }

// Transaction is one write of one Service, with one or more attempts.
type Transaction struct {
	*Allocator
	owner     Owner
	addresses map[netip.Addr]bool // claimed by this transaction
	ports     map[int32]bool
	entry     string          // key of the entry in InFlight; empty if nothing was claimed
	before    *corev1.Service // the object that the last attempt replaces, or nil
	dryRun    bool
}

type transactionKey struct{}

// Begin opens a transaction in the returned context, where Of finds it. The caller must call End.
func (a *Allocator) Begin(ctx context.Context) (context.Context, *Transaction) {
	t := &Transaction{Allocator: a, addresses: map[netip.Addr]bool{}, ports: map[int32]bool{}}
	return context.WithValue(ctx, transactionKey{}, t), t
}

// FromContext returns the transaction of a context, or nil.
func FromContext(ctx context.Context) *Transaction {
	t, _ := ctx.Value(transactionKey{}).(*Transaction)
	return t
}

// Settle sets the allocated fields of s, claims their values, and refuses invalid requests. old is the object that s replaces,
// or nil for a new Service. It may be called again for another attempt at the same write.
func (t *Transaction) Settle(ctx context.Context, s, old *corev1.Service, dryRun bool) error {
	t.dryRun, t.before, t.owner = dryRun, nil, ownerOf(s)
	ranges, err := t.cfg.Ranges(ctx)
	if err != nil {
		return internal(err, "read the ranges of cluster IPs: %w", err)
	}
	families := familiesOf(ranges)
	if old != nil {
		old = old.DeepCopy()
		complete(old, families)
		t.before, t.owner = old, ownerOf(old)
		keepAllocated(s, old)
	}
	pairClusterIPs(s, old)
	if old != nil {
		forgetUnneeded(s, old)
	}
	if errs := settleFamilies(s, old, families); len(errs) > 0 {
		return invalid(s, errs)
	}
	if errs := checkUnchanged(s, old); len(errs) > 0 {
		return invalid(s, errs)
	}
	if err := t.settleAddresses(ctx, s, old, ranges); err != nil {
		return err
	}
	return t.settlePorts(ctx, s, old)
}

func invalid(s *corev1.Service, errs field.ErrorList) error {
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), s.Name, errs)
}

// settleAddresses allocates an address for every family without one.
func (t *Transaction) settleAddresses(ctx context.Context, s, old *corev1.Service, ranges []netip.Prefix) error {
	if !usesClusterIP(s) {
		return nil
	}
	if headless(s) {
		s.Spec.ClusterIP = corev1.ClusterIPNone
		return nil
	}
	from := 0
	if hasAddresses(old) {
		from = len(old.Spec.ClusterIPs)
	}
	for i, family := range s.Spec.IPFamilies {
		if i < from {
			continue
		}
		if i >= len(s.Spec.ClusterIPs) {
			s.Spec.ClusterIPs = append(slices.Clone(s.Spec.ClusterIPs), "")
		}
		ip, err := t.address(ctx, s, family, s.Spec.ClusterIPs[i], ranges)
		if err != nil {
			return err
		}
		s.Spec.ClusterIPs[i] = ip
	}
	if len(s.Spec.ClusterIPs) > 0 {
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	}
	return nil
}

// address claims the requested address, or any free one.
func (t *Transaction) address(ctx context.Context, s *corev1.Service, family corev1.IPFamily, wanted string, ranges []netip.Prefix) (string, error) {
	if wanted == "" {
		a, err := t.claimFreeAddress(ctx, family, ranges)
		if err != nil {
			return "", internal(err, "failed to allocate a serviceIP for Service %q: %w", s.Name, err)
		}
		return a.String(), nil
	}
	a, ok := parseAddress(wanted)
	if !ok {
		return "", apierrors.NewInternalError(fmt.Errorf("failed to parse service IP %q", wanted))
	}
	var refusal refusal
	if err := t.claimRequestedAddress(ctx, a, ranges); err != nil && !errors.As(err, &refusal) {
		return "", internal(err, "failed to allocate IP %v: %w", wanted, err)
	} else if err != nil {
		return "", invalid(s, field.ErrorList{field.Invalid(addressPath, s.Spec.ClusterIPs,
			fmt.Sprintf("failed to allocate IP %v: %v", wanted, err))})
	}
	return wanted, nil
}

// refusal is an error that the client can correct.
type refusal string

func (r refusal) Error() string { return string(r) }

const errAddressTaken refusal = "provided IP is already allocated"

// internal returns an internal error, or err itself if it has a status.
func internal(err error, format string, args ...any) error {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return err
	}
	return apierrors.NewInternalError(fmt.Errorf(format, args...))
}

func (t *Transaction) claimRequestedAddress(ctx context.Context, a netip.Addr, ranges []netip.Prefix) error {
	if !slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return inRange(r, a) }) {
		return refusal(fmt.Sprintf("the provided IP (%v) is not in the valid range. The range of valid IPs is %s", a, listed(ranges, FamilyOf(a))))
	}
	if slices.Contains(t.cfg.Reserved, a) && (t.owner.Namespace != "default" || t.owner.Name != "kubernetes") {
		return errAddressTaken
	}
	if t.addresses[a] {
		return nil // an earlier attempt has claimed it
	}
	return t.claimAddress(ctx, a)
}

func (t *Transaction) claimAddress(ctx context.Context, a netip.Addr) error {
	if t.dryRun {
		return refuseTaken(ctx, t.cfg.Addresses, a, errAddressTaken)
	}
	err := tracked[netip.Addr]{t.cfg.Addresses, t.addresses, t.beginEntry}.Claim(ctx, a, t.owner)
	if errors.Is(err, ErrTaken) {
		return errAddressTaken
	}
	return err
}

// refuseTaken checks a claim in a dry run.
func refuseTaken[T comparable](ctx context.Context, claims Claims[T], what T, refusal error) error {
	taken, err := claims.List(ctx)
	if err != nil {
		return err
	}
	if _, is := taken[what]; is {
		return refusal
	}
	return nil
}

func listed(ranges []netip.Prefix, family corev1.IPFamily) string {
	var names []string
	for _, r := range ranges {
		if FamilyOf(r.Addr()) == family {
			names = append(names, r.String())
		}
	}
	return strings.Join(names, ", ")
}

func (t *Transaction) claimFreeAddress(ctx context.Context, family corev1.IPFamily, ranges []netip.Prefix) (netip.Addr, error) {
	candidates := func(yield func(netip.Addr) bool) {
		for _, r := range ranges {
			if FamilyOf(r.Addr()) != family {
				continue
			}
			for a := range dynamicAddresses(r) {
				if !yield(a) {
					return
				}
			}
		}
	}
	if t.dryRun {
		return findFree(ctx, t.cfg.Addresses, candidates, nil)
	}
	return claimAny(ctx, tracked[netip.Addr]{t.cfg.Addresses, t.addresses, t.beginEntry}, t.owner, candidates)
}

// tracked records claims before they are confirmed, so that a lost response does not leak a claim.
type tracked[T comparable] struct {
	Claims[T]
	claimed     map[T]bool
	beforeClaim func(context.Context) error // called before each claim
}

func (c tracked[T]) Claim(ctx context.Context, what T, owner Owner) error {
	if c.claimed[what] {
		return ErrTaken // claimed by an earlier attempt, possibly for another field
	}
	if err := c.beforeClaim(ctx); err != nil {
		return err
	}
	c.claimed[what] = true
	err := c.Claims.Claim(ctx, what, owner)
	if errors.Is(err, ErrTaken) {
		delete(c.claimed, what)
	}
	return err
}

// End closes the transaction. stored is the Service as stored now, err the error of the write.
func (t *Transaction) End(ctx context.Context, stored *corev1.Service, err error) {
	if t.dryRun || t.before == nil && t.entry == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err == nil {
		if t.before != nil {
			t.addBefore()
		}
		t.release(ctx, stored)
		t.logRemainingEntry(t.endEntry(ctx))
		return
	}
	// The write may still be in progress, because its request ended before etcd responded. Without the entry it cannot be
	// stored.
	if err := t.endEntry(ctx); err != nil {
		t.logRemainingEntry(err)
		return
	}
	if len(t.addresses) == 0 && len(t.ports) == 0 {
		return
	}
	stored, err = t.cfg.Stored(ctx, t.owner.Namespace, t.owner.Name)
	if err != nil {
		t.cfg.Logger.Warn("failed to check whether a Service was stored; the next repair reconciles its claims",
			zap.Stringer("service", t.owner), zap.Error(err))
		return
	}
	t.release(ctx, stored)
}

// logRemainingEntry logs that the entry still exists if err is not nil. A repair ends it later.
func (t *Transaction) logRemainingEntry(err error) {
	if err != nil {
		t.cfg.Logger.Warn("failed to delete the pending entry of a finished Service write; the next repair deletes it",
			zap.Stringer("service", t.owner), zap.Error(err))
	}
}

func (t *Transaction) addBefore() {
	for _, a := range addressesOf(t.before) {
		t.addresses[a] = true
	}
	for port := range allPorts(t.before) {
		t.ports[port] = true
	}
}

// release releases the claims that the stored Service does not need.
func (t *Transaction) release(ctx context.Context, stored *corev1.Service) {
	if stored != nil && ownerOf(stored).NamespacedName == t.owner.NamespacedName {
		for _, a := range addressesOf(stored) {
			delete(t.addresses, a)
		}
		for port := range allPorts(stored) {
			delete(t.ports, port)
		}
	}
	t.Allocator.release(ctx, t.owner, slices.Collect(maps.Keys(t.addresses)), slices.Collect(maps.Keys(t.ports)))
}

// Deleted releases all claims of a Service that is no longer stored.
func (a *Allocator) Deleted(s *corev1.Service) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	s = s.DeepCopy()
	pairClusterIPs(s, nil)
	a.release(ctx, ownerOf(s), addressesOf(s), slices.Collect(maps.Keys(allPorts(s))))
}

func (a *Allocator) release(ctx context.Context, owner Owner, addresses []netip.Addr, ports []int32) {
	var errs []error
	for _, address := range addresses {
		errs = append(errs, a.cfg.Addresses.Release(ctx, address, owner))
	}
	for _, port := range ports {
		errs = append(errs, a.cfg.Ports.Release(ctx, port, owner))
	}
	if err := errors.Join(errs...); err != nil {
		a.cfg.Logger.Warn("failed to release addresses or ports of a Service; the next repair releases them",
			zap.Stringer("service", owner), zap.Error(err))
	}
}

// addressesOf returns the addresses of a Service.
func addressesOf(s *corev1.Service) []netip.Addr {
	if !hasAddresses(s) {
		return nil
	}
	var all []netip.Addr
	for _, ip := range s.Spec.ClusterIPs {
		if a, ok := parseAddress(ip); ok {
			all = append(all, a)
		}
	}
	return all
}
