package httpmsg

// What servers are asked when memory is short: which connections to close, and whose requests to refuse.

// Identity is what is known of those who use a connection. Servers learn it from handlers, which authenticate each request and tell
// their http.ResponseWriter, when it has the method:
//
//	Identified(privileged bool)
//
// A handler that keeps much in memory because of its request says so, and takes it back, by another method:
//
//	Holds(n int64)
type Identity = int32

// The identities of a connection. It is that of its last request that was authenticated.
const (
	Unidentified Identity = iota
	Ordinary
	Privileged // its requests are refused last
)

// IdentityOf is the identity of a privileged user, or of any other.
func IdentityOf(privileged bool) Identity {
	if privileged {
		return Privileged
	}
	return Ordinary
}

// Holder is a connection.
type Holder struct {
	// Bytes is how much memory it holds, as far as its server knows.
	Bytes int64
	Conn  interface {
		// Cut ends what it does for users who are not privileged. It does not wait.
		Cut()
	}
}

// LeastHeld is how much a connection holds that is worth cutting: less does not help, and might be anybody's.
const LeastHeld = 64 << 10

// HeldByRequest is what a request holds beside what can be counted: its handler's stack, and what it is made of.
const HeldByRequest = 16 << 10
