package peers

import "bytes"

// unreadable contains the values of other replicas that could not be read, so that each is logged once.
type unreadable map[string][]byte

// add reports whether the value differs from the last unreadable one of the same replica.
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

// maxUnreadable limits the remembered values. Names belong to processes, which are replaced over time.
const maxUnreadable = 100
