//go:build !linux

package store

import "golang.org/x/sys/unix"

// ownDescriptors is a directory with the numbers of all descriptors of this process.
const ownDescriptors = "/dev/fd"

// unlock removes the only kind of lock that etcd takes here.
func unlock(fd int) error { return unix.Flock(fd, unix.LOCK_UN) }
