package proxy

import "portico.dev/internal/transport"

// Witness hears what becomes of a request, on the goroutine that serves it: for the access log and the audit event.
type Witness interface {
	// Admitted is told which place the request has among those of its backend, until it is over. Whoever finds that the
	// client does not take the response may have it stall.
	Admitted(*transport.Slot)
	// Attempted is told which endpoint is being tried, and how many attempts there are with this one.
	Attempted(endpoint string, number int)
	// Failed is told the sentence that the client is told, or would be, had its response not begun.
	Failed(text string)
	// Lasts is told, at most once, that what follows may go on for long: a watch, a log or a console has begun. The
	// request's place among those of its backend is given back in this moment.
	Lasts()
}

// nobody is the Witness of requests without one.
type nobody struct{}

func (nobody) Admitted(*transport.Slot) {}
func (nobody) Attempted(string, int)    {}
func (nobody) Failed(string)            {}
func (nobody) Lasts()                   {}
