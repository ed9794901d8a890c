package server

import (
	"net/http"

	"portico.dev/internal/httpmsg"
)

// address fills in what the request is for. A *httpmsg.RequestError is for the client to read.
func (st *stream) address(h *head) error {
	st.req.URL, st.req.RequestURI = &st.url, h.path
	target := h.path
	switch {
	case h.method == http.MethodConnect:
		target, st.req.RequestURI = h.authority, h.authority
	case target[0] != '/' && target != "*":
		return malformed("a path that is none")
	}
	if err := httpmsg.CheckMethod(h.method); err != nil {
		return err
	}
	if err := httpmsg.CheckAuthority(h.authority); err != nil {
		return err
	}
	for _, host := range st.req.Header["Host"] {
		if err := httpmsg.CheckAuthority(host); err != nil {
			return err
		}
		if !httpmsg.SameAuthority(host, h.authority) { // RFC 9113, 8.3.1
			return &httpmsg.RequestError{Element: "authority", Why: "the request has a Host that is another one than its authority"}
		}
	}
	return httpmsg.ParseTarget(h.method, target, &st.url)
}
