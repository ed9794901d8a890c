package fleet

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/nodes/egress"
	"portico.dev/internal/transport"
)

// tunnels are the configurations of tunnels. Each connects to the network of the test and counts.
type tunnels struct {
	dials atomic.Int64
	lost  atomic.Bool

	mu    sync.Mutex
	names map[string]bool
	conns []net.Conn
}

// closeConnections closes what was dialled.
func (u *tunnels) closeConnections() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.conns {
		_ = c.Close()
	}
	u.conns = nil
}

func useTunnels(e *env, names ...string) *tunnels {
	all := &tunnels{names: map[string]bool{}}
	for _, name := range names {
		all.names[name] = true
	}
	e.fleet.config.Tunnel = func(name string) (*egress.Selector, error) {
		all.mu.Lock()
		defer all.mu.Unlock()
		if !all.names[name] {
			return nil, &os.PathError{Op: "open", Path: name + ".yaml", Err: os.ErrNotExist}
		}
		return egress.Use(func(ctx context.Context, address string) (net.Conn, error) {
			all.dials.Add(1)
			if all.lost.Load() {
				return nil, &transport.TunnelError{Network: name, Problem: transport.TunnelRefused, Err: errors.New("no agent")}
			}
			c, err := e.dial(ctx, address)
			if err == nil {
				all.mu.Lock()
				defer all.mu.Unlock()
				all.conns = append(all.conns, c)
			}
			return c, err
		}), nil
	}
	return all
}

func throughTunnel(name string) func(*v1alpha1.ClusterSpec) {
	return func(s *v1alpha1.ClusterSpec) { s.Server.Tunnel = name }
}

func TestClusterBehindTunnel(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		all := useTunnels(e, "edge")
		a := e.start("a")
		if all.dials.Load() != 0 {
			t.Fatal("a Cluster without a tunnel uses one")
		}
		e.change("a", throughTunnel("edge"))
		time.Sleep(time.Minute)
		if e.expect(own, "/clusters/a/api/v1/pods", 200, "a"); all.dials.Load() == 0 {
			t.Error("requests do not pass the tunnel")
		}
		if n := a.open.Load(); n > 4 {
			t.Errorf("%d open connections after the change, want those through the tunnel", n)
		}
		all.lost.Store(true)
		all.closeConnections()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := e.condition("a", v1alpha1.ConditionAvailable); got.Status != metav1.ConditionFalse || got.Reason != "TunnelRefused" {
			t.Errorf("condition without the tunnel = %+v, want False and TunnelRefused", got)
		}
		e.expect(own, "/clusters/a/api/v1/pods", 503, "the tunnel to the edge network refused to connect")
		all.lost.Store(false)
		time.Sleep(10 * time.Second)
		e.expect(own, "/clusters/a/api/v1/pods", 200, "a")
		e.mu.Lock()
		delete(e.listeners, a.address)
		e.mu.Unlock()
		all.closeConnections()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := e.condition("a", v1alpha1.ConditionAvailable); got.Status != metav1.ConditionFalse || got.Reason != v1alpha1.ReasonNoReadyAPIServer {
			t.Errorf("condition without the API server = %+v, want False and %s", got, v1alpha1.ReasonNoReadyAPIServer)
		}
	})
}

func TestMissingTunnelIsReadAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		all := useTunnels(e)
		e.start("a")
		e.change("a", throughTunnel("edge"))
		e.expect(own, "/clusters/a/api/v1/pods", 503, `tunnel \"edge\"`)
		if got := e.condition("a", v1alpha1.ConditionAvailable); got.Status != metav1.ConditionFalse || !strings.Contains(got.Message, `tunnel "edge"`) {
			t.Errorf("condition = %+v, want False and the name of the tunnel", got)
		}
		all.mu.Lock()
		all.names["edge"] = true
		all.mu.Unlock()
		time.Sleep(tunnelRetry + 10*time.Second)
		e.expect(own, "/clusters/a/api/v1/pods", 200, "a")
	})
}
