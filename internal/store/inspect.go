package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// databaseLockTimeout is how long a start waits for another process to release etcd's database.
const databaseLockTimeout = 5 * time.Second

// remedy is the end of every error about files that prevent etcd from starting.
const remedy = "restore a backup into an empty data directory with `aggregator restore`, or choose another directory"

// unusable returns an error with the file, the problem and the remedy.
func unusable(file, format string, args ...any) error {
	return fmt.Errorf("etcd cannot start: %s: %s; %s", file, fmt.Sprintf(format, args...), remedy)
}

// unreadable returns an error about a file that this process cannot read.
func unreadable(err error) error {
	return fmt.Errorf("etcd cannot start: %w; every file in the data directory has to belong to the user that the front door runs as", err)
}

// inspection is the result of reading the files of a member before etcd opens them. etcd does not handle damaged files: it ends
// the process with a stack trace, or waits for an election forever.
type inspection struct {
	wal       walInspection
	db        dbInspection
	snapshots int // etcd makes the first one after ten thousand entries
}

// walInspection describes the write-ahead log.
type walInspection struct {
	dir       string
	files     int
	fromStart bool // the first segment exists
	metadata  bool // the metadata record exists
	member    uint64
	last      uint64 // index of the last entry
	snapshot  uint64 // index of the last committed snapshot
	commit    uint64
	// requests reports whether there is an entry with a client request.
	requests bool
	nearTerm uint64 // of the requested entry; 0 if it does not exist
	err      error  // error that prevents reading to the end; nil also after an incomplete write at the end
}

// dbInspection describes the database.
type dbInspection struct {
	file    string
	exists  bool
	size    int64
	index   uint64 // of the last log entry that it contains
	term    uint64 // of that entry
	members []string
	// keys reports whether it contains a revision of any key.
	keys bool
	err  error // error that makes it unusable
}

// inspect reads the files of the member in dir and changes nothing. Damage is part of the result. The error is about reading
// the files.
func inspect(dir string) (*inspection, error) {
	i := &inspection{}
	i.wal.dir, i.db.file = filepath.Join(dir, "wal"), filepath.Join(dir, "snap", "db")
	snapshots, err := filepath.Glob(filepath.Join(dir, "snap", "*.snap"))
	if err != nil {
		return nil, err
	}
	i.snapshots = len(snapshots)
	if err := i.db.read(); err != nil {
		return nil, err
	}
	if err := i.wal.read(i.db.index); err != nil {
		return nil, err
	}
	return i, nil
}

// neverUsed reports whether the files are from an interrupted start, and no write can have been acknowledged: the log has no
// request, the database has no key, and at least one of them is incomplete compared to a first start.
func (i *inspection) neverUsed() bool {
	if i.wal.requests || i.wal.snapshot > 0 || i.snapshots > 0 || i.db.keys {
		return false
	}
	noDatabase := !i.db.exists || i.db.size < leastDatabase
	switch {
	case i.wal.files == 0:
		return noDatabase || i.db.err == nil
	case i.wal.files > 1 || !i.wal.fromStart:
		return false
	case i.wal.err != nil || !i.wal.metadata:
		return i.wal.last == 0 && (!i.db.exists || i.db.err == nil)
	}
	return i.wal.commit == 0 || i.db.err != nil
}

// leastDatabase is the size of the smallest database of bbolt, with pages of 4 KiB.
const leastDatabase = 4 * 4096

