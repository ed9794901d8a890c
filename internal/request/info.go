package request

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Resolver reads the API meaning of a request: verb, group, version, resource, name, subresource.
// It is safe for concurrent use.
type Resolver struct {
	factory apirequest.RequestInfoFactory
}

// NewResolver returns a Resolver for the prefixes that every Kubernetes API server has: /api and /apis.
func NewResolver() *Resolver {
	return &Resolver{factory: apirequest.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	}}
}

// Info resolves r. The error is for the client (400).
func (s *Resolver) Info(r *http.Request) (*apirequest.RequestInfo, error) {
	if info := fastInfo(r); info != nil {
		return info, nil
	}
	info, err := s.factory.NewRequestInfo(r)
	if err != nil {
		return nil, fmt.Errorf("read the request's meaning: %w", err)
	}
	return info, nil
}

// BackupPath answers a POST with a backup of the front door, BackupKeysPath with one that has its keys too. They are paths of
// their own because rights are given by path, and POSTs because many may GET every path.
const (
	BackupPath     = "/backup"
	BackupKeysPath = BackupPath + "/keys"
)

// LongRunning reports whether a request is expected to outlive the request deadline, as kube-apiserver decides it.
func LongRunning(info *apirequest.RequestInfo) bool {
	if info == nil {
		return false
	}
	if !info.IsResourceRequest && strings.HasPrefix(info.Path, "/debug/pprof/") { // a profile takes as long as it is asked to
		return true
	}
	if !info.IsResourceRequest && (info.Path == BackupPath || info.Path == BackupKeysPath) { // as long as etcd is large
		return true
	}
	switch info.Verb {
	case "watch", "proxy":
		return true
	}
	switch info.Subresource {
	case "attach", "exec", "proxy", "log", "portforward":
		return info.IsResourceRequest
	}
	return false
}

// IsTrue reads a parameter of a query as the Kubernetes libraries do: all but "0" and "false" is true.
func IsTrue(query url.Values, name string) bool {
	values, ok := query[name]
	return ok && values[0] != "0" && !strings.EqualFold(values[0], "false")
}
