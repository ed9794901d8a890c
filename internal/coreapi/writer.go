package coreapi

import (
	"bufio"
	"context"
	"net"
	"net/http"
)

// streamWriter shows the library the two interfaces without which it refuses to serve a watch: it asks the writer that
// it is given, and does not look for what that writer wraps.
type streamWriter struct {
	http.ResponseWriter
	request context.Context
}

// upgradeWriter can be taken over too, for a watch over a websocket. Only HTTP/1.1 has that, and a writer that claims
// it over HTTP/2 would be believed.
type upgradeWriter struct{ streamWriter }

// forLibrary is w as the library wants it.
func forLibrary(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	s := streamWriter{w, r.Context()}
	if r.ProtoMajor == 1 {
		return upgradeWriter{s}
	}
	return s
}

var (
	_ http.Flusher = streamWriter{}
	//lint:ignore SA1019 the library lets only a CloseNotifier flush
	_ http.CloseNotifier = streamWriter{}
)

// Unwrap lets http.ResponseController through.
func (w streamWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush reaches through the writers that the chain has put around the connection.
func (w streamWriter) Flush() {
	_ = http.NewResponseController(w.ResponseWriter).Flush() // the next Write fails if this did
}

// CloseNotify is what there was before contexts.
func (w streamWriter) CloseNotify() <-chan bool {
	left := make(chan bool, 1)
	context.AfterFunc(w.request, func() { left <- true })
	return left
}

// Hijack implements http.Hijacker.
func (w upgradeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}
