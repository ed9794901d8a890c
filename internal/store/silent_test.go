package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/metadata"
)

// freezer forwards connections until it is frozen. A frozen freezer accepts connections and forwards no byte in either
// direction, like a stopped process.
type freezer struct {
	listener net.Listener
	target   string

	mu     sync.Mutex // guards frozen
	frozen chan struct{}
}

func newFreezer(t *testing.T, target string) *freezer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &freezer{listener: l, target: target}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { f.pass(ctx, conn) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		wg.Wait()
	})
	return f
}

func (f *freezer) url() string { return "http://" + f.listener.Addr().String() }

func (f *freezer) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frozen = make(chan struct{})
}

func (f *freezer) thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.frozen)
	f.frozen = nil
}

// wait returns when bytes may pass. It returns false if the context ends first.
func (f *freezer) wait(ctx context.Context) bool {
	f.mu.Lock()
	frozen := f.frozen
	f.mu.Unlock()
	if frozen == nil {
		return ctx.Err() == nil
	}
	select {
	case <-frozen:
		return true
	case <-ctx.Done():
		return false
	}
}

func (f *freezer) pass(ctx context.Context, client net.Conn) {
	defer client.Close()
	if !f.wait(ctx) {
		return
	}
	server, err := net.Dial("tcp", f.target)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })()
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		wg.Go(func() {
			defer way[0].Close()
			defer way[1].Close()
			buffer := make([]byte, 32<<10)
			for {
				n, err := way[0].Read(buffer)
				if !f.wait(ctx) {
					return
				}
				if _, failed := way[1].Write(buffer[:n]); err != nil || failed != nil {
					return
				}
			}
		})
	}
	wg.Wait()
}

// threeMembers starts an etcd of three members, each reached by clients and by the other members through freezers.
func threeMembers(t *testing.T) (servers []string, freezers [][2]*freezer) {
	t.Helper()
	configs := make([]*embed.Config, 3)
	cluster := ""
	for i := range configs {
		c := asFlagsMakeIt(Config{DataDir: filepath.Join(t.TempDir(), "data"), Logger: zap.NewNop()})
		c.Name = fmt.Sprintf("m%d", i)
		clients, peers := url.URL{Scheme: "http", Host: freeAddress(t)}, url.URL{Scheme: "http", Host: freeAddress(t)}
		both := [2]*freezer{newFreezer(t, clients.Host), newFreezer(t, peers.Host)}
		shown, err := url.Parse(both[1].url())
		if err != nil {
			t.Fatal(err)
		}
		c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{clients}, []url.URL{clients}
		c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peers}, []url.URL{*shown}
		if i > 0 {
			cluster += ","
		}
		cluster += c.Name + "=" + both[1].url()
		configs[i], freezers, servers = c, append(freezers, both), append(servers, both[0].url())
	}
	for _, c := range configs {
		c.InitialCluster, c.ClusterState, c.InitialClusterToken = cluster, embed.ClusterStateFlagNew, t.Name()
		server, err := embed.StartEtcd(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
	}
	return servers, freezers
}

