package store

import (
	"bytes"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// asFlagsMakeIt returns the configuration of the same member for etcd's own program.
func asFlagsMakeIt(cfg Config) *embed.Config {
	c := embed.NewConfig()
	c.Name, c.Dir = memberName, cfg.DataDir
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(etcdLogger(cfg.Logger))
	peer, _ := url.Parse(peerURL) // a constant that parses
	c.AdvertisePeerUrls = []url.URL{*peer}
	c.InitialCluster = c.InitialClusterFromName(memberName)
	c.ListenPeerUrls, c.ListenClientUrls, c.AdvertiseClientUrls = nil, nil, nil
	if cfg.UnixSocket != "" {
		socket := url.URL{Scheme: "unix", Path: cfg.UnixSocket}
		c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{socket}, []url.URL{socket}
	}
	c.EnableGRPCGateway = false
	c.TickMs, c.ElectionMs = tickMilliseconds, tickMilliseconds*electionTicks
	c.PreVote = false
	c.SnapshotCatchUpEntries = catchUpEntries
	c.QuotaBackendBytes = cfg.QuotaBytes
	c.WatchProgressNotifyInterval = progressInterval
	return c
}

// Settings that the store does not choose equal the defaults of etcd's own program, which are read from a server that this
// program started.
func TestMemberSettingsMatchEtcdDefaults(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for name, cfg := range map[string]Config{
		"with a socket":    {QuotaBytes: 1 << 30, UnixSocket: filepath.Join(t.TempDir(), "s")},
		"without a socket": {QuotaBytes: DefaultQuotaBytes},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.DataDir, cfg.Logger = t.TempDir(), zap.NewNop()
			// Of a new directory, and of one that has a log.
			for _, state := range []string{"new", "old"} {
				ours := embeddedConfig(cfg)
				server, err := embed.StartEtcd(asFlagsMakeIt(cfg))
				if err != nil {
					t.Fatal(err)
				}
				theirs := server.Server.Cfg
				<-server.Server.ReadyNotify()
				server.Close()
				compare(t, state, ours, theirs)
			}
		})
	}
}

// notCompared are fields without a meaning here, or that cannot be compared.
var notCompared = map[string]string{
	"Logger": "", "ServerFeatureGate": "compared by what it enables",
	"DiscoveryCfg":  "there are no endpoints of discovery",
	"PeerTLSInfo":   "no peer is listened for or dialled",
	"CORS":          "there is no HTTP",
	"HostWhitelist": "there is no HTTP",
}

func compare(t *testing.T, state string, ours, theirs config.ServerConfig) {
	t.Helper()
	if len(theirs.DiscoveryCfg.Endpoints) > 0 || !theirs.PeerTLSInfo.Empty() {
		t.Errorf("%s: etcd has %d discovery endpoints and peer TLS %v, want none", state, len(theirs.DiscoveryCfg.Endpoints), !theirs.PeerTLSInfo.Empty())
	}
	if o, th := ours.ServerFeatureGate, theirs.ServerFeatureGate; o.(interface{ String() string }).String() != th.(interface{ String() string }).String() {
		t.Errorf("%s: features %s, want %s", state, o, th)
	}
	o, th := reflect.ValueOf(ours), reflect.ValueOf(theirs)
	for i := range o.NumField() {
		name := o.Type().Field(i).Name
		if _, skip := notCompared[name]; !skip && !reflect.DeepEqual(o.Field(i).Interface(), th.Field(i).Interface()) {
			t.Errorf("%s: %s = %#v, want %#v", state, name, o.Field(i), th.Field(i))
		}
	}
}

// A directory is used in turns by etcd's own program and by the store.
func TestStoreAndEtcdShareDirectory(t *testing.T) {
	t.Parallel()
	cfg := Config{DataDir: t.TempDir()}
	for _, value := range []string{"one", "two"} {
		server, err := embed.StartEtcd(asFlagsMakeIt(Config{DataDir: cfg.DataDir, QuotaBytes: DefaultQuotaBytes, Logger: zap.NewNop()}))
		if err != nil {
			t.Fatal(err)
		}
		<-server.Server.ReadyNotify()
		id := server.Server.Cluster().ID()
		server.Close()
		s, stop := run(t, cfg)
		if value == "two" {
			if kept, ok, err := s.Get(within(t), "k"); !ok || err != nil || string(kept) != "one" {
				t.Errorf("Get(k) = %q, found %v, error %v, want %q", kept, ok, err, "one")
			}
		}
		if err := s.Put(within(t), "k", []byte(value)); err != nil {
			t.Fatal(err)
		}
		status, err := s.Client().Status(within(t), "")
		if err != nil || status.Header.ClusterId != uint64(id) {
			t.Errorf("status = %v, error %v, want cluster %v", status, err, id)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnixSocketIsCreatedOwnerOnly(t *testing.T) {
	dir := t.TempDir()
	taken := filepath.Join(dir, "taken")
	if err := os.WriteFile(taken, []byte("keep me"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenOwnerOnly(taken); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Errorf("listenOwnerOnly() over a file: error = %v, want one that contains %q", err, "is no socket")
	}
	if kept, err := os.ReadFile(taken); err != nil || !bytes.Equal(kept, []byte("keep me")) {
		t.Errorf("file after listenOwnerOnly() = %q, error %v, want %q", kept, err, "keep me")
	}
	path := filepath.Join(dir, "s")
	for range 2 { // the second time the socket of a killed process exists
		listener, err := listenOwnerOnly(path)
		if err != nil {
			t.Fatal(err)
		}
		listener.(interface{ SetUnlinkOnClose(bool) }).SetUnlinkOnClose(false)
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("Stat of the socket = %v, error %v, want mode 0600", info, err)
		}
	}
}

// A client's watch at the socket does not delay the stop.
func TestWatchOnSocketDoesNotDelayStop(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	socket := filepath.Join(t.TempDir(), "etcd.sock")
	_, stop := run(t, Config{DataDir: t.TempDir(), UnixSocket: socket})
	client, stopClient := run(t, Config{Servers: []string{"unix://" + socket}})
	defer func() { _ = stopClient() }()
	client.Client().Watch(within(t), "k")
	if err := client.Put(within(t), "other", nil); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("Stat of the socket after the stop: error = %v, want NotExist", err)
	}
}

// A start does not wait for an election without other members: neither with a new directory, nor with a log of more than a
// hundred entries, which etcd begins to truncate right after it has read it.
func TestSingleMemberStartsWithoutElectionDelay(t *testing.T) {
	cfg := Config{DataDir: t.TempDir()}
	const starts = 12
	told := 0
	for range starts {
		core, logs := observer.New(zap.DebugLevel)
		cfg.Logger = zap.New(core)
		s, stop := run(t, cfg)
		told += logs.Filter(func(e observer.LoggedEntry) bool { return strings.Contains(e.Message, "received MsgTimeoutNow") }).Len()
		for i := range 40 {
			if err := s.Put(within(t), "k", []byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	// On a very busy machine the member can stand for election before it receives the message.
	if told <= starts/2 || told > starts {
		t.Errorf("MsgTimeoutNow received at %d of %d starts, want more than half", told, starts)
	}
}
