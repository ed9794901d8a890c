package durability

import (
	"context"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// cluster is an external etcd.
type cluster struct {
	t       testing.TB
	configs []*embed.Config
	running []*embed.Etcd
}

func newCluster(t testing.TB, members int, change ...func(*embed.Config)) *cluster {
	t.Helper()
	c := &cluster{t: t, running: make([]*embed.Etcd, members)}
	var names []string
	for i := range members {
		config := embed.NewConfig()
		config.Name = string(rune('a' + i))
		config.Dir = filepath.Join(t.TempDir(), config.Name)
		config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
		peer := url.URL{Scheme: "http", Host: "127.0.0.1:" + freePort(t)}
		client := url.URL{Scheme: "http", Host: "127.0.0.1:" + freePort(t)}
		config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
		config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
		for _, f := range change {
			f(config)
		}
		names = append(names, config.Name+"="+config.AdvertisePeerUrls[0].String())
		c.configs = append(c.configs, config)
	}
	for _, config := range c.configs {
		config.InitialCluster = strings.Join(names, ",")
	}
	c.start(0, members)
	t.Cleanup(func() { c.stop(0, members) })
	return c
}

// start starts the members from one to before another, and waits until they serve.
func (c *cluster) start(from, to int) {
	c.t.Helper()
	for i := from; i < to; i++ {
		c.begin(i)
	}
	for i := from; i < to; i++ {
		c.ready(i)
	}
}

func (c *cluster) begin(i int) {
	c.t.Helper()
	server, err := embed.StartEtcd(c.configs[i])
	if err != nil {
		c.t.Fatal(err)
	}
	c.running[i] = server
}

func (c *cluster) ready(i int) {
	c.t.Helper()
	select {
	case <-c.running[i].Server.ReadyNotify():
	case <-time.After(patience):
		c.t.Fatal("etcd member did not start in time, want it ready")
	}
}

func (c *cluster) stop(from, to int) {
	for i := from; i < to; i++ {
		if c.running[i] != nil {
			c.running[i].Close()
			c.running[i] = nil
		}
	}
}

func (c *cluster) endpoints() []string {
	var out []string
	for _, config := range c.configs {
		out = append(out, config.ListenClientUrls[0].String())
	}
	return out
}

// etcdClient returns a client with direct access to etcd, as etcdctl has.
func etcdClient(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// relay is a TCP hop that can be made slow, and can break.
type relay struct {
	listener net.Listener
	to       string
	delay    atomic.Int64 // of each piece of data, in each direction
	mode     atomic.Int32 // the traffic that passes
	work     sync.WaitGroup

	mu    sync.Mutex // guards conns
	conns map[net.Conn]bool
}

// Modes of a relay. A connection over which something was held back is cut.
const (
	passes  = iota
	refuses // new connections are closed
	silent  // no data passes in either direction
	deaf    // no data passes back
)

func newRelay(t testing.TB, to string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: listener, to: to, conns: map[net.Conn]bool{}}
	r.work.Go(r.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		r.become(passes)
		r.cut()
		r.work.Wait()
	})
	return r
}

func (r *relay) address() string { return r.listener.Addr().String() }

func (r *relay) accept() {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", r.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		if r.mode.Load() == refuses {
			_, _ = in.Close(), out.Close()
			continue
		}
		r.mu.Lock()
		r.conns[in], r.conns[out] = true, true
		r.mu.Unlock()
		r.work.Go(func() { r.copy(in, out, true) })
		r.work.Go(func() { r.copy(out, in, false) })
	}
}

// become changes the mode.
func (r *relay) become(mode int32) {
	r.mode.Store(mode)
	if mode == refuses {
		r.cut()
	}
}

// held reports whether data in a direction does not pass.
func (r *relay) held(back bool) bool {
	mode := r.mode.Load()
	return mode == silent || mode == deaf && back
}

// copy delays each piece by the delay at its arrival.
func (r *relay) copy(to, from net.Conn, back bool) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			pause(context.Background(), time.Duration(r.delay.Load()))
			if r.held(back) {
				for r.held(back) {
					pause(context.Background(), lookAgain)
				}
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return // io.EOF too: both ends are closed
		}
	}
}

// cut breaks every connection that there is.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.Close()
	}
	clear(r.conns)
}
