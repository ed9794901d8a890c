package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

const aRole = "/registry/roles/default/reader"

// snapshotted is an etcd that can be stopped, and the configuration of stores that keep a snapshot of its state.
type snapshotted struct {
	t    *testing.T
	dir  string
	cfg  Config
	stop func() error // stops etcd
	logs *observer.ObservedLogs
}

func newSnapshotted(t *testing.T) *snapshotted {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	sockets, err := os.MkdirTemp("", "p") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	s := &snapshotted{t: t, dir: t.TempDir()}
	core, logs := observer.New(zapcore.WarnLevel)
	s.logs = logs
	s.cfg = Config{
		Servers: []string{"unix://" + filepath.Join(sockets, "etcd")}, Logger: zap.New(core),
		StateSnapshot: &StateSnapshotConfig{
			File: filepath.Join(t.TempDir(), "of its own", "state"), Secret: []byte("a secret of the front door"), MaxAge: time.Hour,
			Wait: 500 * time.Millisecond, Interval: 10 * time.Millisecond,
			Objects: []string{"roles", "services/specs"}, Frequent: []string{"pods"}, Own: []string{"debts/"},
		},
	}
	s.startEtcd()
	return s
}

func (s *snapshotted) startEtcd() {
	s.t.Helper()
	_, s.stop = run(s.t, Config{DataDir: s.dir, UnixSocket: strings.TrimPrefix(s.cfg.Servers[0], "unix://")})
}

// stopEtcd stops etcd, so that no member answers.
func (s *snapshotted) stopEtcd() {
	s.t.Helper()
	if err := s.stop(); err != nil {
		s.t.Fatal(err)
	}
}

