package allocation

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// memory simulates etcd for one type of claim.
type memory[T comparable] struct {
	mu    sync.Mutex // guards the fields below
	taken map[T]Held
	fault error // the error of a claim after it is stored
}

func newMemory[T comparable]() *memory[T] { return &memory[T]{taken: map[T]Held{}} }

func (m *memory[T]) Claim(_ context.Context, what T, owner Owner) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, is := m.taken[what]; is {
		return ErrTaken
	}
	m.taken[what] = Held{Owner: owner, ID: string(owner.UID)}
	return m.fault
}

func (m *memory[T]) Release(_ context.Context, what T, owner Owner) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.taken[what].Owner.NamespacedName == owner.NamespacedName {
		delete(m.taken, what)
	}
	return nil
}

func (m *memory[T]) ReleaseHeld(_ context.Context, what T, held Held) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.taken[what].ID == held.ID {
		delete(m.taken, what)
	}
	return nil
}

func (m *memory[T]) List(context.Context) (map[T]Held, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.taken), nil
}

// entries simulates etcd for the writes in flight of two processes, one of which has ended.
type entries struct {
	mu    sync.Mutex // guards the fields below
	made  int
	all   map[string]Entry
	dead  bool  // new entries belong to the ended process
	fault error // the error of End, which then keeps the entry
}

func (e *entries) Begin(_ context.Context, owner Owner) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.made++
	key := strconv.Itoa(e.made)
	e.all[key] = Entry{Key: key, Owner: owner.NamespacedName, Alive: !e.dead}
	return key, nil
}

func (e *entries) End(_ context.Context, key string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fault == nil {
		delete(e.all, key)
	}
	return e.fault
}

func (e *entries) All(context.Context) ([]Entry, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.all)), nil
}

// testEnv is Services with claims in memory.
type testEnv struct {
	t         *testing.T
	addresses *memory[netip.Addr]
	ports     *memory[int32]
	writes    *entries
	stored    map[string]*corev1.Service
	a         *Allocator
}

func newTestEnv(t *testing.T, ranges ...string) *testEnv {
	w := &testEnv{t: t, addresses: newMemory[netip.Addr](), ports: newMemory[int32](), writes: &entries{all: map[string]Entry{}}, stored: map[string]*corev1.Service{}}
	var parsed []netip.Prefix
	for _, r := range ranges {
		parsed = append(parsed, netip.MustParsePrefix(r))
	}
	w.a = New(Config{
		Ranges:   func(context.Context) ([]netip.Prefix, error) { return parsed, nil },
		Reserved: []netip.Addr{FirstAddress(parsed[0])}, NodePorts: PortRange{30000, 30009},
		Addresses: w.addresses, Ports: w.ports, InFlight: w.writes,
		Stored: func(_ context.Context, _, name string) (*corev1.Service, error) { return w.stored[name], nil },
		Logger: zaptest.NewLogger(t),
	})
	return w
}

// write stores a Service as the API server does. fail is the error of the storage after Settle.
func (w *testEnv) write(s *corev1.Service, fail error) (*corev1.Service, error) {
	ctx, t := w.a.Begin(w.t.Context())
	s = s.DeepCopy()
	s.Namespace, s.UID = "default", types.UID("uid of "+s.Name)
	err := t.Settle(ctx, s, w.stored[s.Name], false)
	if err == nil {
		err = fail
	}
	if err == nil {
		w.stored[s.Name] = s
	}
	t.End(ctx, s, err)
	return s, err
}

func (w *testEnv) remove(name string) {
	s := w.stored[name]
	delete(w.stored, name)
	w.a.Deleted(s)
}

