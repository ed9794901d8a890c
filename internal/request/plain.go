package request

import (
	"net/http"
	"strings"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// plainInfo is the meaning of a request whose query does not count, as nearly all have it, in one allocation: the
// library's own reading of it costs three, and of a list without parameters a decoding by reflection. Nil: it is the
// library's to say. A fuzz test holds the two against each other.
func plainInfo(r *http.Request) *apirequest.RequestInfo {
	verb := plainVerbs[r.Method]
	if verb == "" {
		return nil
	}
	m := &meaning{}
	parts := m.split(r.URL.Path)
	if len(parts) < 3 {
		return nil
	}
	m.info = apirequest.RequestInfo{IsResourceRequest: true, Path: r.URL.Path, Verb: verb, APIPrefix: parts[0]}
	switch parts = parts[1:]; {
	case m.info.APIPrefix == "api":
	case m.info.APIPrefix == "apis" && len(parts) >= 3:
		m.info.APIGroup, parts = parts[0], parts[1:]
	default:
		return nil
	}
	m.info.APIVersion, parts = parts[0], parts[1:]
	switch parts[0] {
	case "proxy", "watch": // verbs of old, in the path
		return nil
	case "namespaces":
		if len(parts) > 1 {
			m.info.Namespace = parts[1]
			if len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
				parts = parts[2:]
			}
		}
	}
	m.info.Parts, m.info.Resource = parts, parts[0]
	if len(parts) > 1 {
		m.info.Name = parts[1]
	}
	if len(parts) > 2 {
		m.info.Subresource = parts[2]
	}
	return m.ofAll(r.URL.RawQuery)
}

// plainVerbs are the verbs of methods for one object.
var plainVerbs = map[string]string{
	http.MethodGet: "get", http.MethodHead: "get", http.MethodPost: "create", http.MethodPut: "update",
	http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// meaning is a RequestInfo with room for its parts.
type meaning struct {
	info  apirequest.RequestInfo
	parts [8]string
}

// split is the segments of a path, none when they are too many or one is empty.
func (m *meaning) split(path string) []string {
	parts := m.parts[:0]
	for rest, more := strings.Trim(path, "/"), true; more; {
		var part string
		part, rest, more = strings.Cut(rest, "/")
		if part == "" || len(parts) == len(m.parts) {
			return nil
		}
		parts = append(parts, part)
	}
	return parts
}

// ofAll turns the verbs for one object into those for many where none is named.
func (m *meaning) ofAll(query string) *apirequest.RequestInfo {
	if m.info.Name != "" {
		return &m.info
	}
	many := ""
	switch m.info.Verb {
	case "get":
		many = "list"
	case "delete":
		many = "deletecollection"
	default:
		return &m.info
	}
	if query != "" {
		return nil // it may say watch, a name or selectors
	}
	m.info.Verb = many
	return &m.info
}
