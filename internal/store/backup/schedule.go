package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"portico.dev/internal/metrics"
	"portico.dev/internal/run"
)

const (
	// scheduledPrefix, scheduledSuffix and the time between them form the names of scheduled backups. Other files in the
	// directory are ignored.
	scheduledPrefix, scheduledSuffix = "portico-", ".backup"
	scheduledTime                    = "20060102T150405Z"

	// MinInterval is the minimum time between two scheduled backups, because each reads all of etcd.
	MinInterval = time.Minute
	// retryInterval is the pause after a failed scheduled backup, unless the interval is shorter.
	retryInterval = 5 * time.Minute
	// askLeader is the interval at which a replica checks whether it leads and whether a backup is due.
	askLeader = 10 * time.Second
	// scheduledTimeout bounds one backup.
	scheduledTimeout = time.Hour
	// spareBytes must be free in addition to the size of etcd before a backup is written, because etcd may use the same disk.
	spareBytes = 64 << 20
)

// Schedule makes backups periodically, and removes all but the newest ones. A failure is logged and counted, does not remove an
// older backup, and is retried.
type Schedule struct {
	// Dir is created with mode 0700 if it does not exist.
	Dir       string
	Interval  time.Duration
	Retention int
	// Recipients encrypt the backups. If empty, backups are not encrypted.
	Recipients []age.Recipient
	// Contents begins a backup. The Schedule closes its snapshot.
	Contents func(ctx context.Context) (Contents, error)
	// Leads reports whether this replica makes the backups.
	Leads   func() bool
	Metrics *metrics.Backup
	Log     *zap.Logger

	free func(dir string) (uint64, error) // nil means the free space of the file system
}

// Run makes backups until ctx ends.
func (s *Schedule) Run(ctx context.Context) error {
	var notBefore time.Time
	for {
		if s.Leads() {
			due, err := s.due()
			if err == nil && !time.Now().Before(due) && !time.Now().Before(notBefore) {
				err = s.once(ctx)
			}
			if ctx.Err() != nil {
				return nil
			}
			if err != nil && !time.Now().Before(notBefore) {
				s.Metrics.Failures.Inc()
				notBefore = time.Now().Add(min(retryInterval, s.Interval))
				s.Log.Error("scheduled backup failed; retrying, older backups are kept",
					zap.String("directory", s.Dir), zap.Time("again", notBefore), zap.Error(err))
			}
		}
		if !run.Pause(ctx, askLeader) {
			return nil
		}
	}
}

// due returns when the next backup is due: one interval after the newest existing backup, even if another process made it. A
// restart therefore neither adds nor skips a backup.
func (s *Schedule) due() (time.Time, error) {
	made, err := s.made()
	if err != nil || len(made) == 0 {
		return time.Time{}, err
	}
	newest := made[len(made)-1]
	s.Metrics.LastSuccess.Set(float64(newest.Unix()))
	if newest.After(time.Now()) { // the clock was set back
		return time.Time{}, nil
	}
	return newest.Add(s.Interval), nil
}

// made returns the times of the existing scheduled backups, oldest first.
func (s *Schedule) made() ([]time.Time, error) {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var made []time.Time
	for _, e := range entries {
		text, ok := strings.CutPrefix(e.Name(), scheduledPrefix)
		text, isBackup := strings.CutSuffix(text, scheduledSuffix)
		if at, err := time.Parse(scheduledTime, text); ok && isBackup && err == nil && e.Type().IsRegular() {
			made = append(made, at)
		}
	}
	slices.SortFunc(made, time.Time.Compare)
	return made, nil
}

func (s *Schedule) file(at time.Time) string {
	return filepath.Join(s.Dir, scheduledPrefix+at.UTC().Format(scheduledTime)+scheduledSuffix)
}

func (s *Schedule) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, scheduledTimeout)
	defer cancel()
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	if err := s.removeUnfinished(); err != nil {
		return err
	}
	began := time.Now()
	contents, err := s.Contents(ctx)
	if err != nil {
		return err
	}
	defer contents.Snapshot.Close()
	if err := s.checkRoom(contents.Snapshot.EstimatedSize); err != nil {
		return err
	}
	file := s.file(began)
	manifest, size, err := WriteFile(file, s.Recipients, func(w io.Writer) error {
		_, err := Write(w, contents)
		return err
	})
	if err != nil {
		return err
	}
	s.Metrics.LastSuccess.Set(float64(began.Unix()))
	s.Metrics.Size.Set(float64(size))
	s.Metrics.Duration.Set(time.Since(began).Seconds())
	s.Log.Info("wrote the scheduled backup", zap.String("file", file), zap.Int64("bytes", size),
		zap.Int64("revision", manifest.Etcd.Revision), zap.Duration("took", time.Since(began)))
	return s.removeOld()
}

// checkRoom checks the free space before a backup is written. A backup that fills the disk would stop etcd.
func (s *Schedule) checkRoom(size int64) error {
	free := s.free
	if free == nil {
		free = freeBytes
	}
	has, err := free(s.Dir)
	if err != nil {
		return err
	}
	if need := uint64(size) + spareBytes; has < need {
		return fmt.Errorf("%s has %d bytes left, and a backup of an etcd of %d bytes wants %d: make room, or choose another disk with --backup-dir", s.Dir, has, size, need)
	}
	return nil
}

func freeBytes(dir string) (uint64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, fmt.Errorf("ask for the room in %s: %w", dir, err)
	}
	return stat.Bavail * uint64(stat.Bsize), nil
}

// removeUnfinished removes incomplete files of a killed process.
func (s *Schedule) removeUnfinished() error {
	begun, err := filepath.Glob(filepath.Join(s.Dir, "."+scheduledPrefix+"*"+scheduledSuffix+".*"))
	if err != nil {
		return err
	}
	for _, name := range begun {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	return nil
}

func (s *Schedule) removeOld() error {
	made, err := s.made()
	if err != nil {
		return err
	}
	for _, at := range made[:max(0, len(made)-s.Retention)] {
		if err := os.Remove(s.file(at)); err != nil {
			return fmt.Errorf("remove an old backup: %w", err)
		}
	}
	return nil
}
