package store

import (
	"errors"
	"fmt"
	"io"
	"log"
	"syscall"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// panicking is a logger for raft that keeps the message of a panic, as the logger of a member does.
type panicking struct{ raft.Logger }

type raftPanic struct{ error }

func (panicking) Panicf(format string, args ...any) { panic(raftPanic{fmt.Errorf(format, args...)}) }

// An election between the truncation of the log in memory and the report that its entries were applied makes raft panic. The
// panic is the reason for another attempt.
func TestStartIsRetriedAfterPanicDuringElection(t *testing.T) {
	storage := raft.NewMemoryStorage()
	entries := make([]*raftpb.Entry, 200)
	for i := range entries {
		entries[i] = &raftpb.Entry{Index: proto.Uint64(uint64(i + 1)), Term: proto.Uint64(1)}
	}
	err := errors.Join(storage.Append(entries), storage.SetHardState(&raftpb.HardState{Term: proto.Uint64(1), Commit: proto.Uint64(200)}))
	if err != nil {
		t.Fatal(err)
	}
	node, err := raft.NewRawNode(&raft.Config{
		ID: 1, ElectionTick: electionTicks, HeartbeatTick: 1, Storage: storage, MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 16, Logger: panicking{&raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	node.ApplyConfChange(&raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: proto.Uint64(1)})
	if ready := node.Ready(); len(ready.CommittedEntries) != len(entries) {
		t.Fatalf("%d committed entries, want %d", len(ready.CommittedEntries), len(entries))
	}
	if err := storage.Compact(1); err != nil { // as etcd does after the entries are applied and before it calls Advance
		t.Fatal(err)
	}
	defer func() {
		failure, ok := recover().(raftPanic)
		if !ok || !mayStartAgain(failure.error) {
			t.Errorf("mayStartAgain(%v) = false, want true for a panic of raft", failure.error)
		}
	}()
	t.Errorf("Campaign() = %v, want a panic", node.Campaign())
}

func TestOnlyRecoverableStartErrorsAreRetried(t *testing.T) {
	for err, want := range map[error]bool{
		fmt.Errorf("failed to allocate: %w", syscall.ENOSPC): true,
		errors.New("failed to repair WAL"):                   false,
	} {
		if got := mayStartAgain(err); got != want {
			t.Errorf("mayStartAgain(%v) = %t, want %t", err, got, want)
		}
	}
}