// agree reports an error if the claims differ from the Services.
func (w *testEnv) agree() {
	w.t.Helper()
	addresses, ports := map[netip.Addr]string{}, map[int32]string{}
	for _, s := range w.stored {
		for _, a := range addressesOf(s) {
			if other := addresses[a]; other != "" {
				w.t.Errorf("%s and %s both have the address %s, want one holder", other, s.Name, a)
			}
			addresses[a] = s.Name
		}
		for p := range allPorts(s) {
			if other := ports[p]; other != "" {
				w.t.Errorf("%s and %s both have the port %d, want one holder", other, s.Name, p)
			}
			ports[p] = s.Name
		}
	}
	claimed := map[netip.Addr]string{}
	for a, h := range w.addresses.taken {
		claimed[a] = h.Owner.Name
	}
	if !maps.Equal(addresses, claimed) {
		w.t.Errorf("claimed addresses = %v, want %v", claimed, addresses)
	}
	claimedPorts := map[int32]string{}
	for p, h := range w.ports.taken {
		claimedPorts[p] = h.Owner.Name
	}
	if !maps.Equal(ports, claimedPorts) {
		w.t.Errorf("claimed ports = %v, want %v", claimedPorts, ports)
	}
}

func service(name string, change ...func(*corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
	for _, f := range change {
		f(&s.Spec)
	}
	return s
}

func kind(k corev1.ServiceType) func(*corev1.ServiceSpec) {
	return func(s *corev1.ServiceSpec) { s.Type = k }
}

func ip(ips ...string) func(*corev1.ServiceSpec) {
	return func(s *corev1.ServiceSpec) { s.ClusterIP, s.ClusterIPs = ips[0], ips }
}

func policy(p corev1.IPFamilyPolicy) func(*corev1.ServiceSpec) {
	return func(s *corev1.ServiceSpec) { s.IPFamilyPolicy = &p }
}

func families(f ...corev1.IPFamily) func(*corev1.ServiceSpec) {
	return func(s *corev1.ServiceSpec) { s.IPFamilies = f }
}

func local(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }

func external(s *corev1.ServiceSpec) {
	s.Type, s.ExternalName, s.Selector = corev1.ServiceTypeExternalName, "example.com", nil
}

func nodePort(ports ...int32) func(*corev1.ServiceSpec) {
	return func(s *corev1.ServiceSpec) {
		s.Type = corev1.ServiceTypeNodePort
		s.Ports = nil
		for i, p := range ports {
			s.Ports = append(s.Ports, corev1.ServicePort{Name: string(rune('a' + i)), Port: int32(80 + i), Protocol: corev1.ProtocolTCP, NodePort: p})
		}
	}
}

const (
	v4, v6        = "10.0.0.0/24", "fd00::/112"
	single        = corev1.IPFamilyPolicySingleStack
	prefer        = corev1.IPFamilyPolicyPreferDualStack
	require       = corev1.IPFamilyPolicyRequireDualStack
	ipv4, ipv6    = corev1.IPv4Protocol, corev1.IPv6Protocol
	allocatedHere = "*" // an address of the range
)

func TestNewServiceGetsAddressesAndPorts(t *testing.T) {
	for name, c := range map[string]struct {
		ranges   []string
		s        *corev1.Service
		ips      []string // allocatedHere: any
		families []corev1.IPFamily
		policy   corev1.IPFamilyPolicy
		refused  string
	}{
		"an ordinary one":                {[]string{v4}, service("a"), []string{"*"}, []corev1.IPFamily{ipv4}, single, ""},
		"a named address":                {[]string{v4}, service("a", ip("10.0.0.7")), []string{"10.0.0.7"}, []corev1.IPFamily{ipv4}, single, ""},
		"only clusterIP named":           {[]string{v4}, service("a", func(s *corev1.ServiceSpec) { s.ClusterIP = "10.0.0.7" }), []string{"10.0.0.7"}, []corev1.IPFamily{ipv4}, single, ""},
		"an address of another range":    {[]string{v4}, service("a", ip("10.1.0.7")), nil, nil, "", "failed to allocate IP 10.1.0.7: the provided IP (10.1.0.7) is not in the valid range. The range of valid IPs is 10.0.0.0/24"},
		"the network's own address":      {[]string{v4}, service("a", ip("10.0.0.0")), nil, nil, "", "is not in the valid range"},
		"the broadcast address":          {[]string{v4}, service("a", ip("10.0.0.255")), nil, nil, "", "is not in the valid range"},
		"kubernetes' address":            {[]string{v4}, service("a", ip("10.0.0.1")), nil, nil, "", "failed to allocate IP 10.0.0.1: provided IP is already allocated"},
		"kubernetes itself":              {[]string{v4}, service("kubernetes", ip("10.0.0.1")), []string{"10.0.0.1"}, []corev1.IPFamily{ipv4}, single, ""},
		"a taken address":                {[]string{v4}, service("a", ip("10.0.0.9")), nil, nil, "", "failed to allocate IP 10.0.0.9: provided IP is already allocated"},
		"no address":                     {[]string{v4}, service("a", ip("10.0.0.300")), nil, nil, "", "must be a valid IP address"},
		"headless":                       {[]string{v4}, service("a", ip("None")), []string{"None"}, []corev1.IPFamily{ipv4}, single, ""},
		"headless without selector":      {[]string{v4}, service("a", ip("None"), func(s *corev1.ServiceSpec) { s.Selector = nil }), []string{"None"}, []corev1.IPFamily{ipv4, ipv6}, require, ""},
		"None and an address":            {[]string{v4}, service("a", ip("None", "10.0.0.7")), nil, nil, "", "'None' must be the first and only value"},
		"an external name":               {[]string{v4}, service("a", external), nil, nil, "", ""},
		"wants both, has one":            {[]string{v4}, service("a", policy(require)), nil, nil, "", "this cluster is not configured for dual-stack services"},
		"would like both, has one":       {[]string{v4}, service("a", policy(prefer)), []string{"*"}, []corev1.IPFamily{ipv4}, prefer, ""},
		"would like both":                {[]string{v4, v6}, service("a", policy(prefer)), []string{"*", "*"}, []corev1.IPFamily{ipv4, ipv6}, prefer, ""},
		"wants both, IPv6 first":         {[]string{v4, v6}, service("a", policy(require), families(ipv6)), []string{"*", "*"}, []corev1.IPFamily{ipv6, ipv4}, require, ""},
		"one of two":                     {[]string{v6, v4}, service("a"), []string{"*"}, []corev1.IPFamily{ipv6}, single, ""},
		"a family that is not there":     {[]string{v4}, service("a", families(ipv6)), nil, nil, "", "not configured on this cluster"},
		"an address without its family":  {[]string{v4}, service("a", ip("fd00::7")), nil, nil, "", "IPv6 is not configured on this cluster"},
		"two addresses, single stack":    {[]string{v4, v6}, service("a", ip("10.0.0.7", "fd00::7"), policy(single)), nil, nil, "", "must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified"},
		"two addresses":                  {[]string{v4, v6}, service("a", ip("10.0.0.7", "fd00::7"), policy(prefer)), []string{"10.0.0.7", "fd00::7"}, []corev1.IPFamily{ipv4, ipv6}, prefer, ""},
		"two addresses of a family":      {[]string{v4, v6}, service("a", ip("10.0.0.7", "10.0.0.8"), policy(prefer)), nil, nil, "", "may specify no more than one IP for each IP family"},
		"families in the wrong order":    {[]string{v4, v6}, service("a", ip("10.0.0.7"), families(ipv6)), nil, nil, "", "expected an IPv6 value as indicated by `ipFamilies[0]`"},
		"clusterIPs without a clusterIP": {[]string{v4}, service("a", func(s *corev1.ServiceSpec) { s.ClusterIPs = []string{"10.0.0.7"} }), nil, nil, "", "must be empty when `clusterIP` is not specified"},
		"a policy that nobody knows":     {[]string{v4}, service("a", policy("Whatever")), nil, nil, "", "Unsupported value"},
		"a port of another range":        {[]string{v4}, service("a", nodePort(80)), nil, nil, "", "provided port is not in the valid range. The range of valid ports is 30000-30009"},
		"a taken port":                   {[]string{v4}, service("a", nodePort(30003)), nil, nil, "", "provided port is already allocated"},
		"more ports than there are":      {[]string{v4}, service("a", nodePort(make([]int32, 10)...)), nil, nil, "", "failed to allocate a nodePort: range is full"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv(t, c.ranges...)
			if _, err := w.write(service("before", ip("10.0.0.9"), nodePort(30003), policy(single)), nil); err != nil {
				t.Fatal(err)
			}
			s, err := w.write(c.s, nil)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Fatalf("create: error = %v, want an error that contains %q", err, c.refused)
				}
				w.agree()
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for i, got := range s.Spec.ClusterIPs {
				if i < len(c.ips) && c.ips[i] == allocatedHere {
					a := netip.MustParseAddr(got)
					if FamilyOf(a) != c.families[i] || !slices.ContainsFunc(c.ranges, func(r string) bool { return inRange(netip.MustParsePrefix(r), a) }) {
						t.Errorf("address %d = %s, want one of the family %v in %v", i, got, c.families[i], c.ranges)
					}
					c.ips[i] = got
				}
			}
			if !slices.Equal(s.Spec.ClusterIPs, c.ips) || len(c.ips) > 0 && s.Spec.ClusterIP != c.ips[0] {
				t.Errorf("clusterIP = %q, clusterIPs = %q, want %q", s.Spec.ClusterIP, s.Spec.ClusterIPs, c.ips)
			}
			if !slices.Equal(s.Spec.IPFamilies, c.families) {
				t.Errorf("ipFamilies = %v, want %v", s.Spec.IPFamilies, c.families)
			}
			if c.policy != "" && *s.Spec.IPFamilyPolicy != c.policy {
				t.Errorf("ipFamilyPolicy = %v, want %v", *s.Spec.IPFamilyPolicy, c.policy)
			}
			w.agree()
		})
	}
}

