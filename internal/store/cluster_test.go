package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.uber.org/zap"

	"portico.dev/internal/pki"
)

// machines are members of one cluster, each of which could run on a separate machine.
type machines struct {
	t         *testing.T
	authority *pki.Authority
	dir       string
}

func newMachines(t *testing.T) *machines {
	t.Helper()
	authority, err := pki.NewAuthority("etcd")
	if err != nil {
		t.Fatal(err)
	}
	return &machines{t: t, authority: authority, dir: t.TempDir()}
}

// config returns the configuration of the member on a machine. The member joins via the given store, if any.
func (m *machines) config(name string, via func() *Store) Config {
	m.t.Helper()
	dir := filepath.Join(m.dir, name)
	c := &Cluster{Name: name, CAFile: filepath.Join(dir, "ca.crt"), CertFile: filepath.Join(dir, "member.crt"), KeyFile: filepath.Join(dir, "member.key")}
	if known, err := ReadMembership(filepath.Join(dir, "etcd")); err != nil {
		m.t.Fatal(err)
	} else if known != nil {
		c.Address = known.Address
	} else {
		c.Address = freeAddress(m.t)
	}
	c.Listen = c.Address
	certPEM, keyPEM, err := m.authority.Issue(pki.Leaf{CommonName: name, IPs: []net.IP{net.ParseIP(hostOf(c.Address))}, Client: true, Server: true})
	if err != nil {
		m.t.Fatal(err)
	}
	for file, data := range map[string][]byte{c.CAFile: m.authority.PEM(), c.CertFile: certPEM, c.KeyFile: keyPEM} {
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(file, data, 0o600)); err != nil {
			m.t.Fatal(err)
		}
	}
	if via != nil {
		c.Join = func(ctx context.Context) (map[string][]string, error) {
			for {
				members, err := via().AddLearner(ctx, c.Name, c.Address)
				if err == nil || !errors.Is(err, ErrBusy) && !errors.Is(err, context.DeadlineExceeded) { // both become a 503, which is tried again
					return members, err
				}
				if !pause(ctx, 100*time.Millisecond) {
					return nil, ctx.Err()
				}
			}
		}
	}
	return Config{DataDir: filepath.Join(dir, "etcd"), Cluster: c, Logger: zap.NewNop()}
}

// begin starts a member without waiting for it.
func (m *machines) begin(cfg Config) *started {
	m.t.Helper()
	store, err := New(cfg)
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &started{t: m.t, Store: store, cancel: cancel, ended: make(chan error, 1)}
	go func() { s.ended <- store.Run(ctx) }()
	m.t.Cleanup(func() { _ = s.stop() })
	return s
}

// start starts a member and waits until it is ready.
func (m *machines) start(cfg Config) *started {
	m.t.Helper()
	s := m.begin(cfg)
	s.ready()
	return s
}

type started struct {
	*Store
	t      *testing.T
	cancel context.CancelFunc
	ended  chan error
}

func (s *started) ready() {
	s.t.Helper()
	select {
	case <-s.Ready():
	case err := <-s.ended:
		s.ended <- err
		s.t.Fatalf("the member ended before it was ready: %v, want Ready closed", err)
	case <-time.After(time.Minute):
		s.t.Fatal("the member is not ready within a minute, want Ready closed")
	}
}

func (s *started) stop() error {
	s.cancel()
	select {
	case err := <-s.ended:
		s.ended <- err
		return err
	case <-time.After(3 * closeTimeout):
		return errors.New("the member does not stop")
	}
}

