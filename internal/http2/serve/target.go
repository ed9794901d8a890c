package serve

import "portico.dev/internal/handler"

// address fills in what the request is for.
func (st *stream) address(h *head) error {
	st.req.URL, st.req.RequestURI = &st.url, h.path
	if h.method == "CONNECT" {
		st.url.Host, st.req.RequestURI = h.authority, h.authority
		return nil
	}
	if handler.ParseTarget(h.path, &st.url) != nil {
		return malformed("a path that is none")
	}
	return nil
}
