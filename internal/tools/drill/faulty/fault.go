package faulty

// Fault is the failure mode of a Server.
type Fault int

const (
	// Healthy is the absence of a fault.
	Healthy Fault = iota
	// Refuse resets new connections and closes existing ones, like the exit of a process.
	Refuse
	// Blackhole accepts connections, but transfers no byte in either direction, on old and new connections.
	Blackhole
	// Hang reads requests and answers HTTP/2 pings, but sends no responses.
	Hang
	// SlowDrip sends response bodies one byte at a time.
	SlowDrip
	// ResetMidBody resets every response about objects after half of its body.
	ResetMidBody
	// GoAwayStorm closes each connection after a few requests, with GOAWAY on HTTP/2.
	GoAwayStorm
	// ExpiredCertificate, WrongAuthority and WrongName present a certificate that clients must reject.
	ExpiredCertificate
	WrongAuthority
	WrongName
	// GarbageDiscovery answers discovery requests with 200 and a page of HTML.
	GarbageDiscovery
	// VanishingDiscovery reports that the group-version has no resources, while it serves them.
	VanishingDiscovery
	// HugeOpenAPI sends OpenAPI documents that never end.
	HugeOpenAPI
	// Slow delays every response by slowDelay.
	Slow
	// Errors answers requests for objects with 500.
	Errors
	// OtherDiscovery lists one additional resource, like another version of the program. It closes the connections at
	// the beginning, as a restart does.
	OtherDiscovery
	// Trickle sends one byte of a connection at a time, TLS and headers included.
	Trickle
	// NoInitialEvents ignores sendInitialEvents: such a watch begins with the next change and sends no bookmark.
	NoInitialEvents
	// Stopped stops the process, like SIGSTOP or a frozen cgroup. It requires Config.Command.
	Stopped
)

// showsWrongCertificate reports whether f is an identity fault.
func (f Fault) showsWrongCertificate() bool {
	return f == ExpiredCertificate || f == WrongAuthority || f == WrongName
}
