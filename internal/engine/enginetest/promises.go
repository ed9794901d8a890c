package enginetest

// Promise is what Portico's own server does and the library cannot be brought to.
type Promise string
