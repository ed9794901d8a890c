package request

import (
	"net/http"
	"strings"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// fastInfo returns the RequestInfo of a request without selectors in its query, which covers nearly all requests, in
// one allocation. k8s.io/apiserver's parser needs three, and decodes the options of a list by reflection. fastInfo
// returns nil if that parser must be used. A fuzz test compares the two.
func fastInfo(r *http.Request) *apirequest.RequestInfo {
	verb := objectVerbs[r.Method]
	if verb == "" {
		return nil
	}
	m := &parsedInfo{}
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
	case "proxy", "watch": // deprecated verbs in the path
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
	return m.collectionVerb(r.URL.RawQuery)
}

// objectVerbs maps methods to the verbs for a single object.
var objectVerbs = map[string]string{
	http.MethodGet: "get", http.MethodHead: "get", http.MethodPost: "create", http.MethodPut: "update",
	http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// parsedInfo is a RequestInfo with space for its parts.
type parsedInfo struct {
	info  apirequest.RequestInfo
	parts [8]string
}

// split returns the segments of a path, or nil if there are too many or one is empty.
func (m *parsedInfo) split(path string) []string {
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

// collectionVerb replaces the verb for a single object by the verb for a collection if the path has no name.
func (m *parsedInfo) collectionVerb(query string) *apirequest.RequestInfo {
	if m.info.Name != "" {
		return &m.info
	}
	if m.info.Verb != "get" && m.info.Verb != "delete" {
		return &m.info
	}
	watch, plain := plainQuery(query)
	switch {
	case !plain:
		return nil
	case m.info.Verb == "delete":
		m.info.Verb = "deletecollection"
	case watch:
		m.info.Verb = "watch"
	default:
		m.info.Verb = "list"
	}
	return &m.info
}

// plainQuery reports whether a query contains only parameters that do not select objects, regardless of their values,
// and whether it requests a watch.
func plainQuery(query string) (watch, plain bool) {
	asked := false
	for more := query != ""; more; {
		var pair string
		pair, query, more = strings.Cut(query, "&")
		name, value, _ := strings.Cut(pair, "=")
		switch name {
		case "limit", "continue", "resourceVersion", "resourceVersionMatch", "allowWatchBookmarks", "sendInitialEvents", "timeoutSeconds", "timeout":
		case "watch":
			watch = value == "true" || value == "1"
			if asked || !watch && value != "false" && value != "0" {
				return false, false
			}
			asked = true
		default:
			return false, false
		}
	}
	return watch, true
}
