package proxy

import (
	"maps"
	"net/http"
	"net/textproto"
	"strings"
)

// WithoutNominated returns the request without the end-to-end fields that its Connection header nominates (RFC 9110,
// section 7.6.1). The proxy does not forward them, so routing, sharing and mirroring must not depend on them. The
// Connection header keeps its hop-by-hop options. It returns r itself if there is nothing to remove.
func WithoutNominated(r *http.Request) *http.Request {
	values := r.Header["Connection"]
	if len(values) == 0 || !nominatesFields(values) {
		return r
	}
	header := maps.Clone(r.Header)
	var kept []string
	for _, value := range values {
		for option := range strings.SplitSeq(value, ",") {
			option = strings.TrimSpace(option)
			switch {
			case option == "":
			case isHopByHopOption(option):
				kept = append(kept, option)
			default:
				delete(header, textproto.CanonicalMIMEHeaderKey(option))
			}
		}
	}
	if delete(header, "Connection"); len(kept) > 0 {
		header["Connection"] = []string{strings.Join(kept, ", ")}
	}
	out := r.WithContext(r.Context())
	out.Header = header
	return out
}

// nominatesFields reports whether a Connection header names end-to-end fields.
func nominatesFields(values []string) bool {
	for _, value := range values {
		for option := range strings.SplitSeq(value, ",") {
			if option = strings.TrimSpace(option); option != "" && !isHopByHopOption(option) {
				return true
			}
		}
	}
	return false
}

func isHopByHopOption(option string) bool {
	option = strings.ToLower(option)
	return option == "close" || option != "connection" && hopByHop[option]
}

// Forwards reports whether the proxy forwards a client's header field to backends, if the Connection header does not
// nominate it.
func (p *Proxy) Forwards(name string) bool { return !p.withheldFromBackend(name) }

// AcceptsTrailers reports whether the proxy forwards "TE: trailers". It does not forward any other TE value.
func AcceptsTrailers(client http.Header) bool { return lists(client["Te"], "trailers") }
