package store

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// ownDescriptors is a directory with the numbers of this process's descriptors. Not every container has /dev/fd.
const ownDescriptors = "/proc/self/fd"

// unlock removes both kinds of lock that etcd uses: bbolt's lock on the database, and the lock on the segments of the log.
func unlock(fd int) error {
	if err := unix.Flock(fd, unix.LOCK_UN); err != nil {
		return err
	}
	return syscall.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &syscall.Flock_t{Type: syscall.F_UNLCK})
}
