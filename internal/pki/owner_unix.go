//go:build unix

package pki

import (
	"io/fs"
	"syscall"
)

// hasModes: the bits of a file say who may do what with it.
const hasModes = true

// owner is the user and the group of a file.
func owner(info fs.FileInfo) (user, group int, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(stat.Uid), int(stat.Gid), true
}
