// Package handler is what the servers of HTTP/1.1 and of HTTP/2 have in common: what a handler meets must not depend on how
// its request came.
package handler
