package aggregator

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
)

// jsonDeletions asks for JSON wherever something is deleted. The metadata client prefers protobuf in every request, and for
// deletions, unlike lists, without asking for metadata only: a backend whose kinds have no protobuf deletes, cannot encode
// what it deleted, and answers 406, for ever. k8s.io/sample-apiserver is one.
func jsonDeletions(next http.RoundTripper) http.RoundTripper {
	return deletions{next}
}

type deletions struct{ next http.RoundTripper }

func (d deletions) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodDelete {
		r = r.Clone(r.Context()) // a RoundTripper must not change its request
		r.Header.Set("Accept", runtime.ContentTypeJSON)
	}
	return d.next.RoundTrip(r)
}