func TestServiceUpdateAllocatesAndReleases(t *testing.T) {
	balancer := kind(corev1.ServiceTypeLoadBalancer)
	clear := func(s *corev1.ServiceSpec) {
		s.ClusterIP, s.ClusterIPs, s.IPFamilies, s.IPFamilyPolicy = "", nil, nil, nil
	}
	for name, c := range map[string]struct {
		from    *corev1.Service
		change  func(*corev1.ServiceSpec)
		refused string
		check   func(now, before *corev1.ServiceSpec) bool
	}{
		"the manifest again, without addresses": {service("a"), clear, "", func(now, before *corev1.ServiceSpec) bool {
			return now.ClusterIP == before.ClusterIP && slices.Equal(now.ClusterIPs, before.ClusterIPs)
		}},
		"another address": {service("a", ip("10.0.0.66")), ip("10.0.0.77"), "may not change once set", nil},
		"to headless":     {service("a"), ip("None"), "may not change once set", nil},
		"to an external name": {service("a"), external, "", func(now, _ *corev1.ServiceSpec) bool {
			return now.ClusterIP == "" && now.ClusterIPs == nil && now.IPFamilies == nil && now.IPFamilyPolicy == nil
		}},
		"from an external name": {service("a", external), kind(corev1.ServiceTypeClusterIP), "", func(now, _ *corev1.ServiceSpec) bool {
			return now.ClusterIP != ""
		}},
		"to both families": {service("a"), policy(require), "", func(now, before *corev1.ServiceSpec) bool {
			return len(now.ClusterIPs) == 2 && now.ClusterIPs[0] == before.ClusterIP && len(now.IPFamilies) == 2
		}},
		"back to one family": {service("a", policy(require)), policy(single), "", func(now, before *corev1.ServiceSpec) bool {
			return len(now.ClusterIPs) == 1 && now.ClusterIPs[0] == before.ClusterIP && len(now.IPFamilies) == 1
		}},
		"a family taken away without a word": {service("a", policy(require)), func(s *corev1.ServiceSpec) {
			s.ClusterIPs = s.ClusterIPs[:1]
		}, "must be 'SingleStack' to release the secondary cluster IP", nil},
		"the families the other way round": {service("a", policy(require)), func(s *corev1.ServiceSpec) {
			s.ClusterIPs = []string{s.ClusterIPs[1], s.ClusterIPs[0]}
			s.ClusterIP, s.IPFamilies = s.ClusterIPs[0], []corev1.IPFamily{ipv6, ipv4}
		}, "may not change once set", nil},
		"to a node port": {service("a"), kind(corev1.ServiceTypeNodePort), "", func(now, _ *corev1.ServiceSpec) bool {
			return now.Ports[0].NodePort != 0
		}},
		"a node port no more": {service("a", nodePort(30001, 0)), kind(corev1.ServiceTypeClusterIP), "", func(now, _ *corev1.ServiceSpec) bool {
			return now.Ports[0].NodePort == 0 && now.Ports[1].NodePort == 0
		}},
		"another node port": {service("a", nodePort(30001)), nodePort(30002), "", func(now, _ *corev1.ServiceSpec) bool {
			return now.Ports[0].NodePort == 30002
		}},
		"a manifest without node ports": {service("a", nodePort(30001)), nodePort(0), "", func(now, _ *corev1.ServiceSpec) bool {
			return now.Ports[0].NodePort == 30001
		}},
		"one of two ports goes": {service("a", nodePort(30001, 30002)), nodePort(30001), "", func(now, _ *corev1.ServiceSpec) bool {
			return len(now.Ports) == 1
		}},
		"to a load balancer with a health check": {service("a"), func(s *corev1.ServiceSpec) { balancer(s); local(s) }, "", func(now, _ *corev1.ServiceSpec) bool {
			return now.HealthCheckNodePort != 0 && now.Ports[0].NodePort != 0 && now.HealthCheckNodePort != now.Ports[0].NodePort
		}},
		"a health check no more": {service("a", balancer, local), func(s *corev1.ServiceSpec) {
			s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
		}, "", func(now, _ *corev1.ServiceSpec) bool { return now.HealthCheckNodePort == 0 }},
		"another health check port": {service("a", balancer, local), func(s *corev1.ServiceSpec) {
			s.HealthCheckNodePort ^= 1 // another port of the range
		}, "field is immutable", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv(t, v4, v6)
			before, err := w.write(c.from, nil)
			if err != nil {
				t.Fatal(err)
			}
			// The first write fails in storage and must change nothing.
			next := before.DeepCopy()
			c.change(&next.Spec)
			if _, err := w.write(next, errors.New("etcd is away")); err == nil {
				t.Fatal("write with an error of the storage returned no error, want an error")
			}
			w.agree()
			now, err := w.write(next, nil)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("update: error = %v, want an error that contains %q", err, c.refused)
				}
			} else if err != nil {
				t.Error(err)
			} else if !c.check(&now.Spec, &before.Spec) {
				t.Errorf("spec after the update = %+v, want the changes of the case, before: %+v", now.Spec, before.Spec)
			}
			w.agree()
			w.remove("a")
			w.agree()
		})
	}
}

