package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// files names the files of the member in a data directory.
type files struct{ dir string }

func (f files) member() string { return filepath.Join(f.dir, memberDir) }
func (f files) wal() string    { return filepath.Join(f.member(), "wal") }
func (f files) db() string     { return filepath.Join(f.member(), "snap", "db") }
func (f files) segment() string {
	return filepath.Join(f.wal(), "0000000000000000-0000000000000000.wal")
}

// used returns a data directory with stored values.
func used(t *testing.T, values ...string) files {
	t.Helper()
	f := files{t.TempDir()}
	f.use(t, values...)
	return f
}

func (f files) use(t *testing.T, values ...string) {
	t.Helper()
	s, stop := run(t, Config{DataDir: f.dir})
	for _, value := range values {
		if err := s.Put(within(t), "k", []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// startOn starts a store and returns the result of its start: nil when it is ready. The store stops with the test.
func startOn(t *testing.T, f files) (*Store, error) {
	t.Helper()
	s, err := New(Config{DataDir: f.dir})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !strings.Contains(err.Error(), "etcd") {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
		return s, nil
	case err := <-ended:
		ended <- err
		return nil, err
	case <-time.After(time.Minute):
		t.Fatal("the start did not end within a minute, want Ready or an error")
		return nil, nil
	}
}

func (f files) copyTo(t *testing.T, to files, names ...func(files) string) {
	t.Helper()
	for _, name := range names {
		if err := os.RemoveAll(name(to)); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(name(f))
		if err == nil && info.IsDir() {
			err = os.CopyFS(name(to), os.DirFS(name(f)))
		} else if err == nil {
			var data []byte
			if data, err = os.ReadFile(name(f)); err == nil {
				err = os.WriteFile(name(to), data, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// For a directory that etcd cannot start from, the error names the file and the next step in one line. etcd itself panics, or
// waits without end.
func TestErrorNamesDamagedFile(t *testing.T) {
	t.Parallel()
	truncate := func(name func(files) string, size int64) func(*testing.T, files) {
		return func(t *testing.T, f files) {
			if err := os.Truncate(name(f), size); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(name func(files) string) func(*testing.T, files) {
		return func(t *testing.T, f files) {
			if err := os.RemoveAll(name(f)); err != nil {
				t.Fatal(err)
			}
		}
	}
	replaceByDirectory := func(name func(files) string) func(*testing.T, files) {
		return func(t *testing.T, f files) {
			if err := errors.Join(os.RemoveAll(name(f)), os.Mkdir(name(f), 0o700)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		damage func(*testing.T, files)
		says   string
		file   func(files) string
	}{
		"the log is missing":              {remove(files.wal), "the write-ahead log is missing", files.wal},
		"the log has no segment":          {remove(files.segment), "the write-ahead log is missing", files.wal},
		"the database is missing":         {remove(files.db), "the database is missing", files.db},
		"the database is empty":           {truncate(files.db, 0), "the database is empty", files.db},
		"the database has 4 KiB":          {truncate(files.db, 4096), "is cut off after 4096 bytes", files.db},
		"the database is half":            {truncate(files.db, 16384), "is cut off: it has 16384 bytes of", files.db},
		"the database is a directory":     {replaceByDirectory(files.db), "it is no regular file", files.db},
		"the log is a directory":          {replaceByDirectory(files.segment), "it is no regular file", files.segment},
		"the log is cut off at its start": {truncate(files.segment, 300), "is older than the database", files.wal},
		"the log is empty":                {truncate(files.segment, 0), "does not say which member", files.wal},
		"the database is something else": {func(t *testing.T, f files) {
			if err := os.WriteFile(f.db(), make([]byte, 1<<16), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "this is no database of etcd", files.db},
		"a record of the log was changed": {func(t *testing.T, f files) {
			data, err := os.ReadFile(f.segment())
			at := strings.Index(string(data), "value of one")
			if err != nil || at < 0 {
				t.Fatalf("position of %q in the segment = %d, error %v, want it in the segment", "value of one", at, err)
			}
			data[at] ^= 1
			if err := os.WriteFile(f.segment(), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "the write-ahead log is damaged after entry", files.wal},
		"the log is one of before": {func(t *testing.T, f files) {
			before := used(t, "value of one")
			f.use(t, "more", "and more", "and more", "and more", "and more", "and more")
			before.copyTo(t, f, files.wal)
		}, "is older than the database", files.wal},
		"the log is of a member of another term": {func(t *testing.T, f files) {
			other := used(t, "value of one")
			for range 5 {
				other.use(t) // each start is a term
			}
			other.use(t, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k")
			f.use(t, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p")
			other.copyTo(t, f, files.wal)
		}, "is not the one that the database was written with", files.wal},
		"the log is of another cluster": {func(t *testing.T, f files) {
			found, err := inspect(f.member())
			if err != nil {
				t.Fatal(err)
			}
			writeLog(t, f, found.wal.member+1, found.db.term, found.db.index)
		}, "the database belongs to another cluster", files.db},
		"the log begins after the end of the database": {func(t *testing.T, f files) {
			found, err := inspect(f.member())
			if err != nil {
				t.Fatal(err)
			}
			writeLog(t, f, found.wal.member, found.db.term, found.db.index+10)
		}, "the database is older than the write-ahead log", files.db},
	} {
		t.Run(name, func(t *testing.T) {
			f := used(t, "value of one", "value of two")
			c.damage(t, f)
			before := listing(t, f)
			_, err := startOn(t, f)
			if err == nil {
				t.Fatal("the start succeeded with damaged files, want an error")
			}
			for _, want := range []string{c.says, c.file(f), "aggregator restore"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error of the start = %v, want it to contain %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of the start = %q, want one line", err.Error())
			}
			if after := listing(t, f); after != before {
				t.Errorf("files after a failed start = %s, want them unchanged: %s", after, before)
			}
		})
	}
}

// writeLog replaces the log with one that begins with a snapshot of the entry index.
func writeLog(t *testing.T, f files, member, term, index uint64) {
	t.Helper()
	if err := os.RemoveAll(f.wal()); err != nil {
		t.Fatal(err)
	}
	metadata, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: new(member), ClusterID: new(uint64(1))})
	if err != nil {
		t.Fatal(err)
	}
	log, err := wal.Create(zap.NewNop(), f.wal(), metadata)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		log.SaveSnapshot(&walpb.Snapshot{Index: new(index), Term: new(term), ConfState: &raftpb.ConfState{Voters: []uint64{member}}}),
		log.Save(&raftpb.HardState{Term: new(term), Vote: new(uint64(0)), Commit: new(index)}, nil), log.Close()); err != nil {
		t.Fatal(err)
	}
}

func listing(t *testing.T, f files) string {
	t.Helper()
	var all []string
	if err := filepath.Walk(f.member(), func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			all = append(all, path+" "+info.ModTime().String())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, "\n")
}

// An interrupted write at the end of the log was not acknowledged, and does not prevent a start.
func TestIncompleteEndOfLogIsTruncated(t *testing.T) {
	t.Parallel()
	f := used(t, "value of one", "value of two")
	data, err := os.ReadFile(f.segment())
	at := strings.LastIndex(string(data), "value of two")
	if err != nil || at < 0 {
		t.Fatalf("position of %q in the segment = %d, error %v, want it in the segment", "value of two", at, err)
	}
	end := at + len("value of two") + 4096
	whole := strings.TrimRight(string(data[:end]), "\x00")
	// A record of 256 bytes, of which only its length was written to the disk.
	torn := append([]byte(whole), make([]byte, 8-len(whole)%8)...)
	torn = append(torn, 0, 1, 0, 0, 0, 0, 0, 0)
	torn = append(torn, make([]byte, 64)...)
	if err := os.WriteFile(f.segment(), torn, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := startOn(t, f)
	if err != nil {
		t.Fatal(err)
	}
	if value, _, err := s.Get(within(t), "k"); err != nil || string(value) != "value of two" {
		t.Errorf("Get(k) = %q, error %v, want %q", value, err, "value of two")
	}
}

// A file without read permission is not a damaged file.
func TestUnreadableFileIsNotReportedAsDamaged(t *testing.T) {
	f := used(t, "value")
	if err := errors.Join(os.Remove(f.segment()), os.Symlink(f.segment(), f.segment())); err != nil {
		t.Fatal(err)
	}
	_, err := startOn(t, f)
	if err == nil || !strings.Contains(err.Error(), f.segment()) || !strings.Contains(err.Error(), "belong to the user") || strings.Contains(err.Error(), "aggregator restore") {
		t.Errorf("error of the start = %v, want the file and its owner, and no advice to restore", err)
	}
}

// etcd writes snapshot files, but starts from its log and its database.
func TestDamagedSnapshotFileDoesNotPreventStart(t *testing.T) {
	f := used(t, "value")
	if err := os.WriteFile(filepath.Join(filepath.Dir(f.db()), "0000000000000002-0000000000000005.snap"), []byte("cut o"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := startOn(t, f)
	if err != nil {
		t.Fatal(err)
	}
	if value, _, err := s.Get(within(t), "k"); err != nil || string(value) != "value" {
		t.Errorf("Get(k) = %q, error %v, want %q", value, err, "value")
	}
}

// An election without a possible winner ends the start.
func TestStartEndsIfElectionCannotSucceed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	f := files{t.TempDir()}
	writeNewLog(t, f) // of a member outside any cluster, which prepareMember never leaves
	s, err := New(Config{DataDir: f.dir})
	if err != nil {
		t.Fatal(err)
	}
	s.startTimeout = 2 * time.Second
	m, err := s.startMember(within(t))
	if err == nil || !strings.Contains(err.Error(), "it was not elected within 2s") || !strings.Contains(err.Error(), f.dir) {
		t.Errorf("startMember() error = %v, want no election within 2s, and the directory %s", err, f.dir)
	}
	if err := m.close(); err != nil {
		t.Error(err)
	}
}

// writeNewLog writes the log of an unfinished member.
func writeNewLog(t *testing.T, f files, entries ...*raftpb.Entry) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(f.db()), 0o700); err != nil {
		t.Fatal(err)
	}
	metadata, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: new(uint64(1)), ClusterID: new(uint64(2))})
	if err != nil {
		t.Fatal(err)
	}
	log, err := wal.Create(zap.NewNop(), f.wal(), metadata)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(log.Save(&raftpb.HardState{}, entries), log.Close()); err != nil {
		t.Fatal(err)
	}
}

// A first start that was interrupted, in this version or an older one, begins again.
func TestInterruptedFirstStartBeginsAgain(t *testing.T) {
	t.Parallel()
	write := func(t *testing.T, name string, data []byte) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for name, prepare := range map[string]func(*testing.T, files){
		"an empty member":                func(t *testing.T, f files) { write(t, filepath.Join(f.member(), ".touch"), nil) },
		"an empty database and no log":   func(t *testing.T, f files) { write(t, f.db(), nil) },
		"a database of 4 KiB and no log": func(t *testing.T, f files) { write(t, f.db(), make([]byte, 4096)) },
		"a log that is not finished": func(t *testing.T, f files) {
			write(t, filepath.Join(f.member(), "wal.tmp", "0000000000000000-0000000000000000.wal"), make([]byte, 100))
		},
		"a log without a member": func(t *testing.T, f files) { writeNewLog(t, f) },
		"a log whose member was not committed": func(t *testing.T, f files) {
			writeNewLog(t, f, &raftpb.Entry{Type: raftpb.EntryConfChange.Enum(), Term: new(uint64(1)), Index: new(uint64(1)), Data: []byte{}})
		},
		"a log, and a database that is not": func(t *testing.T, f files) {
			cfg := Config{DataDir: f.dir, Logger: zap.NewNop()}
			if err := makeMember(cfg, newDisk(f.dir, cfg.Logger)); err != nil {
				t.Fatal(err)
			}
			write(t, f.db(), nil)
		},
		"a log, and no database yet": func(t *testing.T, f files) {
			cfg := Config{DataDir: f.dir, Logger: zap.NewNop()}
			if err := makeMember(cfg, newDisk(f.dir, cfg.Logger)); err != nil {
				t.Fatal(err)
			}
		},
		"a member that has not got its name": func(t *testing.T, f files) {
			write(t, filepath.Join(f.dir, newMemberDir, "wal", "0000000000000000-0000000000000000.wal"), make([]byte, 100))
		},
		"a member that is being moved": func(t *testing.T, f files) {
			write(t, filepath.Join(f.dir, unusedMemberDir, "wal", "0000000000000000-0000000000000000.wal"), make([]byte, 100))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := files{t.TempDir()}
			prepare(t, f)
			f.use(t, "value")
			s, err := startOn(t, f)
			if err != nil {
				t.Fatal(err)
			}
			if value, _, err := s.Get(within(t), "k"); err != nil || string(value) != "value" {
				t.Errorf("Get(k) = %q, error %v, want %q", value, err, "value")
			}
			for _, leftover := range []string{newMemberDir, unusedMemberDir} {
				if _, err := os.Lstat(filepath.Join(f.dir, leftover)); !os.IsNotExist(err) {
					t.Errorf("Lstat(%s) error = %v, want NotExist", leftover, err)
				}
			}
		})
	}
}

// A log whose commit was not written before a power failure still contains acknowledged requests.
func TestLogWithUncommittedRequestsIsKept(t *testing.T) {
	i := &inspection{}
	i.wal.files, i.wal.fromStart, i.wal.metadata, i.wal.last = 1, true, true, 1
	if !i.neverUsed() {
		t.Error("neverUsed() = false for a log without requests and without a commit, want true")
	}
	i.wal.requests = true
	if i.neverUsed() {
		t.Error("neverUsed() = true for a log with a request that may be acknowledged, want false")
	}
}

func TestEntryPositionMatchesEtcd(t *testing.T) {
	for name, entry := range map[string]*raftpb.Entry{
		"a request":       {Type: raftpb.EntryNormal.Enum(), Term: new(uint64(7)), Index: new(uint64(1 << 40)), Data: []byte(strings.Repeat("x", 2000))},
		"without data":    {Type: raftpb.EntryConfChange.Enum(), Term: new(uint64(1)), Index: new(uint64(3))},
		"without numbers": {Data: []byte{1, 2, 3}},
		"nothing":         {},
	} {
		data, err := proto.Marshal(entry)
		if err != nil {
			t.Fatal(err)
		}
		index, term, err := position(data)
		if err != nil || index != entry.GetIndex() || term != entry.GetTerm() {
			t.Errorf("%s: position() = index %d, term %d, error %v, want index %d, term %d", name, index, term, err, entry.GetIndex(), entry.GetTerm())
		}
		for n := range data {
			_, _, mine := position(data[:n])
			if theirs := proto.Unmarshal(data[:n], &raftpb.Entry{}); (mine == nil) != (theirs == nil) {
				t.Errorf("%s, cut off after %d bytes: position() error = %v, want an error exactly if etcd has one: %v", name, n, mine, theirs)
			}
		}
	}
}
