package simulation

import (
	"context"
	"slices"
	"testing/synctest"
	"time"

	"portico.dev/internal/simulation/network"
	"portico.dev/internal/tools/drill/faulty"
)

// connectionsOf returns the name under which faults are recorded that end connections of a server. Other faults disturb new
// connections, or delay what existing ones transfer.
func connectionsOf(name string) string { return "connections of " + name }

// cut records that a fault of a server has begun or ended that ends its connections.
func (h *history) cut(name string) {
	h.disturb(name)
	h.disturb(connectionsOf(name))
}

// cutting are the faults that end connections of an extension server.
var cutting = []faulty.Fault{
	faulty.Refuse, faulty.ResetMidBody, faulty.ExpiredCertificate, faulty.WrongAuthority, faulty.WrongName, faulty.OtherDiscovery,
}

// backendFaults are the failures of an extension server. A later fault of the same server replaces an earlier one.
func backendFaults() []action {
	var all []action
	for _, f := range []struct {
		name  string
		fault faulty.Fault
	}{
		{"refuse", faulty.Refuse}, {"blackhole", faulty.Blackhole}, {"hang", faulty.Hang}, {"slow-drip", faulty.SlowDrip},
		{"reset-mid-body", faulty.ResetMidBody}, {"goaway-storm", faulty.GoAwayStorm}, {"expired-certificate", faulty.ExpiredCertificate},
		{"wrong-authority", faulty.WrongAuthority}, {"wrong-name", faulty.WrongName}, {"garbage-discovery", faulty.GarbageDiscovery},
		{"vanishing-discovery", faulty.VanishingDiscovery}, {"slow", faulty.Slow}, {"errors", faulty.Errors},
		{"other-discovery", faulty.OtherDiscovery}, {"trickle", faulty.Trickle}, {"no-initial-events", faulty.NoInitialEvents},
	} {
		set := func(h *history, s step, fault faulty.Fault) {
			b := h.backend(s.target)
			if h.disturb(b.name); slices.Contains(cutting, f.fault) {
				h.cut(b.name)
			}
			h.check(b.server.SetFault(fault))
		}
		all = append(all, action{
			name: "backend-" + f.name, weight: 2,
			begin: func(h *history, s step) { set(h, s, f.fault) },
			end:   func(h *history, s step) { set(h, s, faulty.Healthy) },
		})
	}
	return append(all, action{
		name: "backend-freeze", weight: 3,
		begin: func(h *history, s step) { b := h.backend(s.target); h.disturb(b.name); b.host.Freeze() },
		end:   func(h *history, s step) { b := h.backend(s.target); h.disturb(b.name); b.host.Thaw() },
	})
}

// endpoints returns the hosts of a link: a front door, and a backend, etcd or another front door. With gateways, the links are those of
// a gateway, with a backend or the front door, and of the front door with etcd.
func (h *history) endpoints(s step) (from, to *network.Host) {
	f := h.front(s.target)
	from = f.host
	others := []*network.Host{h.etcd.host}
	for _, b := range h.backends {
		others = append(others, b.host)
	}
	for _, o := range h.fronts {
		if o != f || len(h.gateways) > 0 {
			others = append(others, o.host)
		}
	}
	to = others[s.other%len(others)]
	if len(h.gateways) > 0 && to != h.etcd.host {
		from = h.gateway(s.target).host
	}
	return from, to
}

// disturbLink records that the connections between two hosts are disturbed.
func (h *history) disturbLink(from, to *network.Host) {
	if to == h.etcd.host {
		h.disturbHost(from)
		h.disturb("etcd")
	}
	if len(h.gateways) > 0 && to == h.fronts[0].host {
		h.disturbHost(from) // and not the front door, whose other requests need no gateway
		return
	}
	h.disturbHost(to)
}

// disturbHost records that a front door, a gateway or a backend is disturbed.
func (h *history) disturbHost(host *network.Host) {
	for _, f := range h.fronts {
		if f.host == host {
			h.cut(f.name)
		}
	}
	for _, g := range h.gateways {
		if g.host == host {
			h.cut(g.name)
		}
	}
	for _, b := range h.backends {
		if b.host == host {
			h.cut(b.name)
		}
	}
}