func TestNodePortIsSharedByTwoProtocols(t *testing.T) {
	w := newTestEnv(t, v4)
	s, err := w.write(service("dns", func(s *corev1.ServiceSpec) {
		s.Type = corev1.ServiceTypeNodePort
		s.Ports = []corev1.ServicePort{{Name: "u", Port: 53, Protocol: corev1.ProtocolUDP}, {Name: "t", Port: 53, Protocol: corev1.ProtocolTCP}}
	}), nil)
	if err != nil || s.Spec.Ports[0].NodePort == 0 || s.Spec.Ports[0].NodePort != s.Spec.Ports[1].NodePort {
		t.Errorf("write of one port with two protocols: %v, %+v, want the same node port in both", err, s.Spec.Ports)
	}
	w.agree()
}

func TestFullAddressRangeReturnsError(t *testing.T) {
	w := newTestEnv(t, "10.0.0.0/28")
	for i := range 13 { // 16 addresses without network, broadcast and first address
		if _, err := w.write(service(string(rune('a'+i))), nil); err != nil {
			t.Fatalf("write of the Service %d failed: %v, want no error", i, err)
		}
	}
	_, err := w.write(service("one-more"), nil)
	if err == nil || !strings.Contains(err.Error(), `failed to allocate a serviceIP for Service "one-more": range is full`) {
		t.Error(err)
	}
	w.remove("c")
	if _, err := w.write(service("one-more"), nil); err != nil {
		t.Error(err)
	}
	w.agree()
}

