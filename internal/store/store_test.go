package store

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestMain(m *testing.M) {
	if os.Getenv(smallDisk) != "" {
		os.Exit(m.Run()) // the remains of a failed member must not count as a leak
	}
	// The parallel tests wait for members of etcd more than they compute. The command line overrides this.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// run starts a store and returns it ready, with a function that stops it and reports how it ended.
func run(t *testing.T, cfg Config) (*Store, func() error) {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop := func() error {
		cancel()
		select {
		case err := <-ended:
			ended <- err
			return err
		case <-time.After(2 * closeTimeout):
			return errors.New("the store does not stop")
		}
	}
	t.Cleanup(func() { _ = stop() })
	select {
	case <-s.Ready():
	case err := <-ended:
		t.Fatalf("the store ended before it was ready: %v, want Ready closed", err)
	case <-time.After(time.Minute):
		t.Fatal("the store is not ready within a minute, want Ready closed")
	}
	return s, stop
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestKeysAreStoredListedAndDeleted(t *testing.T) {
	s, _ := run(t, Config{DataDir: t.TempDir()})
	ctx := within(t)
	if _, ok, err := s.Get(ctx, "a/1"); ok || err != nil {
		t.Fatalf("Get() of a missing key: found %v, error %v, want not found", ok, err)
	}
	for i := range 2*pageSize + 1 {
		if err := s.Put(ctx, fmt.Sprintf("a/%03d", i), []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Put(ctx, "b", []byte("not below a")); err != nil {
		t.Fatal(err)
	}
	if value, ok, err := s.Get(ctx, "a/007"); !ok || err != nil || value[0] != 7 {
		t.Fatalf("Get(a/007) = %v, found %v, error %v, want 7", value, ok, err)
	}
	if err := s.Delete(ctx, "a/007"); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(ctx, "a/007"); err != nil {
		t.Fatalf("second Delete(a/007) failed: %v, want no error", err)
	}
	all, err := s.List(ctx, "a/")
	if err != nil || len(all) != 2*pageSize {
		t.Fatalf("List(a/) = %d keys, error %v, want %d", len(all), err, 2*pageSize)
	}
	if _, ok := all["a/008"]; !ok {
		t.Fatal("List(a/) has no key a/008, want it under its name")
	}
	raw, err := s.Client().KV.Get(ctx, "/portico/b")
	if err != nil || len(raw.Kvs) != 1 {
		t.Fatalf("Get(/portico/b) = %v, error %v, want the own key b", raw, err)
	}
}

func TestDataSurvivesRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "on", "the", "way")
	first, stop := run(t, Config{DataDir: dir})
	if err := first.Put(within(t), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	second, _ := run(t, Config{DataDir: dir})
	if value, ok, err := second.Get(within(t), "k"); !ok || err != nil || string(value) != "v" {
		t.Fatalf("Get(k) after a restart = %q, found %v, error %v, want %q", value, ok, err, "v")
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("mode of the directory = %v, error %v, want 0700", info.Mode(), err)
	}
}

func TestDirectoryInUseIsRejected(t *testing.T) {
	dir := t.TempDir()
	_, stop := run(t, Config{DataDir: dir})
	second, err := New(Config{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	err = second.Run(within(t))
	if err == nil || !strings.Contains(err.Error(), "in use by another process") || !strings.Contains(err.Error(), dir) {
		t.Fatalf("Run() in a directory in use: error = %v, want one that contains %q and %s", err, "in use by another process", dir)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	run(t, Config{DataDir: dir})
}

func TestErrorNamesInvalidDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{DataDir: filepath.Join(file, "below")})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(within(t)); err == nil || !strings.Contains(err.Error(), file) {
		t.Fatalf("Run() below a file: error = %v, want one that contains %s", err, file)
	}
}

func TestCallsFailUnlessStoreRuns(t *testing.T) {
	s, err := New(Config{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(within(t)); !errors.Is(err, ErrNotReady) {
		t.Fatalf("Check() before the start: error = %v, want %v", err, ErrNotReady)
	}
	s, stop := run(t, Config{DataDir: t.TempDir()})
	if err := s.Check(within(t)); err != nil {
		t.Fatalf("Check() of a running store failed: %v, want no error", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(within(t), "k", nil); !errors.Is(err, ErrNotReady) {
		t.Fatalf("Put() after the stop: error = %v, want %v", err, ErrNotReady)
	}
}

func TestEmbeddedEtcdOpensNoPort(t *testing.T) {
	before := sockets(t)
	run(t, Config{DataDir: t.TempDir()})
	for socket := range sockets(t) { // some sockets of earlier tests may be closed meanwhile
		if !before[socket] {
			t.Errorf("%s was opened, want no new socket", socket)
		}
	}
}

// sockets returns the sockets of this process by their names in the kernel.
func sockets(t *testing.T) map[string]bool {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // the directory itself
		}
		if strings.HasPrefix(target, "socket:") {
			found[target] = true
		}
	}
	return found
}

func TestUnixSocketServesEtcdClients(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "etcd.sock")
	server, stop := run(t, Config{DataDir: t.TempDir(), UnixSocket: socket})
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("Stat of the socket = %v, error %v, want mode 0600", info, err)
	}
	if err := server.Put(within(t), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	client, stopClient := run(t, Config{Servers: []string{"unix://" + socket}})
	if value, ok, err := client.Get(within(t), "k"); !ok || err != nil || string(value) != "v" {
		t.Fatalf("Get(k) through the socket = %q, found %v, error %v, want %q", value, ok, err, "v")
	}
	if err := stopClient(); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func TestFirstStartLogsNoErrors(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	_, stop := run(t, Config{DataDir: filepath.Join(t.TempDir(), "new"), Logger: zap.New(core)})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, e := range logs.All() {
		t.Errorf("log entry of a first start = %s %s %v, want none", e.Level, e.Message, e.ContextMap())
	}
}

// A stop soon after the start cancels etcd's pending work, which etcd logs as warnings.
func TestWarningsWhileStoppingAreNotLogged(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	var stopping atomic.Bool
	logger := zap.New(stoppingCore{core, &stopping}).With(zap.Int("member", 1))
	logger.Warn("before")
	stopping.Store(true)
	logger.Warn("server has stopped; skipping GoAttach")
	logger.Error("cannot close the database")
	var got []string
	for _, e := range logs.All() {
		got = append(got, e.Message)
	}
	if want := []string{"before", "cannot close the database"}; !slices.Equal(got, want) {
		t.Errorf("logged %q, want %q", got, want)
	}
}

func TestNewValidatesConfiguration(t *testing.T) {
	long := "/" + strings.Repeat("x", 120)
	for _, c := range []struct {
		name string
		cfg  Config
		says string // empty: accepted
	}{
		{"no etcd at all", Config{}, "data directory"},
		{"external", Config{Servers: []string{"https://etcd.example.com:2379"}}, ""},
		{"external in the clear", Config{Servers: []string{"http://etcd.example.com:2379"}}, "use https"},
		{"external in the clear on this machine", Config{Servers: []string{"http://127.0.0.1:2379", "http://[::1]:2379"}}, ""},
		{"a server without a scheme", Config{Servers: []string{"etcd:2379"}}, "https://"},
		{"a certificate without its key", Config{Servers: []string{"https://e:2379"}, CertFile: "c"}, "go together"},
		{"a socket of an external etcd", Config{Servers: []string{"https://e:2379"}, UnixSocket: "/s"}, "leave it out"},
		{"a socket with too long a path", Config{DataDir: "d", UnixSocket: long}, "107"},
		{"a prefix over our own keys", Config{DataDir: "d", Prefix: "/portico"}, "stay clear"},
		{"a prefix without a slash", Config{DataDir: "d", Prefix: "registry"}, "begin with /"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := New(c.cfg)
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Fatalf("New() error = %v, want %q", err, c.says)
			}
		})
	}
}

// The keys of front doors with different prefixes of one etcd do not overlap.
func TestPrefixesIsolateKeys(t *testing.T) {
	roots := map[string]string{}
	for _, prefix := range []string{DefaultPrefix, "/a", "/a/b", "/a/b/c", "/registry/x", "/live", "/portico-of-nobody"} {
		s, err := New(Config{DataDir: t.TempDir(), Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		root := s.OwnKey("")
		for other, of := range roots {
			if strings.HasPrefix(root, other) || strings.HasPrefix(other, root) {
				t.Errorf("own keys of prefix %s, %s, overlap those of %s, %s, want them separate", prefix, root, of, other)
			}
		}
		roots[root] = prefix
	}
	for _, prefix := range []string{"/portico", "/portico/x", "/portico-of", "/portico-of/x", "registry"} {
		if _, err := New(Config{DataDir: t.TempDir(), Prefix: prefix}); err == nil {
			t.Errorf("New() with prefix %s succeeded although own keys can be there, want an error", prefix)
		}
	}
}
