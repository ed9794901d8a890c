package store

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// ownDescriptors is a directory with the numbers of all descriptors of this process. Not every container has /dev/fd.
const ownDescriptors = "/proc/self/fd"

// unlock removes both kinds of lock that etcd takes: bbolt's on the database, and that on the segments of the log.
func unlock(fd int) error {
	if err := unix.Flock(fd, unix.LOCK_UN); err != nil {
		return err
	}
	return syscall.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &syscall.Flock_t{Type: syscall.F_UNLCK})
}
