//go:build unix

package pki

import (
	"io/fs"
	"syscall"
)

// hasModes is true because permission bits are meaningful.
const hasModes = true

// owner returns the user and the group of a file.
func owner(info fs.FileInfo) (user, group int, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(stat.Uid), int(stat.Gid), true
}
