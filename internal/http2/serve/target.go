package serve

import (
	"net/http"

	"portico.dev/internal/handler"
)

// address fills in what the request is for. A *handler.RequestError is for the client to read.
func (st *stream) address(h *head) error {
	st.req.URL, st.req.RequestURI = &st.url, h.path
	target := h.path
	switch {
	case h.method == http.MethodConnect:
		target, st.req.RequestURI = h.authority, h.authority
	case target[0] != '/' && target != "*":
		return malformed("a path that is none")
	}
	if err := handler.CheckMethod(h.method); err != nil {
		return err
	}
	if err := handler.CheckAuthority(h.authority); err != nil {
		return err
	}
	for _, host := range st.req.Header["Host"] {
		if err := handler.CheckAuthority(host); err != nil {
			return err
		}
		if !handler.SameAuthority(host, h.authority) { // RFC 9113, 8.3.1
			return &handler.RequestError{Element: "authority", Why: "the request has a Host that is another one than its authority"}
		}
	}
	return handler.ParseTarget(h.method, target, &st.url)
}
