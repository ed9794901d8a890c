//go:build !linux

package store

import "golang.org/x/sys/unix"

// ownDescriptors is a directory with the numbers of this process's descriptors.
const ownDescriptors = "/dev/fd"

// unlock removes the only kind of lock that etcd uses on this system.
func unlock(fd int) error { return unix.Flock(fd, unix.LOCK_UN) }
