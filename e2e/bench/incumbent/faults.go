package incumbent

import (
	"errors"

	"portico.dev/internal/drill/faulty"
)

// fault is a way to die. stores: the backend keeps objects in namespaces, so that somebody who forgets them leaves them.
type fault struct {
	name   string
	stores bool
	begin  func(*faulty.Server) error
}

var faults = []fault{
	{"killed: connections are refused", false, func(s *faulty.Server) error { return s.SetFault(faulty.Refuse) }},
	{"stopped, as by SIGSTOP: connections stay", false, func(s *faulty.Server) error { return s.SetFault(faulty.Blackhole) }},
	{"accepts TCP, never answers TLS", false, func(s *faulty.Server) error {
		return errors.Join(s.SetFault(faulty.Refuse), s.SetFault(faulty.Blackhole))
	}},
	{"TLS and HTTP/2 alive, never replies", false, func(s *faulty.Server) error { return s.SetFault(faulty.Hang) }},
	{"killed, and it keeps objects", true, func(s *faulty.Server) error { return s.SetFault(faulty.Refuse) }},
}