// check returns an error if etcd could not start from these files or would lose acknowledged writes. If several is true, two
// more states are valid: the database may lack the member, because it has not received its own membership yet, and the process
// may have ended after the log recorded a received snapshot and before that became the database.
func (i *inspection) check(several bool) error {
	w, db := &i.wal, &i.db
	if several && w.snapshot > db.index {
		if _, err := os.Stat(filepath.Join(filepath.Dir(db.file), fmt.Sprintf("%016x.snap.db", w.snapshot))); err == nil {
			return w.err
		}
	}
	switch {
	case w.files == 0 && db.exists:
		return unusable(w.dir, "the write-ahead log is missing, and the database %s cannot be used without it", db.file)
	case w.err != nil:
		return w.err
	case !w.metadata:
		return unusable(w.dir, "the write-ahead log does not say which member it belongs to")
	case !db.exists && w.fromStart && w.snapshot == 0 && !w.requests:
		return nil // a first start that ended after it created its log
	case !db.exists:
		return unusable(db.file, "the database is missing, and the write-ahead log beside it has %d entries", w.last)
	case db.err != nil:
		return db.err
	case db.index > w.last:
		return unusable(w.dir, "the write-ahead log is older than the database: it ends with entry %d, the database holds entry %d", w.last, db.index)
	case w.snapshot > db.index:
		return unusable(db.file, "the database is older than the write-ahead log: it ends with entry %d, the log begins after entry %d", db.index, w.snapshot)
	case !several && len(db.members) > 0 && !slices.Contains(db.members, types.ID(w.member).String()):
		return unusable(db.file, "the database belongs to another cluster: its members are %s, the write-ahead log is that of %s",
			strings.Join(db.members, ", "), types.ID(w.member))
	}
	if w.nearTerm > 0 && db.term > 0 && w.nearTerm != db.term {
		return unusable(w.dir, "the write-ahead log is not the one that the database was written with: entry %d is of term %d in the log and of term %d in the database",
			db.index, w.nearTerm, db.term)
	}
	return nil
}

// read reads the log from its first segment. near is the index of the entry whose term is needed.
func (w *walInspection) read(near uint64) error {
	entries, err := os.ReadDir(w.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return unreadable(err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".wal") {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	w.files = len(names)
	var readers []fileutil.FileReader
	for n, name := range names {
		var sequence, index uint64
		if _, err := fmt.Sscanf(name, "%016x-%016x.wal", &sequence, &index); err != nil {
			return unusable(filepath.Join(w.dir, name), "this is no name of a segment of a write-ahead log; remove it if it is none")
		}
		w.fromStart = w.fromStart || n == 0 && sequence == 0 && index == 0
		file, err := os.Open(filepath.Join(w.dir, name))
		if err != nil {
			return unreadable(err)
		}
		defer file.Close()
		if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
			return unusable(file.Name(), "it is no regular file")
		}
		readers = append(readers, fileutil.NewFileReader(file))
	}
	if len(readers) == 0 {
		return nil
	}
	w.err = w.decode(wal.NewDecoder(readers...), near)
	return nil
}

// decode reads the records like etcd's verification, and extracts more of them.
func (w *walInspection) decode(decoder wal.Decoder, near uint64) error {
	var snapshots []*walpb.Snapshot
	record := &walpb.Record{}
	var err error
	for err = decoder.Decode(record); err == nil; err = decoder.Decode(record) {
		switch record.GetType() {
		case wal.MetadataType:
			metadata := &etcdserverpb.Metadata{}
			if err := proto.Unmarshal(record.Data, metadata); err != nil {
				return w.corrupt(err)
			}
			if w.metadata && w.member != metadata.GetNodeID() {
				return unusable(w.dir, "its segments belong to different members")
			}
			w.metadata, w.member = true, metadata.GetNodeID()
		case wal.EntryType:
			index, term, err := position(record.Data)
			if err != nil {
				return w.corrupt(err)
			}
			w.last = index // an entry that replaces others invalidates the entries after it
			if index == near {
				w.nearTerm = term
			}
			if w.requests {
				continue
			}
			entry := &raftpb.Entry{}
			if err := proto.Unmarshal(record.Data, entry); err != nil {
				return w.corrupt(err)
			}
			w.requests = isClientRequest(entry)
		case wal.StateType:
			state := &raftpb.HardState{}
			if err := proto.Unmarshal(record.Data, state); err != nil {
				return w.corrupt(err)
			}
			w.commit = state.GetCommit()
		case wal.CrcType:
			if sum := decoder.LastCRC(); sum != 0 && record.Validate(sum) != nil {
				return w.corrupt(wal.ErrCRCMismatch)
			}
			decoder.UpdateCRC(record.GetCrc())
		case wal.SnapshotType:
			snapshot := &walpb.Snapshot{}
			if err := proto.Unmarshal(record.Data, snapshot); err != nil {
				return w.corrupt(err)
			}
			snapshots = append(snapshots, snapshot)
		}
	}
	// An incomplete write at the end was not acknowledged. etcd removes it.
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return w.corrupt(err)
	}
	for _, s := range snapshots {
		if s.GetIndex() <= w.commit && s.GetIndex() >= w.snapshot {
			w.snapshot = s.GetIndex()
			w.last = max(w.last, s.GetIndex())
			if near > 0 && s.GetIndex() == near {
				w.nearTerm = s.GetTerm()
			}
		}
	}
	return nil
}

