package filters

import (
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
)

// auditedParameters are the query parameters whose values are audited. The values of others, such as the commands of an
// exec or a token that a client puts where it does not belong, are left out.
var auditedParameters = sets.New("labelSelector", "fieldSelector", "limit", "continue", "watch", "resourceVersion",
	"resourceVersionMatch", "timeoutSeconds", "timeout", "allowWatchBookmarks", "sendInitialEvents", "pretty", "dryRun",
	"fieldManager", "fieldValidation", "force", "propagationPolicy", "gracePeriodSeconds", "orphanDependents",
	"includeObject", "container", "follow", "previous", "sinceSeconds", "tailLines", "stdin", "stdout", "stderr", "tty")

// AuditedURI is the path and query of a request as an audit event shows them.
func AuditedURI(u *url.URL) string {
	if u.RawQuery == "" {
		return u.EscapedPath()
	}
	if isAudited(u.RawQuery) { // nearly always
		return u.EscapedPath() + "?" + u.RawQuery
	}
	pairs := strings.Split(u.RawQuery, "&")
	for i, pair := range pairs {
		switch name, _, ok := strings.Cut(pair, "="); {
		case auditedParameters.Has(name):
		case ok:
			pairs[i] = name + "=..."
		default:
			pairs[i] = "..." // a value without a name, perhaps
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
