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
		os.Exit(m.Run()) // what a member leaves that failed is not to be called a leak
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
		t.Fatalf("the store ended: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("the store is not ready")
	}
	return s, stop
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestOwnKeys(t *testing.T) {
	s, _ := run(t, Config{DataDir: t.TempDir()})
	ctx := within(t)
	if _, ok, err := s.Get(ctx, "a/1"); ok || err != nil {
		t.Fatalf("a key that is not there: %v, %v", ok, err)
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
		t.Fatalf("got %v, %v, %v", value, ok, err)
	}
	if err := s.Delete(ctx, "a/007"); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(ctx, "a/007"); err != nil {
		t.Fatalf("a second deletion: %v", err)
	}
	all, err := s.List(ctx, "a/")
	if err != nil || len(all) != 2*pageSize {
		t.Fatalf("got %d keys, %v", len(all), err)
	}
	if _, ok := all["a/008"]; !ok {
		t.Fatal("keys are not named as they were written")
	}
	raw, err := s.Client().KV.Get(ctx, "/portico/b")
	if err != nil || len(raw.Kvs) != 1 {
		t.Fatalf("our keys are not under /portico/: %v, %v", raw, err)
	}
}

func TestDataOutlivesTheProcess(t *testing.T) {
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
		t.Fatalf("got %q, %v, %v", value, ok, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("the directory is open to others: %v, %v", info.Mode(), err)
	}
}

func TestADirectoryBelongsToOne(t *testing.T) {
	dir := t.TempDir()
	_, stop := run(t, Config{DataDir: dir})
	second, err := New(Config{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	err = second.Run(within(t))
	if err == nil || !strings.Contains(err.Error(), "in use by another process") || !strings.Contains(err.Error(), dir) {
		t.Fatalf("got %v", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	run(t, Config{DataDir: dir})
}

func TestADirectoryThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{DataDir: filepath.Join(file, "below")})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(within(t)); err == nil || !strings.Contains(err.Error(), file) {
		t.Fatalf("got %v", err)
	}
}

func TestOutsideOfItsLife(t *testing.T) {
	s, err := New(Config{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(within(t)); !errors.Is(err, ErrNotReady) {
		t.Fatalf("before: %v", err)
	}
	s, stop := run(t, Config{DataDir: t.TempDir()})
	if err := s.Check(within(t)); err != nil {
		t.Fatalf("during: %v", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(within(t), "k", nil); !errors.Is(err, ErrNotReady) {
		t.Fatalf("after: %v", err)
	}
}

func TestNoPortIsOpened(t *testing.T) {
	before := sockets(t)
	run(t, Config{DataDir: t.TempDir()})
	for socket := range sockets(t) { // fewer may be left of those of earlier tests
		if !before[socket] {
			t.Errorf("%s was opened", socket)
		}
	}
}

// sockets are those of this process, by what the kernel calls them.
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
			continue // the directory that is being read
		}
		if strings.HasPrefix(target, "socket:") {
			found[target] = true
		}
	}
	return found
}

func TestASocketForEtcdctl(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "etcd.sock")
	server, stop := run(t, Config{DataDir: t.TempDir(), UnixSocket: socket})
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("got %v, %v", info, err)
	}
	if err := server.Put(within(t), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	client, stopClient := run(t, Config{Servers: []string{"unix://" + socket}})
	if value, ok, err := client.Get(within(t), "k"); !ok || err != nil || string(value) != "v" {
		t.Fatalf("got %q, %v, %v", value, ok, err)
	}
	if err := stopClient(); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func TestAFreshStartLogsNoErrors(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	_, stop := run(t, Config{DataDir: filepath.Join(t.TempDir(), "new"), Logger: zap.New(core)})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, e := range logs.All() {
		t.Errorf("%s %s %v", e.Level, e.Message, e.ContextMap())
	}
}

// A stop soon after the start cancels what etcd does then, which it logs as warnings.
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

func TestConfigurations(t *testing.T) {
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
				t.Fatalf("got %v", err)
			}
		})
	}
}

// Front doors that keep their objects below different prefixes of one etcd are strangers to each other.
func TestPrefixesAreSeparate(t *testing.T) {
	roots := map[string]string{}
	for _, prefix := range []string{DefaultPrefix, "/a", "/a/b", "/a/b/c", "/registry/x", "/live", "/portico-of-nobody"} {
		s, err := New(Config{DataDir: t.TempDir(), Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		root := s.OwnKey("")
		for other, of := range roots {
			if strings.HasPrefix(root, other) || strings.HasPrefix(other, root) {
				t.Errorf("the keys of %s, %s, meet those of %s, %s", prefix, root, of, other)
			}
		}
		roots[root] = prefix
	}
	for _, prefix := range []string{"/portico", "/portico/x", "/portico-of", "/portico-of/x", "registry"} {
		if _, err := New(Config{DataDir: t.TempDir(), Prefix: prefix}); err == nil {
			t.Errorf("prefix %s is taken although our own keys may be there", prefix)
		}
	}
}
