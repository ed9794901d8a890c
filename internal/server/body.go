package server

import (
	"errors"
	"io"
	"net/http"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// timely is the body of a request for the local groups: reading it ends with the request's deadline. A context ends nobody
// who waits for bytes, and one client could keep every seat of its priority level with bodies that do not come. A proxied
// request ends by itself (proxy).
type timely struct{ io.ReadCloser }

func withTimelyBody(w http.ResponseWriter, r *http.Request) {
	at, ok := r.Context().Deadline()
	if !ok || r.Body == nil || r.Body == http.NoBody {
		return
	}
	if b, ok := r.Body.(interface{ Buffered() (int, bool) }); ok {
		if _, ended := b.Buffered(); ended {
			return
		}
	}
	if http.NewResponseController(w).SetReadDeadline(at) == nil { // a request from within has its body at hand
		r.Body = timely{r.Body}
	}
}

// Read implements io.Reader.
func (b timely) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = apierrors.NewTimeoutError("the body of the request did not come before the deadline; send it faster, or ask for a longer timeout", 0)
	}
	return n, err
}
