package allocation

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// allPorts returns the node ports of a Service, including the one of its health check.
func allPorts(s *corev1.Service) sets.Set[int32] {
	if s == nil {
		return nil
	}
	ports := sets.New[int32]()
	if usesNodePorts(s) {
		ports = nodePorts(s)
	}
	if usesHealthCheck(s) && s.Spec.HealthCheckNodePort != 0 {
		ports.Insert(s.Spec.HealthCheckNodePort)
	}
	return ports
}

// settlePorts allocates a node port for every port that needs one, and for the health check of a load balancer.
func (t *Transaction) settlePorts(ctx context.Context, s, old *corev1.Service) error {
	has := maps.Clone(allPorts(old)) // plus the ports that this attempt has claimed
	if has == nil {
		has = sets.New[int32]()
	}
	if usesNodePorts(s) {
		if err := t.nodePorts(ctx, s, old, has); err != nil {
			return err
		}
	}
	if !usesHealthCheck(s) {
		return nil
	}
	if port := s.Spec.HealthCheckNodePort; port != 0 {
		if err := t.claimRequestedPort(ctx, port, has); err != nil {
			return internal(err, "failed to allocate requested HealthCheck NodePort %v: %w", port, err)
		}
		return nil
	}
	port, err := t.claimFreePort(ctx, has)
	if err != nil {
		return internal(err, "failed to allocate a HealthCheck NodePort %v: %w", port, err)
	}
	s.Spec.HealthCheckNodePort = port
	return nil
}

func (t *Transaction) nodePorts(ctx context.Context, s, old *corev1.Service, has sets.Set[int32]) error {
	path := specPath.Child("ports")
	for i, p := range s.Spec.Ports {
		if p.NodePort == 0 {
			continue
		}
		var refusal refusal
		if err := t.claimRequestedPort(ctx, p.NodePort, has); err != nil && !errors.As(err, &refusal) {
			return internal(err, "failed to allocate nodePort %d: %w", p.NodePort, err)
		} else if err != nil {
			return invalid(s, field.ErrorList{field.Invalid(path.Index(i).Child("nodePort"), p.NodePort, err.Error())})
		}
	}
	wants := s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.AllocateLoadBalancerNodePorts == nil || *s.Spec.AllocateLoadBalancerNodePorts
	if !wants {
		return nil
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.NodePort != 0 {
			continue
		}
		if old == nil {
			// DNS uses the same port for TCP and UDP; both get the same node port.
			if p.NodePort = sharedPort(s.Spec.Ports, p); p.NodePort != 0 {
				continue
			}
		}
		port, err := t.claimFreePort(ctx, has)
		if err != nil {
			return internal(err, "failed to allocate a nodePort: %w", err)
		}
		p.NodePort = port
	}
	return nil
}

// sharedPort returns the node port of the same port with another protocol.
func sharedPort(ports []corev1.ServicePort, p *corev1.ServicePort) int32 {
	for _, other := range ports {
		if other.Port == p.Port && other.Protocol != p.Protocol && other.NodePort != 0 {
			return other.NodePort
		}
	}
	return 0
}

const errPortTaken refusal = "provided port is already allocated"

func (t *Transaction) claimRequestedPort(ctx context.Context, port int32, has sets.Set[int32]) error {
	if has.Has(port) {
		return nil
	}
	if !t.cfg.NodePorts.contains(port) {
		return refusal(fmt.Sprintf("provided port is not in the valid range. The range of valid ports is %s", t.cfg.NodePorts))
	}
	has.Insert(port)
	if t.ports[port] {
		return nil // an earlier attempt has claimed it
	}
	if t.dryRun {
		return refuseTaken(ctx, t.cfg.Ports, port, errPortTaken)
	}
	err := tracked[int32]{t.cfg.Ports, t.ports, t.beginEntry}.Claim(ctx, port, t.owner)
	if errors.Is(err, ErrTaken) {
		return errPortTaken
	}
	return err
}

func (t *Transaction) claimFreePort(ctx context.Context, has sets.Set[int32]) (port int32, err error) {
	if t.dryRun {
		port, err = findFree(ctx, t.cfg.Ports, t.cfg.NodePorts.dynamic(), mapOf(has))
	} else {
		port, err = claimAny(ctx, tracked[int32]{t.cfg.Ports, t.ports, t.beginEntry}, t.owner, t.cfg.NodePorts.dynamic())
	}
	if err == nil {
		has.Insert(port)
	}
	return port, err
}

func mapOf(s sets.Set[int32]) map[int32]bool {
	out := make(map[int32]bool, len(s))
	for port := range s {
		out[port] = true
	}
	return out
}

// PortRange is a range of node ports. coreapi.ServiceNetwork replaces the zero value by DefaultNodePorts.
type PortRange struct {
	First, Last int32
}

// DefaultNodePorts is kube-apiserver's default.
var DefaultNodePorts = PortRange{30000, 32767}

// The lower part of a range is reserved for Services that request a port (KEP-3668).
const (
	minStaticPorts, maxStaticPorts = 16, 128
	staticPortShare                = 32
)

// ParsePortRange parses "first-last", "first+size" or one port, like kube-apiserver's flag.
func ParsePortRange(s string) (PortRange, error) {
	bad := func() (PortRange, error) {
		return PortRange{}, fmt.Errorf("%q is not a range of ports; write first-last, such as %s", s, DefaultNodePorts)
	}
	s = strings.TrimSpace(s)
	from, to, ranged := strings.Cut(s, "-")
	size := ""
	if !ranged {
		from, size, _ = strings.Cut(s, "+")
	}
	first, err := strconv.Atoi(from)
	if err != nil {
		return bad()
	}
	last := first
	switch {
	case ranged:
		last, err = strconv.Atoi(to)
	case size != "":
		var n int
		n, err = strconv.Atoi(size)
		last = first + n
	}
	if err != nil || first < 1 || last > 65535 || last < first {
		return bad()
	}
	return PortRange{int32(first), int32(last)}, nil
}

// String implements pflag.Value.
func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// Set implements pflag.Value.
func (r *PortRange) Set(s string) (err error) {
	*r, err = ParsePortRange(s)
	return err
}

// Type implements pflag.Value.
func (r *PortRange) Type() string { return "portRange" }

func (r PortRange) contains(port int32) bool { return port >= r.First && port <= r.Last }

// dynamic yields the ports in allocation order for Services without a requested port.
func (r PortRange) dynamic() iter.Seq[int32] {
	size := r.Last - r.First + 1
	static := int32(0)
	if size > minStaticPorts {
		static = min(max(size/staticPortShare, minStaticPorts), maxStaticPorts)
	}
	return func(yield func(int32) bool) {
		for _, band := range [][2]int32{{r.First + static, r.Last}, {r.First, r.First + static - 1}} {
			size := band[1] - band[0] + 1
			if size <= 0 {
				continue
			}
			start := rand.Int32N(size)
			for i := range size {
				if !yield(band[0] + (start+i)%size) {
					return
				}
			}
		}
	}
}