func (s *started) put(key, value string) {
	s.t.Helper()
	if err := s.Put(context.Background(), key, []byte(value)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *started) wants(key, value string) {
	s.t.Helper()
	got, ok, err := s.Get(context.Background(), key)
	if err != nil || string(got) != value || ok != (value != "") {
		s.t.Fatalf("Get(%s) = %q (found %v, error %v), want %q", key, got, ok, err, value)
	}
}

// voters waits until the cluster has exactly the members with these names, and all members vote and respond.
func (s *started) voters(names ...string) {
	s.t.Helper()
	eventually(s.t, "members", func() error {
		members, err := s.Members(context.Background())
		if err != nil {
			return err
		}
		var have []string
		for _, m := range members {
			if m.Healthy && !m.Learner {
				have = append(have, m.Name)
			}
		}
		if len(members) != len(names) || !slices.Equal(have, names) {
			return fmt.Errorf("%+v", members)
		}
		return nil
	})
}

// changed repeats a change of members until etcd allows it.
func changed(t *testing.T, change func() error) {
	t.Helper()
	eventually(t, "change of members", func() error {
		err := change()
		if err != nil && !errors.Is(err, ErrBusy) {
			t.Fatal(err)
		}
		return err
	})
}

// The life of a cluster: it grows from a single member, with its data, to three that join at once. One dies and is replaced.
// Two die, and the third continues alone. It runs again as a single member.
func TestClusterGrowsReplacesMembersAndShrinks(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	single := m.config("a", nil)
	clustered := single.Cluster
	single.Cluster = nil
	s := m.start(single)
	s.put("of", "before")
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}

	first := single
	first.Cluster = clustered
	a := m.start(first)
	a.wants("of", "before")
	via := func() *Store { return a.Store }
	b, c := m.begin(m.config("b", via)), m.begin(m.config("c", via))
	b.ready()
	c.ready()
	a.voters("a", "b", "c")
	for _, s := range []*started{a, b, c} {
		s.wants("of", "before")
	}
	for _, s := range []*started{a, b, c} {
		s.put("of", s.cfg.Cluster.Name)
	}
	a.wants("of", "c")

	t.Log("a member stops, and comes back")
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	a.put("while", "b is away")
	b = m.start(m.config("b", nil))
	b.wants("while", "b is away")
	a.voters("a", "b", "c")

	t.Log("a member is lost, removed and replaced")
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	changed(t, func() error { return b.RemoveMember(context.Background(), "c") })
	lost := m.config("c", via)
	if err := os.RemoveAll(filepath.Join(m.dir, "c", "etcd")); err != nil {
		t.Fatal(err)
	}
	c = m.start(lost)
	c.wants("while", "b is away")
	a.voters("a", "b", "c")

	t.Log("a member that runs is removed: it ends")
	changed(t, func() error { return a.RemoveMember(context.Background(), "c") })
	select {
	case err := <-c.ended:
		c.ended <- err
		if !errors.Is(err, ErrRemoved) {
			t.Errorf("the removed member ended with %v, want %v", err, ErrRemoved)
		}
	case <-time.After(time.Minute):
		t.Fatal("a member runs a minute after its removal, want it to end")
	}

	t.Log("one of two is lost for good: there is no quorum, until the other one is reset")
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "loss", func() error {
		if a.Lost() == nil {
			return errors.New("it has a quorum")
		}
		return nil
	})
	if err := a.Put(context.Background(), "of", []byte("nobody")); err == nil {
		t.Fatal("a write without a quorum succeeded, want an error")
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	before, err := Reset(context.Background(), first)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(before, replacedMemberDir) || !HoldsEtcdIn(before) {
		t.Errorf("Reset() moved the files to %s, want %s with an etcd in it", before, replacedMemberDir)
	}
	a = m.start(first)
	a.voters("a")
	a.wants("while", "b is away")
	if answer, err := a.Client().KV.Get(context.Background(), "\x00"); err != nil || answer.Header.Revision < RevisionBump {
		t.Errorf("Get after the reset = %v, error %v, want a revision of at least %d: otherwise clients treat old data as new", answer, err, int64(RevisionBump))
	}
	a.put("of", "a alone")
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}

	t.Log("it runs as before")
	s = m.start(single)
	s.wants("of", "a alone")
	if s.LostChanged() != nil {
		t.Error("LostChanged() of a single member = a channel, want nil")
	}
}

// HoldsEtcdIn is like HoldsEtcd, for the directory of a member.
func HoldsEtcdIn(member string) bool {
	_, err := os.Stat(filepath.Join(member, "snap", "db"))
	return err == nil
}

// A client without a certificate opens connections and sends nothing.
func TestA52IdleConnectionsDoNotBlockMembers(t *testing.T) {
	before := peerHandshakeTimeout
	peerHandshakeTimeout = time.Hour // so that no connection ends by the timeout
	t.Cleanup(func() { peerHandshakeTimeout = before })
	m := newMachines(t)
	cfg := m.config("a", nil)
	m.start(cfg)
	for range peerConnections + 10 {
		idle, err := net.Dial("tcp", cfg.Cluster.Address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = idle.Close() })
	}
	certPEM, keyPEM, err := m.authority.Issue(pki.Leaf{CommonName: "b", IPs: []net.IP{net.ParseIP(hostOf(cfg.Cluster.Address))}, Client: true, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	options := pki.ClientOptions{Roots: m.authority.PEM()}
	if options.Certificate, err = pki.StaticKeyPair(certPEM, keyPEM); err != nil {
		t.Fatal(err)
	}
	config, err := pki.ClientConfig(options)
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos = []string{"http/1.1"}
	peer := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: time.Minute}
	resp, err := peer.Get(memberURL(cfg.Cluster.Address) + "/members")
	if err != nil {
		t.Fatalf("a member's request failed: %v, want no error", err)
	}
	_ = resp.Body.Close()
	config.NextProtos = nil
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{memberURL(cfg.Cluster.Address)}, TLS: config, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := etcd.Get(ctx, "x"); err != nil {
		t.Errorf("a read by etcd's client failed: %v, want no error", err)
	}
}