// networkFaults are failures between a front door and a backend, etcd or another front door.
func networkFaults() []action {
	link := func(name string, weight int, change func(*network.Link), out, in bool) action {
		set := func(h *history, s step, apply bool) {
			from, to := h.endpoints(s)
			h.disturbLink(from, to)
			for _, d := range []struct {
				concerned bool
				from, to  *network.Host
			}{{out, from, to}, {in, to, from}} {
				if !d.concerned {
					continue
				}
				l := network.Link{Latency: latency}
				if apply {
					change(&l)
				}
				h.net.SetLink(d.from, d.to, l)
			}
		}
		return action{
			name: name, weight: weight,
			begin: func(h *history, s step) { set(h, s, true) },
			end:   func(h *history, s step) { set(h, s, false) },
		}
	}
	block := func(l *network.Link) { l.Blocked = true }
	return []action{
		link("network-block", 6, block, true, true),
		link("network-block-out", 4, block, true, false),
		link("network-block-in", 4, block, false, true),
		link("network-lossy", 4, func(l *network.Link) { l.Loss, l.Jitter = 0.2, 5*time.Millisecond }, true, true),
		link("network-slow", 4, func(l *network.Link) { l.Latency, l.Jitter = 150*time.Millisecond, 100*time.Millisecond }, true, true),
		{name: "network-reset", weight: 6, begin: func(h *history, s step) {
			from, to := h.endpoints(s)
			h.disturbLink(from, to)
			h.net.Reset(from, to)
		}, end: func(*history, step) {}},
	}
}

// crashes end and restart servers.
func crashes() []action {
	return []action{
		{name: "front-crash", weight: 2, begin: func(h *history, s step) {
			p := h.program(s)
			h.cut(p.title())
			p.crash()
		}, end: restartProgram},
		{name: "front-stop", weight: 1, begin: func(h *history, s step) {
			p := h.program(s)
			h.cut(p.title())
			began := time.Now()
			h.check(p.stop())
			h.postpone(time.Since(began)) // upgraded connections may use the grace period
		}, end: restartProgram},
		{name: "etcd-crash", weight: 3, begin: func(h *history, _ step) {
			if h.etcd.server == nil {
				return
			}
			h.disturb("etcd")
			synctest.Wait()
			h.check(h.etcd.crash())
		}, end: restartEtcd},
		{name: "etcd-freeze", weight: 2,
			begin: func(h *history, s step) { name, host := h.freezable(s); h.disturb(name); host.Freeze() },
			end:   func(h *history, s step) { name, host := h.freezable(s); h.disturb(name); host.Thaw() },
		},
	}
}

// program is a front door or a gateway, which can be ended and started.
type program interface {
	title() string
	running() bool
	launch(context.Context) error
	stop() error
	crash()
}

// program returns a front door, or in a world with gateways one of all front doors and gateways.
func (h *history) program(s step) program {
	var all []program
	for _, f := range h.fronts {
		all = append(all, f)
	}
	for _, g := range h.gateways {
		all = append(all, g)
	}
	return all[s.target%len(all)]
}

// freezable returns etcd, or a gateway in half of the steps of a world with gateways.
func (h *history) freezable(s step) (name string, host *network.Host) {
	if len(h.gateways) == 0 || s.target%2 == 0 {
		return "etcd", h.etcd.host
	}
	g := h.gateway(s.target / 2)
	h.log.addf("      the step concerns %s", g.name)
	return g.name, g.host
}

// restartProgram starts a front door or a gateway that has ended. It does not wait, because etcd may be unavailable.
func restartProgram(h *history, s step) {
	p := h.program(s)
	if !p.running() {
		h.disturb(p.title())
		h.check(p.launch(h.world.ctx))
	}
}

func restartEtcd(h *history, _ step) {
	if h.etcd.server == nil {
		h.disturb("etcd")
		h.etcd.host.Boot()
		h.check(h.etcd.start(h.world.ctx))
	}
}

// mend ends every fault.
func (h *history) mend() {
	for _, s := range slices.Backward(h.active) {
		actionNamed(s.action).end(h, s)
	}
	h.active = nil
	for _, b := range h.backends {
		h.check(b.server.SetFault(faulty.Healthy))
	}
	h.net.Heal()
}
