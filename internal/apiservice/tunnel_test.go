package apiservice

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"portico.dev/internal/transport"
)

// Messages of the condition for failures of a tunnel, and of a backend behind one.
func TestTunnelFailureSetsConditionMessage(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "unix", Addr: &net.UnixAddr{Name: "/run/secret/socket", Net: "unix"}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for wanted, err := range map[string]error{
		"the tunnel to the cluster network cannot be reached: dial unix: connect: connection refused": &transport.TunnelError{
			Network: "cluster", Problem: transport.TunnelUnreachable, Err: refused,
		},
		"the tunnel to the cluster network did not connect in time: its server or its agents hang, or nothing answers at the backend's address: context deadline exceeded": &transport.TunnelError{
			Network: "cluster", Problem: transport.TunnelSilent, Err: context.DeadlineExceeded,
		},
		"dial tcp: connect: connection refused": &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
	} {
		f := failureFromError(&transport.Error{Op: transport.OpDial, Endpoint: "10.0.0.1:443", Err: fmt.Errorf("dial: %w", err)})
		if f.message != wanted || !f.unreachable || f.slow {
			t.Errorf("failure = %q (unreachable %t, slow %t), want %q (true, false)", f.message, f.unreachable, f.slow, wanted)
		}
	}
}

// The backend sends nothing, and the tunnel carries nothing for other backends either: the message names both as possible
// causes.
func TestHangBehindTunnelNamesBothCauses(t *testing.T) {
	for network, wanted := range map[string]string{
		"":        "connections are taken and nothing comes from them",
		"cluster": "nothing comes through the tunnel to the cluster network: its server or its agents hang, or the backend does",
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			h := newHangDetector(func() transport.Silence { return transport.Silence{Since: began, Broken: true, Tunnel: network} }, 0)
			var f *failure
			for f == nil && time.Since(began) < time.Minute {
				time.Sleep(hangCheckInterval)
				f = h.check(time.Now())
			}
			if f == nil || f.message != wanted || !f.silent {
				t.Errorf("failure = %+v, want a silent one with message %q", f, wanted)
			}
		})
	}
}

// A lost connection, with failing dials through the tunnel since then, is the tunnel's failure. A response is the backend's.
func TestLostConnectionIsAttributedToFailingTunnel(t *testing.T) {
	tunnel := failureFromError(&transport.Error{Op: transport.OpDial, Err: &transport.TunnelError{Network: "cluster", Err: io.EOF}})
	lost := failureFromError(&transport.Error{Op: transport.OpRoundTrip, Sent: true, Err: io.EOF})
	for name, c := range map[string]struct {
		other *failure
		kept  bool
	}{"a lost connection": {lost, true}, "a response": {failureFromStatus(503), false}} {
		for _, merged := range []*failure{tunnel.merge(c.other), c.other.merge(tunnel)} {
			if merged.tunnel != c.kept || merged.slow == c.kept {
				t.Errorf("%s: merged failure = %+v, want tunnel %t", name, merged, c.kept)
			}
		}
	}
}
