package allocation

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// allPorts are the ports on nodes that a Service has, with that of its health check.
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

// settlePorts gives every port that needs one a node port, and the health check of a load balancer another.
func (t *Transaction) settlePorts(ctx context.Context, s, old *corev1.Service) error {
	has := maps.Clone(allPorts(old)) // and what this attempt has got so far
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
		if err := t.thisPort(ctx, port, has); err != nil {
			return internal(err, "failed to allocate requested HealthCheck NodePort %v: %w", port, err)
		}
		return nil
	}
	port, err := t.anyPort(ctx, has)
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
		if err := t.thisPort(ctx, p.NodePort, has); err != nil && !errors.As(err, &refusal) {
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
			// DNS listens on one port by TCP and by UDP; both get the same number.
			if p.NodePort = sharedPort(s.Spec.Ports, p); p.NodePort != 0 {
				continue
			}
		}
		port, err := t.anyPort(ctx, has)
		if err != nil {
			return internal(err, "failed to allocate a nodePort: %w", err)
		}
		p.NodePort = port
	}
	return nil
}

// sharedPort is the node port of the same port by another protocol.
func sharedPort(ports []corev1.ServicePort, p *corev1.ServicePort) int32 {
	for _, other := range ports {
		if other.Port == p.Port && other.Protocol != p.Protocol && other.NodePort != 0 {
			return other.NodePort
		}
	}
	return 0
}

const errPortTaken refusal = "provided port is already allocated"

func (t *Transaction) thisPort(ctx context.Context, port int32, has sets.Set[int32]) error {
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
	err := tracked[int32]{t.cfg.Ports, t.ports, t.enter}.Claim(ctx, port, t.owner)
	if errors.Is(err, ErrTaken) {
		return errPortTaken
	}
	return err
}

func (t *Transaction) anyPort(ctx context.Context, has sets.Set[int32]) (port int32, err error) {
	if t.dryRun {
		port, err = freeOne(ctx, t.cfg.Ports, t.cfg.NodePorts.dynamic(), mapOf(has))
	} else {
		port, err = claimAny(ctx, tracked[int32]{t.cfg.Ports, t.ports, t.enter}, t.owner, t.cfg.NodePorts.dynamic())
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
