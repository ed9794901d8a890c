package store

// LiveKey is where, in etcd, the key of a replica is for as long as its process lives, and its lease after that.
func (s *Store) LiveKey(name string) string { return s.OwnKey(liveKeys + name) }
