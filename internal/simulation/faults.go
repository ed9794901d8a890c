package simulation

import (
	"slices"
	"testing/synctest"
	"time"

	"portico.dev/internal/simulation/network"
	"portico.dev/internal/tools/drill/faulty"
)

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
		all = append(all, action{
			name: "backend-" + f.name, weight: 2,
			begin: func(h *history, s step) {
				b := h.backend(s.target)
				h.disturb(b.name)
				h.check(b.server.SetFault(f.fault))
			},
			end: func(h *history, s step) {
				b := h.backend(s.target)
				h.disturb(b.name)
				h.check(b.server.SetFault(faulty.Healthy))
			},
		})
	}
	return append(all, action{
		name: "backend-freeze", weight: 3,
		begin: func(h *history, s step) { b := h.backend(s.target); h.disturb(b.name); b.host.Freeze() },
		end:   func(h *history, s step) { b := h.backend(s.target); h.disturb(b.name); b.host.Thaw() },
	})
}

// endpoints returns the hosts of a link: a front door, and a backend, etcd or another front door.
func (h *history) endpoints(s step) (from *front, to *network.Host) {
	from = h.front(s.target)
	others := []*network.Host{h.etcd.host}
	for _, b := range h.backends {
		others = append(others, b.host)
	}
	for _, f := range h.fronts {
		if f != from {
			others = append(others, f.host)
		}
	}
	return from, others[s.other%len(others)]
}

// disturbLink records that the connections of a front door are disturbed.
func (h *history) disturbLink(from *front, to *network.Host) {
	if to == h.etcd.host {
		h.disturb(from.name)
		h.disturb("etcd")
	}
	for _, f := range h.fronts {
		if f.host == to {
			h.disturb(f.name)
		}
	}
	for _, b := range h.backends {
		if b.host == to {
			h.disturb(b.name)
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
			}{{out, from.host, to}, {in, to, from.host}} {
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
			h.net.Reset(from.host, to)
		}, end: func(*history, step) {}},
	}
}

// crashes end and restart servers.
func crashes() []action {
	return []action{
		{name: "front-crash", weight: 2, begin: func(h *history, s step) {
			f := h.front(s.target)
			h.disturb(f.name)
			f.crash()
		}, end: restartFront},
		{name: "front-stop", weight: 1, begin: func(h *history, s step) {
			f := h.front(s.target)
			h.disturb(f.name)
			h.check(f.stop())
		}, end: restartFront},
		{name: "etcd-crash", weight: 3, begin: func(h *history, _ step) {
			if h.etcd.server == nil {
				return
			}
			h.disturb("etcd")
			synctest.Wait()
			h.check(h.etcd.crash())
		}, end: restartEtcd},
		{name: "etcd-freeze", weight: 2,
			begin: func(h *history, _ step) { h.disturb("etcd"); h.etcd.host.Freeze() },
			end:   func(h *history, _ step) { h.disturb("etcd"); h.etcd.host.Thaw() },
		},
	}
}

// restartFront starts a front door that has ended. It does not wait, because etcd may be unavailable.
func restartFront(h *history, s step) {
	f := h.front(s.target)
	if f.server == nil {
		h.disturb(f.name)
		h.check(f.launch(h.world.ctx))
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