// E22: a client without a certificate of the members' authority reaches neither etcd's log nor its data.
func TestE22ClientsWithoutMemberCertificateAreRejected(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	cfg := m.config("a", nil)
	m.start(cfg)
	other, err := pki.NewAuthority("etcd")
	if err != nil {
		t.Fatal(err)
	}
	leaf := pki.Leaf{CommonName: "b", IPs: []net.IP{net.ParseIP(hostOf(cfg.Cluster.Address))}, Client: true, Server: true}
	server := leaf
	server.Client = false
	for name, c := range map[string]struct {
		authority *pki.Authority
		leaf      pki.Leaf
		reaches   bool
	}{
		"no certificate": {}, "another authority of that name": {other, leaf, false}, "no client's certificate": {m.authority, server, false}, "a member": {m.authority, leaf, true},
	} {
		t.Run(name, func(t *testing.T) {
			options := pki.ClientOptions{Roots: m.authority.PEM()}
			if c.authority != nil {
				certPEM, keyPEM, err := c.authority.Issue(c.leaf)
				if err != nil {
					t.Fatal(err)
				}
				if options.Certificate, err = pki.StaticKeyPair(certPEM, keyPEM); err != nil {
					t.Fatal(err)
				}
			}
			config, err := pki.ClientConfig(options)
			if err != nil {
				t.Fatal(err)
			}
			etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{memberURL(cfg.Cluster.Address)}, TLS: config, Logger: zap.NewNop()})
			if err != nil {
				t.Fatal(err)
			}
			defer etcd.Close()
			if !c.reaches { // etcd's client would try again until its context ends
				refusedByTLS(t, cfg.Cluster.Address, config, "h2")
				refusedByTLS(t, cfg.Cluster.Address, config, "http/1.1")
			} else if _, err := etcd.Get(within(t), "x"); err != nil {
				t.Errorf("a read by etcd's client failed: %v, want no error", err)
			}
			config.NextProtos = []string{"http/1.1"}
			peer := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: time.Minute}
			resp, err := peer.Get(memberURL(cfg.Cluster.Address) + "/members")
			if (err == nil) != c.reaches {
				t.Errorf("a member's request: error = %v, want success %t", err, c.reaches)
			}
			if err == nil {
				_ = resp.Body.Close()
			}
		})
	}
}

// refusedByTLS checks that a server ends the handshake of a client with an alert, before any request.
func refusedByTLS(t *testing.T, address string, config *tls.Config, protocol string) {
	t.Helper()
	config = config.Clone()
	config.NextProtos = []string{protocol}
	conn, err := (&tls.Dialer{Config: config}).DialContext(within(t), "tcp", address)
	if err == nil { // in TLS 1.3 the client finishes before the server has checked its certificate
		defer conn.Close()
		if err = conn.SetDeadline(time.Now().Add(time.Minute)); err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
	}
	if alert := tls.AlertError(0); !errors.As(err, &alert) && (err == nil || !strings.Contains(err.Error(), "remote error: tls: ")) {
		t.Errorf("a connection for %s: error = %v, want an alert of TLS", protocol, err)
	}
}

func TestInvalidJoinsAndResetsAreRejected(t *testing.T) {
	m := newMachines(t)
	single := m.config("a", func() *Store { t.Error("Join was called, want no request to the cluster"); return nil })
	joins := single.Cluster
	single.Cluster = nil
	if err := m.start(single).stop(); err != nil {
		t.Fatal(err)
	}
	with := single
	with.Cluster = joins
	s := m.begin(with)
	select {
	case err := <-s.ended:
		s.ended <- err
		if err == nil || !strings.Contains(err.Error(), "has an etcd that is not one of that cluster") {
			t.Errorf("start of a member with other data: error = %v, want one that contains %q", err, "has an etcd that is not one of that cluster")
		}
	case <-time.After(time.Minute):
		t.Fatal("a member with other data did not end within a minute, want an error")
	}
	if _, err := Reset(t.Context(), single); !errors.Is(err, ErrSingle) {
		t.Errorf("Reset() of a single member: error = %v, want %v", err, ErrSingle)
	}

	first := m.config("b", nil)
	running := m.start(first)
	if _, err := Reset(t.Context(), first); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("Reset() of a running member: error = %v, want one that contains %q", err, "in use by another process")
	}
	if err := running.RemoveMember(t.Context(), "b"); err == nil || !strings.Contains(err.Error(), "the only member") {
		t.Errorf("RemoveMember() of the only member: error = %v, want one that contains %q", err, "the only member")
	}
	if err := running.RemoveMember(t.Context(), "c"); !errors.Is(err, ErrNoMember) {
		t.Errorf("RemoveMember() of an unknown member: error = %v, want %v", err, ErrNoMember)
	}
	if err := running.PromoteMember(t.Context(), "b"); err == nil {
		t.Error("PromoteMember() of a voting member succeeded, want an error")
	}
	if err := running.stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(first.DataDir, memberDir)); err != nil {
		t.Fatal(err)
	}
	lost := m.begin(first)
	select {
	case err := <-lost.ended:
		lost.ended <- err
		if err == nil || !strings.Contains(err.Error(), "are missing") {
			t.Errorf("start of a member without files: error = %v, want one that contains %q", err, "are missing")
		}
	case <-time.After(time.Minute):
		t.Fatal("a member without files did not end within a minute, want an error instead of an empty cluster")
	}
}

