package peers

import "bytes"

// unreadable has the values of other replicas that could not be read, so that each is logged once.
type unreadable map[string][]byte

// add reports whether the value of a replica is another one than the last that could not be read.
func (u *unreadable) add(name string, value []byte) bool {
	if last, known := (*u)[name]; known && bytes.Equal(last, value) {
		return false
	}
	if *u == nil || len(*u) >= maxUnreadable {
		*u = unreadable{}
	}
	(*u)[name] = bytes.Clone(value)
	return true
}

// maxUnreadable bounds what is remembered. Names are those of processes, which come and go.
const maxUnreadable = 100
