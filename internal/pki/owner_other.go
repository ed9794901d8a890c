//go:build !unix

package pki

import "io/fs"

// hasModes: what the bits of a file say is made up, where there are access control lists instead.
const hasModes = false

func owner(fs.FileInfo) (user, group int, ok bool) { return 0, 0, false }
