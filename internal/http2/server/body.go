package server

import (
	"io"
	"net/http"

	"portico.dev/internal/http2/frame"
	"portico.dev/internal/httpmsg"
)

// body is a request's.
type body struct {
	frame.Body
	st *stream
	// expects is set while the client waits for 100 (Continue).
	expects bool
	// announced are the trailers that the request has when the body was read to its end, and came what came of them.
	announced, came http.Header
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.expects {
		b.expects = false
		b.st.res.goOn()
	}
	n, err := b.Body.Read(p)
	if err == io.EOF && b.came != nil {
		for name, values := range b.came {
			if _, ok := b.announced[name]; ok {
				b.announced[name] = values
			}
		}
		b.came = nil
	}
	return n, err
}

// trailers takes the trailers of the request, of which those count that it announced.
func (b *body) trailers(fields []pair) error {
	if len(fields) > httpmsg.MaxTrailers {
		return frame.StreamError{Code: frame.ProtocolError, Why: "too many trailers"}
	}
	if b.announced == nil {
		return nil
	}
	came := make(http.Header, len(fields))
	for _, f := range fields {
		name := frame.Canonical(f.name)
		if !httpmsg.MayBeTrailer(name) {
			continue
		}
		came[name] = append(came[name], f.value)
	}
	b.came = came
	return nil
}
