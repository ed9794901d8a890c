package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// diskReserve is the minimum free space on the disk of the embedded etcd. Below it, writes are refused. etcd allocates its
	// log in units of 64 MiB and its database in units of 16 MiB, and terminates if an allocation fails.
	diskReserve = 96 << 20
	// diskResume is the free space at which writes are accepted again.
	diskResume = 128 << 20
	// diskMinimum is the free space below which even deletions, compactions and leases are refused.
	diskMinimum = 32 << 20
	// diskFirstStart is the free space required for a first start: two segments of the log, the reserve, and a margin.
	diskFirstStart = 256 << 20
	// diskPollInterval is how long a measurement of the disk is used.
	diskPollInterval = 100 * time.Millisecond
	// roomInterval is the interval between measurements while etcd cannot run because the disk is full.
	roomInterval = time.Second
)

// DiskFullError is returned for a write that is refused because the disk of the embedded etcd is full. Nothing was written.
type DiskFullError struct {
	Dir  string
	Free int64 // bytes
	// Cause is the error of etcd; nil if the write was refused before it reached etcd.
	Cause error
}

func (e *DiskFullError) Error() string {
	text := fmt.Sprintf("the disk of the embedded etcd is full: %d MiB are free for %s; make room on that disk: writes are accepted again by themselves when %d MiB are free",
		e.Free>>20, e.Dir, int64(diskResume>>20))
	if e.Cause != nil {
		text += fmt.Sprintf(" (etcd had to be restarted: %v)", e.Cause)
	}
	return text
}

// Is makes the error match etcd's ErrNoSpace.
func (e *DiskFullError) Is(target error) bool { return target == rpctypes.ErrNoSpace }

// GRPCStatus returns the status that clients of etcd receive.
func (e *DiskFullError) GRPCStatus() *status.Status {
	return status.New(codes.ResourceExhausted, e.Error())
}

// disk is the file system of the embedded etcd.
type disk struct {
	dir  string
	log  *zap.Logger
	stat func(dir string) (free int64, err error)

	mu     sync.Mutex // guards the fields below
	looked time.Time
	free   int64
	low    bool // writes are refused
}

func newDisk(dir string, log *zap.Logger) *disk { return &disk{dir: dir, log: log, stat: freeBytes} }

// freeBytes returns the free space of the file system for the owner of dir.
func freeBytes(dir string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return int64(fs.Bavail) * int64(fs.Bsize), nil // the types differ between systems
}

// measure returns the free space, measured at most once per diskPollInterval. If the measurement fails, the disk counts as
// free, and etcd reports the error.
func (d *disk) measure() (free int64, low bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); now.Sub(d.looked) >= diskPollInterval {
		d.looked = now
		free, err := d.stat(d.dir)
		if err != nil {
			return diskFirstStart, false
		}
		d.free = free
		switch {
		case !d.low && free < diskReserve:
			d.low = true
			d.log.Error("disk of the embedded etcd is full; writes are refused, reads and deletes are served: free disk space",
				zap.String("directory", d.dir), zap.Int64("free-bytes", free), zap.Int64("reserve-bytes", diskReserve))
		case d.low && free >= diskResume:
			d.low = false
			d.log.Info("disk of the embedded etcd has free space again; accepting writes", zap.String("directory", d.dir), zap.Int64("free-bytes", free))
		}
	}
	return d.free, d.low
}

// checkWrite returns an error if a write must be refused. essential writes free space or keep this process alive.
func (d *disk) checkWrite(essential bool) error {
	free, low := d.measure()
	if !low || essential && free >= diskMinimum {
		return nil
	}
	return d.fullError(free, nil)
}

func (d *disk) fullError(free int64, cause error) error {
	return &DiskFullError{Dir: d.dir, Free: free, Cause: cause}
}

// awaitRoom waits for the pause, and then until writes would be accepted. It returns false if ctx ended first.
func (d *disk) awaitRoom(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	}
	tick := time.NewTicker(roomInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
			if _, low := d.measure(); !low {
				return true
			}
		}
	}
}

const (
	// roomTimeout bounds the defragmentation at a start.
	roomTimeout = 2 * time.Minute
	// worthwhile is the minimum of unused bytes for a defragmentation at a start. They must also be half of the file.
	worthwhile = 64 << 20
	// spare is the fraction of the quota that must be free before the NOSPACE alarm of the embedded etcd is disarmed.
	spare = 0.1
)

// ErrFull is returned if etcd refuses writes until space is freed.
var ErrFull = errors.New("etcd has raised its NOSPACE alarm and refuses writes: delete objects, compact, defragment, and disarm the alarm")