// One frozen member of three is detected within seconds: calls and watches use the other members.
func TestFrozenMemberIsReplacedByOtherMembers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	servers, freezers := threeMembers(t)
	core, logged := observer.New(zap.WarnLevel)
	s, _ := run(t, Config{Servers: servers, Logger: zap.New(core)})
	const limit = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	client := s.Client().Client

	// Watches on separate streams, so that each member has some.
	const streams = 9
	var watches [streams]struct {
		events clientv3.WatchChan
		next   int64 // revision
	}
	watch := func(i int) {
		own := metadata.AppendToOutgoingContext(ctx, "stream", fmt.Sprint(i)) // etcd's client opens a stream for each metadata value
		watches[i].events = client.Watch(clientv3.WithRequireLeader(own), "watched", clientv3.WithRev(watches[i].next))
	}
	for i := range watches {
		watch(i)
	}
	put := func(value string) {
		t.Helper()
		for deadline := time.Now().Add(limit); ; {
			bounded, cancel := context.WithTimeout(ctx, time.Second)
			_, err := client.Put(bounded, "watched", value)
			cancel()
			if err == nil {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("no write succeeds within %s: %v, want no error", limit, err)
			}
		}
	}
	seen := func(value string) {
		t.Helper()
		deadline := time.After(limit)
		for i := range watches {
			for got := ""; got != value; {
				select {
				case batch, open := <-watches[i].events:
					if errors.Is(batch.Err(), rpctypes.ErrNoLeader) { // the election took long; clients watch again
						watch(i)
						continue
					}
					if !open || batch.Err() != nil {
						t.Fatalf("watch %d ended with %v, want it open", i, batch.Err())
					}
					for _, e := range batch.Events {
						got, watches[i].next = string(e.Kv.Value), e.Kv.ModRevision+1
					}
				case <-deadline:
					t.Fatalf("watch %d has no event after %s, want %q", i, limit, value)
				}
			}
		}
	}
	put("before")
	seen("before")
	for member, both := range freezers {
		for _, f := range both {
			f.freeze()
		}
		began := time.Now()
		put(fmt.Sprint("frozen ", member))
		wrote := time.Since(began)
		seen(fmt.Sprint("frozen ", member))
		// The watch of the members detects it, even if no stream and no write was on its way to the member.
		address := freezers[member][0].listener.Addr().String()
		eventually(t, "the frozen member is reported as silent", func() error {
			if logged.FilterMessage("etcd member does not respond; using the other members").FilterField(zap.String("member", address)).Len() == 0 {
				return fmt.Errorf("member %d is not in %v", member, logged.All())
			}
			return nil
		})
		t.Logf("member %d frozen: a write after %s, all watches after %s", member, wrote.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		for _, f := range both {
			f.thaw()
		}
		// The member is used again before the next one is frozen.
		for deadline := time.Now().Add(time.Minute); ; {
			bounded, cancel := context.WithTimeout(ctx, time.Second)
			_, err := client.Status(bounded, servers[member])
			cancel()
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("Status() of member %d a minute after it was thawed: error = %v, want no error", member, err)
			}
		}
	}
}

// Without an answer of any member no member is left out, and the connections stay open.
func TestConnectionsStayOpenIfNoMemberAnswers(t *testing.T) {
	began := time.Now()
	w := newMemberWatch([]string{"http://a:1", "http://b:1", "http://c:1"}, newQuorum(zap.NewNop()), zap.NewNop())
	at := func(a, b, c, now time.Duration) string {
		w.answered = map[string]time.Time{"a:1": began.Add(a), "b:1": began.Add(b), "c:1": began.Add(c)}
		w.judge(began.Add(now))
		text := ""
		for _, address := range w.members {
			if w.isSilent(address) {
				text += address[:1]
			}
		}
		return text
	}
	for _, test := range []struct {
		a, b, c, now time.Duration
		want         string
	}{
		{0, 0, 0, time.Second, ""},
		{0, 2 * time.Second, 2 * time.Second, 2 * time.Second, ""},
		{0, 3 * time.Second, 3 * time.Second, 3 * time.Second, "a"},
		{0, 0, 3 * time.Second, 3 * time.Second, "ab"},
		{0, 3 * time.Second, 3 * time.Second, 7 * time.Second, ""}, // none answers
		{8 * time.Second, 8 * time.Second, 8 * time.Second, 8 * time.Second, ""},
	} {
		if got := at(test.a, test.b, test.c, test.now); got != test.want {
			t.Errorf("%+v: silent members = %q, want %q", test, got, test.want)
		}
	}
	client, server := net.Pipe()
	defer server.Close()
	c := &memberConn{Conn: client, watch: w, at: "a:1"}
	w.conns["a:1"] = map[*memberConn]struct{}{c: {}}
	at(0, 3*time.Second, 3*time.Second, 3*time.Second)
	if _, err := io.ReadAll(server); err != nil || len(w.conns["a:1"]) > 0 {
		t.Errorf("%d connections to the silent member are open, error %v, want 0 and no error", len(w.conns["a:1"]), err)
	}
	if _, err := w.dial(t.Context(), "a:1"); err == nil {
		t.Error("dial() of a silent member succeeded, want an error")
	}
	at(0, 3*time.Second, 12*time.Second, 12*time.Second)
	if got := w.answers(began.Add(12 * time.Second)); !maps.Equal(got, map[string]bool{"a:1": false, "b:1": true, "c:1": true}) {
		t.Errorf("answers() = %v, want b:1 and c:1", got)
	}
	for _, servers := range [][]string{{"http://a:1"}, {"unix:///a", "unix:///b"}} {
		if hasChoice(servers) {
			t.Errorf("hasChoice(%q) = true, want false", servers)
		}
	}
}
