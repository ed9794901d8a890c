package request

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Resolver determines the API attributes of a request: verb, group, version, resource, name, subresource. It is safe
// for concurrent use.
type Resolver struct {
	factory apirequest.RequestInfoFactory
}

// NewResolver returns a Resolver for the prefixes /api and /apis.
func NewResolver() *Resolver {
	return &Resolver{factory: apirequest.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	}}
}

// Info returns the RequestInfo of r. An error is the client's fault (400).
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

// BackupPath is the path for backups of the front door, and BackupKeysPath for backups that include its keys. They
// are separate paths because permissions are granted per path. They use POST because many users may GET every path.
const (
	BackupPath     = "/backup"
	BackupKeysPath = BackupPath + "/keys"
)

// LongRunning reports whether a request is expected to exceed the request deadline, like kube-apiserver.
func LongRunning(info *apirequest.RequestInfo) bool {
	if info == nil {
		return false
	}
	if !info.IsResourceRequest && strings.HasPrefix(info.Path, "/debug/pprof/") { // the client selects the duration of a profile
		return true
	}
	if !info.IsResourceRequest && (info.Path == BackupPath || info.Path == BackupKeysPath) { // depends on the size of etcd
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

// IsTrue parses a boolean query parameter like the Kubernetes libraries: every value except "0" and "false" is true.
func IsTrue(query url.Values, name string) bool {
	values, ok := query[name]
	return ok && values[0] != "0" && !strings.EqualFold(values[0], "false")
}
