package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// diskReserve is what is kept free on the disk of the embedded etcd. Below it writes are refused. etcd allocates its log
	// 64 MiB at a time and its database 16 MiB at a time, and ends where it cannot.
	diskReserve = 96 << 20
	// diskResume is what must be free before writes are accepted again.
	diskResume = 128 << 20
	// diskMinimum is what deletions, compactions and leases may use of the reserve: below it nothing is written.
	diskMinimum = 32 << 20
	// diskFirstStart is what must be free before a first start: two segments of the log, the reserve, and a little.
	diskFirstStart = 256 << 20
	// diskPollInterval is how old the last look at the disk may be.
	diskPollInterval = 100 * time.Millisecond
	// roomInterval is how often it is looked at while etcd cannot run for want of room.
	roomInterval = time.Second
)

// DiskFullError is the answer to a write that is refused because the disk of the embedded etcd has no room. Nothing was
// written.
type DiskFullError struct {
	Dir  string
	Free int64 // bytes
	// Cause is what etcd met; nil: the write was refused before.
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

// Is makes it one of the errors of an etcd without space.
func (e *DiskFullError) Is(target error) bool { return target == rpctypes.ErrNoSpace }

// GRPCStatus is what it is to clients of etcd.
func (e *DiskFullError) GRPCStatus() *status.Status {
	return status.New(codes.ResourceExhausted, e.Error())
}

// disk is the file system of the embedded etcd.
type disk struct {
	dir  string
	log  *zap.Logger
	stat func(dir string) (free int64, err error)

	mu     sync.Mutex // guards what follows
	looked time.Time
	free   int64
	low    bool // writes are refused
}

func newDisk(dir string, log *zap.Logger) *disk { return &disk{dir: dir, log: log, stat: freeBytes} }

// freeBytes is what the owner of dir can still write to its file system.
func freeBytes(dir string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return int64(fs.Bavail) * fs.Bsize, nil
}

// measure asks the file system, at most once in an interval. When it cannot be asked it counts as free: etcd will tell.
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
			d.log.Error("the disk of the embedded etcd is full: writes are refused, reads and deletions go on; make room on it",
				zap.String("directory", d.dir), zap.Int64("free-bytes", free), zap.Int64("reserve-bytes", diskReserve))
		case d.low && free >= diskResume:
			d.low = false
			d.log.Info("the disk of the embedded etcd has room again: writes are accepted", zap.String("directory", d.dir), zap.Int64("free-bytes", free))
		}
	}
	return d.free, d.low
}

// checkWrite is why nothing may be written now. essential is for what makes room, or keeps this process alive.
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

// awaitRoom blocks for a pause, and then until writes would be accepted; false when ctx ended first.
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