func TestDryRunClaimsNoAddressOrPort(t *testing.T) {
	w := newTestEnv(t, v4)
	ctx, tx := w.a.Begin(t.Context())
	s := service("a", nodePort(0))
	if err := tx.Settle(ctx, s, nil, true); err != nil || s.Spec.ClusterIP == "" || s.Spec.Ports[0].NodePort == 0 {
		t.Errorf("Settle of a dry run: %v, %+v, want a cluster IP, a node port and no error", err, s.Spec)
	}
	tx.End(ctx, s, nil)
	w.agree()
}

func TestLostWriteResponseKeepsClaims(t *testing.T) {
	w := newTestEnv(t, v4)
	ctx, tx := w.a.Begin(t.Context())
	s := service("a")
	s.Namespace = "default"
	if err := tx.Settle(ctx, s, nil, false); err != nil {
		t.Fatal(err)
	}
	w.stored["a"] = s // the Service was stored despite the error
	tx.End(ctx, nil, errors.New("etcdserver: request timed out"))
	w.agree()
}

// A request that ends before etcd answers releases its claims at once. The write can no longer succeed, because its entry is
// deleted.
func TestCanceledRequestReleasesClaims(t *testing.T) {
	w := newTestEnv(t, v4)
	ctx, cancel := context.WithCancel(t.Context())
	ctx, tx := w.a.Begin(ctx)
	if err := tx.Settle(ctx, service("a"), nil, false); err != nil {
		t.Fatal(err)
	}
	if Fence(ctx) == "" || w.writes.all[Fence(ctx)].Key == "" {
		t.Errorf("fence of the write = %q, entries %v, want the key of an entry", Fence(ctx), w.writes.all)
	}
	cancel()
	tx.End(ctx, nil, context.Canceled)
	if len(w.addresses.taken) != 0 || len(w.writes.all) != 0 {
		t.Errorf("after End: addresses %v, entries %v, want none", w.addresses.taken, w.writes.all)
	}
	w.agree()
}