func (w *walInspection) corrupt(err error) error {
	return unusable(w.dir, "the write-ahead log is damaged after entry %d: %v", w.last, err)
}

// Field numbers of raftpb.Entry.
const (
	entryTerm  protowire.Number = 2
	entryIndex protowire.Number = 3
)

// position returns the index and the term of an entry. It skips the data without copying it, because the data is nearly all of
// a log.
func position(entry []byte) (index, term uint64, err error) {
	for len(entry) > 0 {
		number, kind, n := protowire.ConsumeTag(entry)
		if n < 0 {
			return 0, 0, protowire.ParseError(n)
		}
		entry = entry[n:]
		value := uint64(0)
		if kind == protowire.VarintType {
			value, n = protowire.ConsumeVarint(entry)
		} else {
			n = protowire.ConsumeFieldValue(number, kind, entry)
		}
		switch {
		case n < 0:
			return 0, 0, protowire.ParseError(n)
		case number == entryTerm:
			term = value
		case number == entryIndex:
			index = value
		}
		entry = entry[n:]
	}
	return index, term, nil
}

// isClientRequest reports whether an entry is a client request, as opposed to an entry of etcd about its members.
func isClientRequest(entry *raftpb.Entry) bool {
	if entry.GetType() != raftpb.EntryNormal || len(entry.Data) == 0 {
		return false
	}
	request := &etcdserverpb.InternalRaftRequest{}
	if proto.Unmarshal(entry.Data, request) != nil {
		return true
	}
	return request.ClusterVersionSet == nil && request.ClusterMemberAttrSet == nil && request.DowngradeInfoSet == nil
}

// read opens the database for reading. It does not access memory beyond the end of a truncated file, which would end the
// process.
func (db *dbInspection) read() error {
	info, err := os.Stat(db.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return unreadable(err)
	}
	db.exists, db.size = true, info.Size()
	switch {
	case !info.Mode().IsRegular():
		db.err = unusable(db.file, "it is no regular file")
		return nil
	case db.size == 0:
		db.err = unusable(db.file, "the database is empty")
		return nil
	case db.size < leastDatabase:
		db.err = unusable(db.file, "the database is cut off after %d bytes", db.size)
		return nil
	}
	opened, err := bolt.Open(db.file, 0o600, &bolt.Options{ReadOnly: true, Timeout: databaseLockTimeout})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("etcd cannot start: %s is in use by another process: stop that one, or choose another directory", db.file)
	case errors.Is(err, fs.ErrPermission):
		return unreadable(err)
	case err != nil:
		db.err = unusable(db.file, "this is no database of etcd: %v", err)
		return nil
	}
	defer opened.Close()
	db.err = opened.View(db.look)
	return nil
}

func (db *dbInspection) look(tx *bolt.Tx) (err error) {
	if tx.Size() > db.size {
		return unusable(db.file, "the database is cut off: it has %d bytes of %d", db.size, tx.Size())
	}
	defer func() {
		if r := recover(); r != nil { // bbolt panics on unexpected page contents
			err = unusable(db.file, "the database is damaged: %v", r)
		}
	}()
	if meta := tx.Bucket(schema.Meta.Name()); meta != nil {
		db.index = number(meta.Get(schema.MetaConsistentIndexKeyName))
		db.term = number(meta.Get(schema.MetaTermKeyName))
	}
	if members := tx.Bucket(schema.Members.Name()); members != nil {
		if err := members.ForEach(func(id, _ []byte) error {
			db.members = append(db.members, string(id))
			return nil
		}); err != nil {
			return unusable(db.file, "the database is damaged: %v", err)
		}
	}
	if keys := tx.Bucket(schema.Key.Name()); keys != nil {
		first, _ := keys.Cursor().First()
		db.keys = first != nil
	}
	return nil
}

func number(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}