// A learner that never starts blocks other learners only for a while. The same learner can begin again at once.
func TestMissingLearnerBlocksOtherLearnersTemporarily(t *testing.T) {
	m := newMachines(t)
	a := m.start(m.config("a", nil))
	gone, next := freeAddress(t), freeAddress(t)
	if _, err := a.AddLearner(t.Context(), "gone", gone); err != nil {
		t.Fatal(err)
	}
	changed(t, func() error { // a learner that begins to join again
		_, err := a.AddLearner(t.Context(), "gone", gone)
		return err
	})
	if _, err := a.AddLearner(t.Context(), "next", next); !errors.Is(err, ErrBusy) {
		t.Errorf("AddLearner() of a second learner at once: error = %v, want %v", err, ErrBusy)
	}
	found, err := a.List(t.Context(), joiningKeys)
	if err != nil {
		t.Fatal(err)
	}
	for key := range found {
		if err := a.Delete(t.Context(), key); err != nil { // as its lease does after joiningTime
			t.Fatal(err)
		}
	}
	members, err := a.AddLearner(t.Context(), "next", next)
	if err != nil || len(members) != 2 {
		t.Errorf("AddLearner() after joiningTime = %v, error %v, want 2 members", members, err)
	}
	if _, err := a.AddLearner(t.Context(), "other", a.cfg.Cluster.Address); !errors.Is(err, ErrVoter) {
		t.Errorf("AddLearner() at the address of a voting member: error = %v, want %v", err, ErrVoter)
	}
}

// A process whose member is cut off keeps its access to etcd: it uses the other members, and watches continue where they were.
func TestPartitionedMemberIsReplacedByOtherMembers(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	a := m.start(m.config("a", nil))
	via := func() *Store { return a.Store }
	b, c := m.begin(m.config("b", via)), m.begin(m.config("c", via))
	b.ready()
	c.ready()
	a.voters("a", "b", "c")
	seen := make(chan string, 100)
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	following.Go(func() {
		for r := range b.Client().Watch(ctx, b.OwnKey("seen/"), clientv3.WithPrefix(), clientv3.WithRev(1)) {
			for _, e := range r.Events {
				seen <- string(e.Kv.Value)
			}
		}
	})
	wants := func(value string) {
		t.Helper()
		select {
		case got := <-seen:
			if got != value {
				t.Fatalf("the watch has %q, want %q", got, value)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the watch has no event within a minute, want %q", value)
		}
	}
	a.put("seen/1", "before")
	wants("before")

	servers := []*etcdserver.EtcdServer{a.member.Load(), c.member.Load()}
	own := b.member.Load()
	for _, s := range servers {
		s.CutPeer(own.MemberID())
		own.CutPeer(s.MemberID())
	}
	began := time.Now()
	eventually(t, "a write while the own member is cut off", func() error {
		return b.Put(context.Background(), "seen/2", []byte("meanwhile"))
	})
	t.Logf("written after %s", time.Since(began).Round(time.Millisecond))
	wants("meanwhile")
	a.put("seen/3", "elsewhere")
	wants("elsewhere")
	if err := b.Lost(); err != nil {
		t.Errorf("Lost() = %v while two members answer, want nil", err)
	}

	for _, s := range servers {
		s.MendPeer(own.MemberID())
		own.MendPeer(s.MemberID())
	}
	a.voters("a", "b", "c")
	for _, s := range []*started{a, c} { // from here on the process needs its member
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "loss", func() error {
		if b.Lost() == nil {
			return errors.New("it has a quorum")
		}
		return nil
	})
	m.start(m.config("a", nil)).put("seen/4", "after")
	wants("after")
}
