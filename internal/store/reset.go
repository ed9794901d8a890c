package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
)

const (
	// resetDir is the directory in which a reset creates the new member.
	resetDir = "reset.new"
	// replacedMemberDir is the prefix of the directory to which a reset moves the old member. The time is appended.
	replacedMemberDir = "member.before-reset-"
	// resetTimeout bounds the start in which a reset applies the log.
	resetTimeout = 2 * time.Minute
)

// Reset makes the member in cfg.DataDir the only member of a new cluster, with all its data. It recovers from a permanent loss
// of the quorum. No process may use the directory. Data that only other members have is lost. Revisions continue far above the
// revisions of any member, so that no client mistakes old data for new. Reset returns the new location of the old files.
func Reset(ctx context.Context, cfg Config) (before string, err error) {
	s, err := New(cfg)
	if err != nil {
		return "", err
	}
	if s.cfg.Cluster == nil {
		return "", ErrSingle
	}
	lock, err := lockDirectory(s.cfg.DataDir)
	if err != nil {
		return "", err
	}
	before, err = s.reset(ctx)
	if errors.Is(err, errStillWrites) {
		return before, err // the lock remains until this process ends
	}
	return before, errors.Join(err, lock.release())
}

func (s *Store) reset(ctx context.Context) (before string, err error) {
	member, made := filepath.Join(s.cfg.DataDir, memberDir), filepath.Join(s.cfg.DataDir, resetDir)
	if HoldsEtcd(s.cfg.DataDir) { // otherwise an earlier reset was interrupted between its last two steps
		if err := os.RemoveAll(made); err != nil {
			return "", fmt.Errorf("remove what an earlier reset left: %w", err)
		}
		found, err := inspect(member)
		if err != nil {
			return "", err
		}
		if err := found.check(true); err != nil {
			return "", err
		}
		if err := s.applyAlone(ctx); err != nil {
			return "", err
		}
		identity := identity{name: s.cfg.Cluster.Name, peerURL: memberURL(s.cfg.Cluster.Address), token: clusterToken + "-" + rand.Text(), file: true}
		if err := identity.restore(filepath.Join(member, "snap", "db"), made, s.log); err != nil {
			return "", err
		}
		if err := syncTree(made); err != nil {
			return "", err
		}
		before = filepath.Join(s.cfg.DataDir, replacedMemberDir+time.Now().UTC().Format("20060102T150405Z"))
		if err := errors.Join(os.Rename(member, before), syncDir(s.cfg.DataDir)); err != nil {
			return "", fmt.Errorf("move the member of before: %w", err)
		}
	}
	if err := os.Rename(filepath.Join(made, memberDir), member); err != nil {
		return before, fmt.Errorf("move the new member to its place: %w", err)
	}
	if err := s.changeMembership(func(m *Membership) { m.Joining, m.Others = false, nil }); err != nil {
		return before, err
	}
	s.log.Info("reset to a new etcd cluster with this member only", zap.String("directory", s.cfg.DataDir), zap.String("before", before))
	return before, errors.Join(os.RemoveAll(made), syncDir(s.cfg.DataDir))
}

// applyAlone starts the member without the other members, so that it applies all entries that are known to be committed to its
// database, and stops it.
func (s *Store) applyAlone(ctx context.Context) (err error) {
	m := &runningMember{failure: newFailure()}
	config := embeddedConfig(s.cfg)
	config.Logger, config.ForceNewCluster = m.failure.logger(config.Logger), true
	if err := s.cfg.Cluster.amongOthers(&config, nil); err != nil {
		return err
	}
	if m.server, err = startEmbedded(config); err != nil {
		return err
	}
	deadline := time.NewTimer(resetTimeout)
	defer deadline.Stop()
	progress := time.NewTicker(progressLogInterval)
	defer progress.Stop()
	err = s.awaitElected(ctx, m, deadline.C, progress.C)
	if err == nil {
		err = ctx.Err()
	}
	return errors.Join(err, m.close())
}

// errMissingMember returns the error for a member of a cluster that has lost its files.
func errMissingMember(dir string) error {
	remedy := "remove the directory, remove the member at another one (aggregator member remove), and start with --join and a token"
	if _, err := os.Lstat(filepath.Join(dir, resetDir, memberDir)); !errors.Is(err, fs.ErrNotExist) {
		remedy = "a reset was cut short: start with --cluster-reset again"
	}
	return fmt.Errorf("the files of the member of etcd in %s are missing; %s", dir, remedy)
}
