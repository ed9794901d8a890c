//go:build !unix

package pki

import "io/fs"

// hasModes is false because permission bits are not meaningful on systems with access control lists.
const hasModes = false

func owner(fs.FileInfo) (user, group int, ok bool) { return 0, 0, false }