// If the end of a write cannot be stored in etcd, its claims remain until the longest duration of a request. Repair then deletes
// the entry before the claims.
func TestUnrecordedWriteEndLeavesClaimsToRepair(t *testing.T) {
	w := newTestEnv(t, v4)
	ctx, tx := w.a.Begin(t.Context())
	if err := tx.Settle(ctx, service("a", nodePort(30001)), nil, false); err != nil {
		t.Fatal(err)
	}
	w.writes.fault = errors.New("etcdserver: no leader")
	tx.End(ctx, nil, errors.New("etcdserver: request timed out"))
	if len(w.addresses.taken) != 1 {
		t.Fatalf("claimed addresses = %v, want 1, because the write may have succeeded", w.addresses.taken)
	}
	w.writes.fault = nil
	now := time.Now()
	r := NewRepairer(w.a, w.list, w.touch, time.Minute)
	r.now = func() time.Time { return now }
	for _, after := range []time.Duration{0, 59 * time.Second} {
		now = now.Add(after)
		if err := r.Repair(t.Context()); err != nil || len(w.addresses.taken) != 1 || len(w.writes.all) != 1 {
			t.Fatalf("Repair after %s: %v, addresses %v, entries %v, want one address and one entry", after, err, w.addresses.taken, w.writes.all)
		}
		if abandoned, err := r.Abandoned(t.Context()); abandoned || err != nil {
			t.Errorf("Abandoned after %s = %v, %v, want false", after, abandoned, err)
		}
	}
	now = now.Add(time.Second)
	if err := r.Repair(t.Context()); err != nil || len(w.writes.all) != 0 {
		t.Fatalf("Repair after the longest duration: %v, entries %v, want no error and no entries", err, w.writes.all)
	}
	w.agree()
}

