package client

import (
	"io"
	"net/http"

	"portico.dev/internal/http2/frame"
)

// Read implements io.Reader for the response's body. Trailers are there when it returns io.EOF.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	if err == nil {
		return n, nil
	}
	s.off()
	if err == io.EOF && s.trailer != nil {
		if s.response.Trailer == nil {
			s.response.Trailer = make(http.Header, len(s.trailer))
		}
		for name, values := range s.trailer {
			s.response.Trailer[name] = values
		}
	}
	return n, err
}

// Ready reports whether a Read would not wait.
func (s *stream) Ready() bool {
	n, ended := s.body.Buffered()
	return n > 0 || ended
}

// Close gives up what was not read.
func (s *stream) Close() error {
	s.fail(closedBody, frame.Cancel)
	s.off()
	return s.body.Close()
}