// save writes keys through a store, waits until the store has written the snapshot, and stops it.
func (s *snapshotted) save(values map[string]string) {
	s.t.Helper()
	st, stop := run(s.t, s.cfg)
	for key, value := range values {
		if _, err := st.Client().KV.Put(within(s.t), key, value); err != nil {
			s.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- st.SaveState(ctx) }()
	s.await("a snapshot", func() bool {
		read, err := readStateFile(s.cfg.StateSnapshot, DefaultPrefix, time.Now())
		if err != nil {
			return false
		}
		for key, value := range values {
			if s.cfg.StateSnapshot.inSnapshot(key) && string(read.values[key]) != value {
				return false
			}
		}
		return true
	})
	cancel()
	if err := <-ended; err != nil {
		s.t.Fatal(err)
	}
	if st.StateSaved().IsZero() {
		s.t.Error("StateSaved() is zero after a snapshot was written, want its time")
	}
	if err := stop(); err != nil {
		s.t.Fatal(err)
	}
}

func (c *StateSnapshotConfig) inSnapshot(key string) bool {
	return slices.ContainsFunc(c.ranges(DefaultPrefix), func(start string) bool { return strings.HasPrefix(key, start) })
}

func (s *snapshotted) await(what string, is func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !is() {
		if time.Now().After(deadline) {
			s.t.Fatalf("condition not met within 20s: want %s", what)
		}
		select {
		case <-s.t.Context().Done():
			s.t.Fatalf("the test ended before the condition was met: want %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// A store that starts without etcd answers from the snapshot, and switches to etcd when etcd returns.
func TestStoreServesStateSnapshotUntilEtcdReturns(t *testing.T) {
	t.Parallel()
	s := newSnapshotted(t)
	s.save(map[string]string{
		aRole: "role", "/registry/services/specs/default/notes": "service", "/registry/services/endpoints/default/notes": "not in it",
		"/registry/secrets/default/token": "hunter2-in-the-clear", "/portico/debts/one": "debt", "/portico/nodeports/1": "not in it",
	})
	file, err := os.ReadFile(s.cfg.StateSnapshot.File)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(s.cfg.StateSnapshot.File); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode of the snapshot file = %v, error %v, want 0600", info.Mode(), err)
	}
	for _, clear := range []string{"hunter2", "role", "service", "debt"} {
		if bytes.Contains(file, []byte(clear)) {
			t.Errorf("the snapshot file contains %q unencrypted, want it encrypted", clear)
		}
	}
	if read, err := decodeState(file, s.cfg.StateSnapshot.Secret, DefaultPrefix); err != nil || len(read.values) != 3 {
		t.Errorf("decodeState() = %v, error %v, want 3 values", read, err)
	}

	s.stopEtcd()
	st, stop := run(t, s.cfg)
	defer func() { _ = stop() }()
	ctx := within(t)
	kv := st.Client().KV
	if at, ok := st.StartedFrom(); !ok || time.Since(at) > time.Minute {
		t.Errorf("StartedFrom() = %s, %v, want a time within the last minute", at, ok)
	}
	if st.Lost() == nil || st.Check(ctx) == nil {
		t.Errorf("Lost() = %v or Check() returns nil, want errors from both", st.Lost())
	}
	if !st.HasInState("services/specs") || st.HasInState("services/endpoints") || st.HasInState("services") {
		t.Errorf("HasInState() of services/specs, services/endpoints, services = %v, %v, %v, want true, false, false", st.HasInState("services/specs"), st.HasInState("services/endpoints"), st.HasInState("services"))
	}
	// Keys in the snapshot are answered, and keys in its ranges that it does not contain are known to be absent.
	for key, want := range map[string]int{aRole: 1, "/registry/roles/default/other": 0, "/registry/pods/default/none": 0, "/registry/roles": 0} {
		if answer, err := kv.Get(ctx, key, clientv3.WithLimit(1)); err != nil || len(answer.Kvs) != want || answer.Header.Revision != stateRevision {
			t.Errorf("Get(%s) = %v, error %v, want %d keys at revision %d", key, answer, err, want, stateRevision)
		}
	}
	if answer, err := kv.Get(ctx, "/registry/pods/", clientv3.WithPrefix()); err != nil || answer.Count != 0 {
		t.Errorf("Get() of an empty range = %v, error %v, want count 0", answer, err)
	}
	if kept, err := st.List(ctx, "debts/"); err != nil || string(kept["debts/one"]) != "debt" {
		t.Errorf("List(debts/) = %v, error %v, want debts/one", kept, err)
	}
	// Keys outside the snapshot get no answer: reads of single keys fail, and reads of ranges wait.
	var lost *QuorumError
	for _, key := range []string{"/registry/secrets/default/token", "/registry/services/endpoints/default/notes", "/portico/nodeports/1"} {
		if answer, err := kv.Get(ctx, key); !errors.As(err, &lost) {
			t.Errorf("Get(%s) = %v, error %v, want a QuorumError", key, answer, err)
		}
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	if answer, err := kv.Get(short, "compact_rev_key"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Get(compact_rev_key) = %v, error %v, want %v", answer, err, context.DeadlineExceeded)
	}
	cancel()
	for _, start := range []string{"/registry/secrets/", "/registry/", "/portico/nodeports/", "/registry/services/"} {
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		if answer, err := kv.Get(short, start, clientv3.WithPrefix()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Get() of range %s = %v, error %v, want %v", start, answer, err, context.DeadlineExceeded)
		}
		cancel()
	}
	if _, err := kv.Put(ctx, aRole, "changed"); !errors.As(err, &lost) {
		t.Errorf("Put() without etcd: error = %v, want a QuorumError", err)
	}
	if _, err := kv.Txn(ctx).Then(clientv3.OpDelete(aRole)).Commit(); !errors.As(err, &lost) {
		t.Errorf("Txn() without etcd: error = %v, want a QuorumError", err)
	}
	waiting := make(chan int64, 1)
	go func() {
		answer, err := kv.Get(ctx, "/registry/secrets/", clientv3.WithPrefix())
		if err != nil {
			t.Error(err)
			answer = &clientv3.GetResponse{}
		}
		waiting <- answer.Count
	}()
	watch := st.Client().Watch(ctx, "/registry/roles/", clientv3.WithPrefix(), clientv3.WithRev(stateRevision+1))

	s.startEtcd()
	select {
	case <-st.UsesEtcd():
	case <-ctx.Done():
		t.Fatal("UsesEtcd() is not closed within a minute after etcd returned, want it closed")
	}
	if end := <-watch; !errors.Is(end.Err(), rpctypes.ErrCompacted) {
		t.Errorf("end of the watch on the snapshot = %+v, want %v", end, rpctypes.ErrCompacted)
	}
	if n := <-waiting; n != 1 {
		t.Errorf("count of the range that waited = %d, want 1", n)
	}
	if answer, err := kv.Get(ctx, aRole); err != nil || len(answer.Kvs) != 1 || answer.Kvs[0].ModRevision <= stateRevision {
		t.Errorf("Get(%s) = %v, error %v, want a revision of etcd over %d", aRole, answer, err, stateRevision)
	}
	// No read continues from the snapshot: etcd has all revisions, and would answer with its state at the first one.
	if answer, err := kv.Get(ctx, "/registry/roles/", clientv3.WithPrefix(), clientv3.WithRev(stateRevision)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("Get() of a further page of the snapshot = %v, error %v, want %v", answer, err, rpctypes.ErrCompacted)
	}
	for response := range st.Client().Watch(ctx, "/registry/roles/", clientv3.WithPrefix(), clientv3.WithRev(stateRevision+1)) {
		if !errors.Is(response.Err(), rpctypes.ErrCompacted) {
			t.Errorf("watch from the snapshot's revision = %+v, want %v", response, rpctypes.ErrCompacted)
		}
	}
	events := st.Client().Watch(ctx, "/registry/roles/", clientv3.WithPrefix())
	s.await("a write", func() bool { _, err := kv.Put(ctx, aRole, "changed"); return err == nil })
	if event := <-events; len(event.Events) != 1 || string(event.Events[0].Kv.Value) != "changed" {
		t.Errorf("response of a watch on etcd = %+v, want one event with %q", event, "changed")
	}
}

// All pages of a list come from one state.
func TestListPagesOfSnapshotAreConsistent(t *testing.T) {
	values := map[string][]byte{"/registry/rolebindings/a": nil}
	for i := range 25 {
		values[fmt.Sprintf("/registry/roles/%02d", i)] = []byte{byte(i)}
	}
	source := newStateSource(&state{ranges: []string{"/registry/roles/"}, values: values})
	kv := &stateKV{source: source}
	page := func(from string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
		return kv.Get(t.Context(), from, append(opts, clientv3.WithRange("/registry/roles0"), clientv3.WithLimit(10))...)
	}
	first, err := page("/registry/roles/")
	if err != nil || len(first.Kvs) != 10 || !first.More || first.Count != 25 {
		t.Fatalf("first page = %v, error %v, want 10 of 25 keys and more", first, err)
	}
	next := string(first.Kvs[9].Key) + "\x00"
	second, err := page(next, clientv3.WithRev(first.Header.Revision))
	if err != nil || len(second.Kvs) != 10 || string(second.Kvs[0].Key) != "/registry/roles/10" {
		t.Fatalf("second page = %v, error %v, want 10 keys from /registry/roles/10", second, err)
	}
	stream, err := kv.GetStream(t.Context(), "/registry/roles/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if all, err := clientv3.GetStreamToGetResponse(stream); err != nil || len(all.Kvs) != 25 || all.Header.Revision != stateRevision {
		t.Errorf("stream = %v, error %v, want 25 keys at revision %d", all, err, stateRevision)
	}
	source.useEtcd()
	if third, err := page(next, clientv3.WithRev(first.Header.Revision)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("third page after the switch to etcd = %v, error %v, want %v", third, err, rpctypes.ErrCompacted)
	}
}

// A snapshot that was modified, or that is from another front door, from another release or too old, is refused as a whole,
// with one line.
func TestInvalidStateSnapshotsAreRefused(t *testing.T) {
	c := &StateSnapshotConfig{
		File: filepath.Join(t.TempDir(), "state"), Secret: []byte("ours"), MaxAge: time.Hour, Objects: []string{"roles"}, Own: []string{"debts/"},
	}
	now := time.Now()
	of := func(at time.Time, ranges []string) *state {
		return &state{at: at, ranges: ranges, values: map[string][]byte{aRole: []byte("role")}}
	}
	encode := func(s *state, secret, prefix string) []byte {
		file, err := encodeState(s, []byte(secret), prefix)
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	all := c.ranges(DefaultPrefix)
	good := encode(of(now, all), "ours", DefaultPrefix)
	read := func(file []byte) error {
		if err := os.WriteFile(c.File, file, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := readStateFile(c, DefaultPrefix, now)
		if (s == nil) != (err != nil) {
			t.Errorf("readStateFile() = %v, error %v, want either a state or an error", s, err)
		}
		return err
	}
	if err := read(good); err != nil {
		t.Fatal(err)
	}
	for i := range good {
		changed := slices.Clone(good)
		changed[i] ^= 1
		if err := read(changed); !errors.Is(err, errStateDamaged) && !errors.Is(err, errStateFormat) && !errors.Is(err, errStateKey) {
			t.Errorf("changed byte %d: error = %v, want damaged, another format or another key", i, err)
		}
		if err := read(good[:i]); !errors.Is(err, errStateDamaged) {
			t.Errorf("first %d bytes of %d: error = %v, want %v", i, len(good), err, errStateDamaged)
		}
	}
	another := slices.Clone(good)
	binary.BigEndian.PutUint16(another[len(stateMagic):], stateFormat+1)
	for name, refused := range map[string]struct {
		file []byte
		want error
		say  string
	}{
		"of another front door":   {encode(of(now, all), "theirs", DefaultPrefix), errStateKey, "another key"},
		"of another prefix":       {encode(of(now, all), "ours", "/other"), errStateDamaged, "damaged"},
		"of another format":       {another, errStateFormat, "another format"},
		"without all ranges":      {encode(of(now, all[:1]), "ours", DefaultPrefix), errStateFormat, "does not have /portico/debts/"},
		"too old":                 {encode(of(now.Add(-2*time.Hour), all), "ours", DefaultPrefix), nil, "2h0m0s old, and at most 1h0m0s is allowed"},
		"of the future":           {encode(of(now.Add(time.Hour), all), "ours", DefaultPrefix), nil, "correct the clock"},
		"with more after its end": {append(slices.Clone(good), 0), errStateDamaged, "damaged"},
	} {
		err := read(refused.file)
		if err == nil || refused.want != nil && !errors.Is(err, refused.want) || !strings.Contains(err.Error(), refused.say) {
			t.Errorf("%s: error = %v, want one that contains %q", name, err, refused.say)
		}
	}
	if err := read(good); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(c.File, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readStateFile(c, DefaultPrefix, now); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("readStateFile() of a file with mode 0644: error = %v, want one that contains %q", err, "chmod 600")
	}
}

// A start without a snapshot, or with a refused one, waits for etcd.
func TestStartWithoutValidSnapshotWaitsForEtcd(t *testing.T) {
	t.Parallel()
	s := newSnapshotted(t)
	s.save(map[string]string{aRole: "role"})
	s.stopEtcd()
	file, err := os.ReadFile(s.cfg.StateSnapshot.File)
	if err != nil {
		t.Fatal(err)
	}
	file[len(file)-1] ^= 1
	if err := os.WriteFile(s.cfg.StateSnapshot.File, file, 0o600); err != nil {
		t.Fatal(err)
	}
	st, err := New(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- st.Run(ctx) }()
	refusals := func() int { return s.logs.FilterMessageSnippet("state snapshot rejected").Len() }
	s.await("the line that it is refused", func() bool { return refusals() == 1 })
	select {
	case <-st.Ready():
		t.Fatal("Ready is closed with a modified snapshot, want the start to wait for etcd")
	default:
	}
	s.startEtcd()
	select {
	case <-st.Ready():
	case <-within(t).Done():
		t.Fatal("the store is not ready within a minute after etcd returned, want Ready closed")
	}
	if _, without := st.StartedFrom(); without || st.Lost() != nil || refusals() != 1 {
		t.Errorf("started without etcd = %v, Lost() = %v, %d refusals, want false, nil and 1", without, st.Lost(), refusals())
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The rules for the time of the next write of the file.
func TestStateSnapshotSchedule(t *testing.T) {
	began := time.Now()
	c := (&StateSnapshotConfig{MaxAge: time.Hour}).withDefaults()
	for name, given := range map[string]struct {
		changed, frequently, attempted, want time.Duration // since the beginning; negative: never
	}{
		"nothing has changed":             {-1, -1, 0, maxRefresh},
		"a change after a long time":      {time.Minute, -1, 0, time.Minute + settleTime},
		"a change soon after a write":     {time.Second, -1, 0, 10 * time.Second},
		"pods alone":                      {-1, time.Second, 0, time.Minute},
		"pods, long after the last write": {-1, 3 * time.Minute, 0, 3*time.Minute + settleTime},
		"pods, and what is urgent":        {2 * time.Second, time.Second, 0, 10 * time.Second},
	} {
		at := func(d time.Duration) time.Time {
			if d < 0 {
				return time.Time{}
			}
			return began.Add(d)
		}
		w := &stateWriter{config: c, changed: at(given.changed), frequently: at(given.frequently)}
		if due, ok := w.due(0, at(given.attempted), maxRefresh); !ok || !due.Equal(began.Add(given.want)) {
			t.Errorf("%s: due after %s, %v, want after %s", name, due.Sub(began), ok, given.want)
		}
		if _, ok := w.due(1, began, maxRefresh); ok {
			t.Errorf("%s: due before all ranges are known, want not due", name)
		}
	}
}