// One check releases the claims of an ended process, even for a Service with the same name. Claims of another process for an
// unfinished write are kept.
func TestClaimsOfEndedProcessAreReleasedByOneCheck(t *testing.T) {
	w := newTestEnv(t, v4)
	begin := func(name string, dead bool, port int32) *Transaction {
		w.writes.dead = dead
		ctx, tx := w.a.Begin(t.Context())
		s := service(name, nodePort(port))
		s.Namespace, s.UID = "default", types.UID("uid of "+name)
		if err := tx.Settle(ctx, s, nil, false); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	begin("dead", true, 30001)
	living := begin("living", false, 30002)
	if _, err := w.write(service("stored", nodePort(30003)), nil); err != nil {
		t.Fatal(err)
	}
	r := NewRepairer(w.a, w.list, w.touch, time.Hour)
	if abandoned, err := r.Abandoned(t.Context()); !abandoned || err != nil {
		t.Errorf("Abandoned before Repair = %v, %v, want true", abandoned, err)
	}
	if _, err := w.write(service("dead", nodePort(30001)), nil); err == nil {
		t.Fatal("write with the claimed port 30001 returned no error, want an error")
	}
	for range 3 {
		if err := r.Repair(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if abandoned, err := r.Abandoned(t.Context()); abandoned || err != nil {
		t.Errorf("Abandoned after Repair = %v, %v, want false", abandoned, err)
	}
	if len(w.addresses.taken) != 2 || len(w.ports.taken) != 2 || w.ports.taken[30002].Owner.Name != "living" {
		t.Errorf("claimed: %v and %v, want 2 addresses and 2 ports, 30002 with the owner living", w.addresses.taken, w.ports.taken)
	}
	w.writes.dead = false
	if _, err := w.write(service("dead", nodePort(30001)), nil); err != nil {
		t.Error(err)
	}
	living.End(t.Context(), nil, errors.New("refused"))
	w.agree()
}

// An unreadable claim is kept, independently of the port's holder. An unreadable entry counts as a write in flight until the
// longest duration of a request.
func TestUnreadableClaimsOfNewerReleaseAreKept(t *testing.T) {
	w := newTestEnv(t, v4)
	owner := Owner{types.NamespacedName{Namespace: "default", Name: "writing"}, "uid"}
	for port, held := range map[int32]Held{30001: {ID: "1", Unreadable: true}, 30002: {ID: "2", Owner: owner}} {
		w.ports.taken[port] = held
	}
	w.writes.all["newer"] = Entry{Key: "newer", Alive: true}
	r := NewRepairer(w.a, w.list, w.touch, time.Minute)
	now := time.Now()
	r.now = func() time.Time { return now }
	repaired := func(want ...int32) {
		t.Helper()
		if err := r.Repair(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := slices.Sorted(maps.Keys(w.ports.taken)); !slices.Equal(got, want) {
			t.Errorf("claimed ports after Repair = %v, want %v", got, want)
		}
	}
	repaired(30001, 30002)
	if _, err := w.write(service("other", nodePort(30001)), nil); err == nil {
		t.Error("write with the claimed port 30001 returned no error, want an error")
	}
	now = now.Add(2 * time.Minute)
	repaired(30001)
	if len(w.writes.all) != 0 {
		t.Errorf("entries after the longest duration = %v, want none", w.writes.all)
	}
}

func (w *testEnv) list(context.Context) ([]corev1.Service, error) {
	var all []corev1.Service
	for _, s := range w.stored {
		all = append(all, *s)
	}
	return all, nil
}

func (w *testEnv) touch(_ context.Context, s *corev1.Service) error {
	_, err := w.write(s, nil)
	return err
}

func TestRepairAllocatesMissingAddressesAndPorts(t *testing.T) {
	w := newTestEnv(t, v4)
	for _, s := range []*corev1.Service{
		service("never-had-one"), service("had-a-port", nodePort(0)), service("lost-its-claims", ip("10.0.0.50"), nodePort(30005)),
		service("from-kube-apiserver", func(s *corev1.ServiceSpec) { s.ClusterIP = "10.0.0.60" }),
		service("headless", ip("None")), service("elsewhere", external),
	} {
		s.Namespace, s.UID = "default", types.UID("uid of "+s.Name)
		w.stored[s.Name] = s
	}
	if err := NewRepairer(w.a, w.list, w.touch, 0).Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"never-had-one", "had-a-port", "from-kube-apiserver"} {
		if s := w.stored[name]; s.Spec.ClusterIP == "" || len(s.Spec.ClusterIPs) != 1 || len(s.Spec.IPFamilies) != 1 {
			t.Errorf("spec of %s after Repair = %+v, want one cluster IP and one family", name, s.Spec)
		}
	}
	if w.stored["had-a-port"].Spec.Ports[0].NodePort == 0 {
		t.Error("the Service had-a-port has no node port after Repair, want one")
	}
	w.agree()
}

func TestDynamicAddressesStartAboveStaticBand(t *testing.T) {
	for _, text := range []string{"10.0.0.0/24", "10.0.0.0/28", "10.0.0.8/29", "fd00::/120", "fd00::/64", "10.0.0.0/12"} {
		p := netip.MustParsePrefix(text)
		seen := map[netip.Addr]bool{}
		for a := range dynamicAddresses(p) {
			if seen[a] || !inRange(p, a) || a == FirstAddress(p) {
				t.Fatalf("dynamicAddresses(%s) returned %s, want distinct addresses of the range without the first", text, a)
			}
			seen[a] = true
			if len(seen) == 1000 {
				break
			}
		}
		if hosts := p.Addr().BitLen() - p.Bits(); hosts <= 8 {
			want := 1<<hosts - 2
			if p.Addr().Is4() {
				want--
			}
			if len(seen) != want {
				t.Errorf("dynamicAddresses(%s) returned %d addresses, want %d", text, len(seen), want)
			}
		}
	}
	low := netip.MustParseAddr("10.0.0.18") // the lower part is reserved for requested addresses
	for a := range dynamicAddresses(netip.MustParsePrefix("10.0.0.0/24")) {
		if a.Less(low) {
			t.Errorf("the first dynamic address = %s, want %s or above", a, low)
		}
		break
	}
}

func TestPortRanges(t *testing.T) {
	for text, want := range map[string]PortRange{"30000-32767": {30000, 32767}, "30000+100": {30000, 30100}, "30000": {30000, 30000}} {
		if got, err := ParsePortRange(text); err != nil || got != want {
			t.Errorf("ParsePortRange(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "5-4", "0-10", "1-70000", "30000-"} {
		if got, err := ParsePortRange(text); err == nil {
			t.Errorf("ParsePortRange(%q) = %v, want an error", text, got)
		}
	}
}
