package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
)

// brokenSuffix is the suffix of the copy of a repaired segment, as in etcd's repair.
const brokenSuffix = ".broken"

// repairLog removes an incomplete record, which was never acknowledged, from the end of the write-ahead log in dir. etcd's
// repair copies the segment before it truncates it. This fails on a full disk, which is the usual cause of an incomplete
// record. repairLog makes the same copy, but continues without it if the disk is full. It leaves all other damage to etcd,
// which reports it.
func repairLog(dir string, log *zap.Logger) error {
	segments, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(segments) == 0 {
		return err
	}
	name := slices.Max(segments)
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return unreadable(err)
	}
	defer file.Close()
	end, incomplete := endOfLog(file)
	if !incomplete {
		return nil
	}
	switch err := copyBroken(file, name+brokenSuffix); {
	case isDiskFull(err):
		log.Warn("no disk space for a copy of the repaired segment", zap.String("segment", name), zap.Error(err))
	case err != nil:
		return fmt.Errorf("repair %s: %w", name, err)
	}
	if err := errors.Join(file.Truncate(end), file.Sync()); err != nil {
		return fmt.Errorf("repair %s: %w", name, err)
	}
	log.Info("removed an incomplete record from the end of the write-ahead log", zap.String("segment", name), zap.Int64("size", end))
	return nil
}

// endOfLog returns the offset after the last complete record of a segment, and whether an incomplete record follows.
func endOfLog(file *os.File) (end int64, incomplete bool) {
	decoder, record := wal.NewDecoder(fileutil.NewFileReader(file)), &walpb.Record{}
	for {
		end = decoder.LastOffset()
		if err := decoder.Decode(record); err != nil {
			return end, errors.Is(err, io.ErrUnexpectedEOF)
		}
		if record.GetType() != wal.CrcType {
			continue
		}
		if sum := decoder.LastCRC(); sum != 0 && record.Validate(sum) != nil {
			return end, false
		}
		decoder.UpdateCRC(record.GetCrc())
	}
}

// copyBroken copies a segment, and removes an incomplete copy.
func copyBroken(from *os.File, name string) error {
	to, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileutil.PrivateFileMode)
	if err != nil {
		return err
	}
	_, err = from.Seek(0, io.SeekStart)
	if err == nil {
		_, err = io.Copy(to, from)
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}
