package server

import (
	"errors"
	"io"
	"net/http"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// honest is the body of a request for the local groups, whose errors say whose fault they are: the library would answer
// them with 500 and log each. What a proxied request meets is the proxy's to tell.
type honest struct {
	io.ReadCloser
	held *held // nil: it is not counted
}

// withHonestBody also has reading the body end with the request's deadline. A context ends nobody who waits for bytes, and
// one client could keep every seat of its priority level with bodies that do not come.
func withHonestBody(w http.ResponseWriter, r *http.Request, h *held) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	body := r.Body
	r.Body = honest{body, h}
	if b, ok := body.(interface{ Buffered() (int, bool) }); ok {
		if _, ended := b.Buffered(); ended {
			return
		}
	}
	if at, ok := r.Context().Deadline(); ok {
		_ = http.NewResponseController(w).SetReadDeadline(at) // a request from within has its body at hand
	}
}

// Read implements io.Reader.
func (b honest) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.held != nil && !b.held.add(n) {
		return 0, errManyBodies()
	}
	switch {
	case err == nil || err == io.EOF:
		return n, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, apierrors.NewTimeoutError("the body of the request did not come before the deadline; send it faster, or ask for a longer timeout", 0)
	}
	return n, apierrors.NewBadRequest("the body of the request broke off, or is not one")
}
