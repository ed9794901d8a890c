package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/zap"
)

const (
	// roomTimeout bounds what a start asks of etcd about space.
	roomTimeout = 2 * time.Minute
	// worthwhile is how many bytes that hold nothing make a defragmentation worth its time, if they are also half of the
	// file.
	worthwhile = 64 << 20
	// spare is the part of the quota that has to be free again before the embedded etcd is told to accept writes.
	spare = 0.1
)

// ErrFull is why CheckSpace fails: writes are refused until somebody makes room.
var ErrFull = errors.New("etcd has raised its NOSPACE alarm and refuses writes: delete objects, compact, defragment, and disarm the alarm")

// CheckSpace asks etcd whether it is full, and the disk of an embedded one. One member that answers is enough, because all of them know of an alarm.
func (s *Store) CheckSpace(ctx context.Context) error {
	client := s.Client()
	if client == nil {
		return ErrNotReady
	}
	if s.disk != nil {
		if err := s.disk.checkWrite(false); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	status, err := s.status(ctx, client)
	if err != nil {
		return fmt.Errorf("ask etcd for its size: %w", err)
	}
	if isFull(status) {
		return fmt.Errorf("%w (%d bytes of %d, %d of them in use)", ErrFull, status.DbSize, status.DbSizeQuota, status.DbSizeInUse)
	}
	return nil
}

func isFull(status *clientv3.StatusResponse) bool {
	for _, trouble := range status.Errors {
		if strings.Contains(trouble, pb.AlarmType_NOSPACE.String()) {
			return true
		}
	}
	return false
}

// status asks one member after another, each for a part of the time that there is.
func (s *Store) status(ctx context.Context, client *kubernetes.Client) (*clientv3.StatusResponse, error) {
	members := client.Endpoints()
	if len(members) == 0 {
		members = []string{""} // embedded: the one there is
	}
	var errs []error
	for i, member := range members {
		status, err := func() (*clientv3.StatusResponse, error) {
			share := time.Minute
			if deadline, ok := ctx.Deadline(); ok {
				share = time.Until(deadline) / time.Duration(len(members)-i)
			}
			ctx, cancel := context.WithTimeout(ctx, share)
			defer cancel()
			return client.Status(ctx, member)
		}()
		if err == nil {
			return status, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// makeRoom is what an operator would do to an embedded etcd that nobody uses yet: give back to the file system what
// compaction has freed, when it is much or etcd is full, and accept writes again when that, or a larger quota, has made
// room. What fails here is told and no reason not to start: reads and deletions work in any case.
//
// Defragmentation cannot be interrupted; it rewrites the file at some hundred MB a second.
func (s *Store) makeRoom(ctx context.Context, client *kubernetes.Client, files interface{ Defrag() error }) {
	ctx, cancel := context.WithTimeout(ctx, roomTimeout)
	defer cancel()
	if err := s.tryMakeRoom(ctx, client, files); err != nil && ctx.Err() == nil {
		s.log.Warn("no room was made in the embedded etcd", zap.Error(err))
	}
}

func (s *Store) tryMakeRoom(ctx context.Context, client *kubernetes.Client, files interface{ Defrag() error }) error {
	status, err := client.Status(ctx, "")
	if err != nil {
		return fmt.Errorf("ask etcd for its size: %w", err)
	}
	full, unused := isFull(status), status.DbSize-status.DbSizeInUse
	if full || unused > worthwhile && unused > status.DbSize/2 {
		began := time.Now()
		// Not by the client: etcd's handler of that call expects a gRPC server around it.
		if err := files.Defrag(); err != nil {
			return fmt.Errorf("defragment: %w", err)
		}
		before := status.DbSize
		if status, err = client.Status(ctx, ""); err != nil {
			return fmt.Errorf("ask etcd for its size: %w", err)
		}
		s.log.Info("the embedded etcd was defragmented", zap.Int64("before", before), zap.Int64("after", status.DbSize), zap.Duration("took", time.Since(began)))
	}
	if !full {
		return nil
	}
	if float64(status.DbSize) > float64(s.cfg.QuotaBytes)*(1-spare) {
		s.log.Error("the embedded etcd is full and refuses writes; delete objects and restart, or raise its quota",
			zap.Int64("bytes", status.DbSize), zap.Int64("quota", s.cfg.QuotaBytes))
		return nil
	}
	alarm := &clientv3.AlarmMember{MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE}
	if _, err := client.AlarmDisarm(ctx, alarm); err != nil {
		return fmt.Errorf("disarm the alarm: %w", err)
	}
	s.log.Info("there is room again: the embedded etcd accepts writes", zap.Int64("bytes", status.DbSize), zap.Int64("quota", s.cfg.QuotaBytes))
	return nil
}