// externalSpaceTimeout bounds the status request to an external etcd. It is less than the one second that load balancers and
// kubelets wait for readyz, which calls CheckSpace. If etcd does not respond, the front door is still ready for requests that
// do not need etcd.
const externalSpaceTimeout = 500 * time.Millisecond

// CheckSpace returns an error if etcd, or the disk of the embedded etcd, is full. One response suffices, because all members
// have the same alarms. It returns nil if an external etcd does not respond, which Check reports.
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
	if s.Lost() != nil {
		return nil
	}
	timeout := checkTimeout
	if s.quorum != nil {
		timeout = externalSpaceTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	status, err := s.status(ctx, client)
	switch {
	case err != nil && s.quorum != nil:
		return nil
	case err != nil:
		return fmt.Errorf("ask etcd for its size: %w", err)
	case isFull(status):
		return fmt.Errorf("%w (%d bytes of %d, %d of them in use)", ErrFull, status.DbSize, status.DbSizeQuota, status.DbSizeInUse)
	}
	return nil
}

func isFull(status *clientv3.StatusResponse) bool {
	return slices.ContainsFunc(status.Errors, func(trouble string) bool { return strings.Contains(trouble, pb.AlarmType_NOSPACE.String()) })
}

// nextMemberAfter is how long a status request waits for one member before the next member is tried in parallel.
const nextMemberAfter = 100 * time.Millisecond

// status returns the status from the first member that responds. It tries the members one after another, at intervals of
// nextMemberAfter.
func (s *Store) status(ctx context.Context, client *kubernetes.Client) (*clientv3.StatusResponse, error) {
	members := client.Endpoints()
	if len(members) == 0 {
		members = []string{""} // the embedded member
	}
	type answer struct {
		status *clientv3.StatusResponse
		err    error
	}
	answers := make(chan answer, len(members))
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ask := func(member string) {
		asking.Go(func() {
			status, err := client.Status(ctx, member)
			answers <- answer{status, err}
		})
	}
	next := time.NewTicker(nextMemberAfter)
	defer next.Stop()
	asked := 1
	ask(members[0])
	var errs []error
	for len(errs) < len(members) {
		select {
		case a := <-answers:
			if a.err == nil {
				return a.status, nil
			}
			errs = append(errs, a.err)
			if asked < len(members) && asked == len(errs) {
				ask(members[asked])
				asked++
			}
		case <-next.C:
			if asked < len(members) {
				ask(members[asked])
				asked++
			}
		}
	}
	return nil, errors.Join(errs...)
}

// makeRoom defragments the embedded etcd at a start if much space is unused or etcd is full, and disarms its alarm if there is
// space again. Errors are logged and do not stop the start, because reads and deletions still work.
//
// A defragmentation cannot be interrupted. It rewrites a few hundred MB per second.
func (s *Store) makeRoom(ctx context.Context, client *kubernetes.Client, files interface{ Defrag() error }) {
	ctx, cancel := context.WithTimeout(ctx, roomTimeout)
	defer cancel()
	if err := s.tryMakeRoom(ctx, client, files); err != nil && ctx.Err() == nil {
		s.log.Warn("failed to free space in the embedded etcd", zap.Error(err))
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
		// Not through the client: etcd's handler of that call requires a gRPC server.
		if err := files.Defrag(); err != nil {
			return fmt.Errorf("defragment: %w", err)
		}
		before := status.DbSize
		if status, err = client.Status(ctx, ""); err != nil {
			return fmt.Errorf("ask etcd for its size: %w", err)
		}
		s.log.Info("defragmented the embedded etcd", zap.Int64("before", before), zap.Int64("after", status.DbSize), zap.Duration("took", time.Since(began)))
	}
	if !full {
		return nil
	}
	if float64(status.DbSize) > float64(s.cfg.QuotaBytes)*(1-spare) {
		s.log.Error("embedded etcd exceeds its quota and refuses writes; delete objects and restart, or raise the quota",
			zap.Int64("bytes", status.DbSize), zap.Int64("quota", s.cfg.QuotaBytes))
		return nil
	}
	alarm := &clientv3.AlarmMember{MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE}
	if _, err := client.AlarmDisarm(ctx, alarm); err != nil {
		return fmt.Errorf("disarm the alarm: %w", err)
	}
	s.log.Info("embedded etcd is below its quota again; accepting writes", zap.Int64("bytes", status.DbSize), zap.Int64("quota", s.cfg.QuotaBytes))
	return nil
}
