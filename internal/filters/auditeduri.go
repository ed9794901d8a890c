package filters

import (
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
)

// auditedParameters are the query parameters that are audited with their values. Other values are omitted, such as
// the commands of an exec or a token in the wrong place.
var auditedParameters = sets.New("labelSelector", "fieldSelector", "limit", "continue", "watch", "resourceVersion",
	"resourceVersionMatch", "timeoutSeconds", "timeout", "allowWatchBookmarks", "sendInitialEvents", "pretty", "dryRun",
	"fieldManager", "fieldValidation", "force", "propagationPolicy", "gracePeriodSeconds", "orphanDependents",
	"includeObject", "container", "follow", "previous", "sinceSeconds", "tailLines", "stdin", "stdout", "stderr", "tty")

// AuditedURI returns the path and query of a request for audit events.
func AuditedURI(u *url.URL) string {
	if u.RawQuery == "" {
		return u.EscapedPath()
	}
	if isAudited(u.RawQuery) { // the common case
		return u.EscapedPath() + "?" + u.RawQuery
	}
	pairs := strings.Split(u.RawQuery, "&")
	for i, pair := range pairs {
		switch name, _, ok := strings.Cut(pair, "="); {
		case auditedParameters.Has(name):
		case ok:
			pairs[i] = name + "=..."
		default:
			pairs[i] = "..." // perhaps a value without a name
		}
	}
	return u.EscapedPath() + "?" + strings.Join(pairs, "&")
}

// isAudited reports whether all values of a query are audited.
func isAudited(query string) bool {
	for more := true; more; {
		var pair string
		pair, query, more = strings.Cut(query, "&")
		name, _, _ := strings.Cut(pair, "=")
		if !auditedParameters.Has(name) {
			return false
		}
	}
	return true
}
