package coreapi

import (
	"context"
	"net/http"
)

// streamWriter shows the library the two interfaces without which it refuses to serve a watch: it asks the writer that
// it is given, and does not look for what that writer wraps.
type streamWriter struct {
	http.ResponseWriter
	request context.Context
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
