// Package handler is what the servers of HTTP/1.1 and of HTTP/2 have in common: what a handler meets must not depend on how
// its request came. What the elements of a request may contain (rules.go) holds for the clients too, which send it on.
package httpmsg
