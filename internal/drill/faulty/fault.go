package faulty

// Fault is what is wrong with a Server.
type Fault int

const (
	// Well: nothing is wrong.
	Healthy Fault = iota
	// Refuse answers connections with a reset and has cut those that were there, as the end of a process does.
	Refuse
	// Blackhole lets connections be made, and from then on not a byte goes either way, on old ones as on new ones.
	Blackhole
	// Hang reads requests, and HTTP/2 pings are answered, but no request is.
	Hang
	// SlowDrip sends bodies a byte at a time.
	SlowDrip
	// ResetMidBody breaks every answer about objects off after half of its body.
	ResetMidBody
	// GoAwayStorm ends each connection after a few requests, with GOAWAY on HTTP/2.
	GoAwayStorm
	// ExpiredCertificate, WrongAuthority and WrongName show a certificate that must not be accepted.
	ExpiredCertificate
	WrongAuthority
	WrongName
	// GarbageDiscovery answers 200 with a page of HTML wherever discovery is asked for.
	GarbageDiscovery
	// VanishingDiscovery answers that the group-version has no resources at all, while it serves them.
	VanishingDiscovery
	// HugeOpenAPI sends OpenAPI documents without end.
	HugeOpenAPI
	// Slow begins every response after slowDelay.
	Slow
	// Errors answers requests for objects with 500.
	Errors
	// OtherDiscovery lists one more resource, as another version of the program would. Its connections are cut at the
	// beginning, as by a restart.
	OtherDiscovery
	// Trickle sends one byte of a connection at a time, TLS and headers included.
	Trickle
	// NoInitialEvents ignores sendInitialEvents: such a watch begins with the next change, and no bookmark comes.
	NoInitialEvents
	// Stopped stops the process, as SIGSTOP or a frozen control group does. Only a server with Config.Command can have it.
	Stopped
)

// showsWrongCertificate are the faults of identity.
func (f Fault) showsWrongCertificate() bool {
	return f == ExpiredCertificate || f == WrongAuthority || f == WrongName
}
