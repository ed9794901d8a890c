package client

import (
	"io"
	"net/http"
	"sync"

	"portico.dev/internal/http2/frame"
	"portico.dev/internal/httpmsg"
)

// trailerFields are the request's trailers.
type trailerFields http.Header

// WriteFields implements frame.Fields.
func (t trailerFields) WriteFields(e *frame.Encoder) {
	for name, values := range t {
		lower, ok := frame.Lower(name)
		for _, v := range values {
			if ok && httpmsg.ValidFieldValue(v) {
				e.Field(lower, v)
			}
		}
	}
}

var uploads = sync.Pool{New: func() any { b := make([]byte, frame.MaxFrame); return &b }}

// upload sends a body as it comes.
func (s *stream) upload() {
	defer s.wasSent()
	r, out := s.request, s.conn.out
	defer closeBody(r)
	room := uploads.Get().(*[]byte)
	defer uploads.Put(room)
	rest := s.length
	for {
		n, err := r.Body.Read(*room)
		if rest >= 0 {
			n = int(min(int64(n), rest)) // more than was announced would be a broken message
			if rest -= int64(n); rest == 0 && err == nil && s.trailers == "" {
				err = io.EOF
			}
		}
		if err == io.EOF && rest > 0 {
			err = errBodyTooShort
		}
		if err != nil && err != io.EOF {
			s.fail(&Error{Unread, err}, frame.Cancel)
			return
		}
		end := err == io.EOF && s.trailers == ""
		if n > 0 || end {
			if out.Data(&s.sender, (*room)[:n], end) != nil {
				return // whoever ended the stream knows why
			}
		}
		if err == nil {
			continue
		}
		if !end {
			_ = out.Message(&s.sender, trailerFields(r.Trailer), nil, true) // as above
		}
		return
	}
}

func (s *stream) wasSent() {
	s.conn.mu.Lock()
	s.sent = true
	s.conn.mu.Unlock()
}
