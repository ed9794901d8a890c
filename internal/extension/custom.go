package extension

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/respond"
)

// CustomDefinition hosts a whole group-version whose paths are not plain resources, such as custom.metrics.k8s.io with
// its namespaces/<namespace>/pods/*/<metric>.
type CustomDefinition struct {
	GroupVersion schema.GroupVersion
	// Resources is what discovery lists. It is asked at every discovery request, so it must be quick, and it may change.
	Resources func() []metav1.APIResource
	// Serve answers what lies below the group-version, all methods. Who asks (apirequest.UserFrom), whether they may and
	// the limits have been seen to. WriteObject and WriteError answer as the rest of the host does.
	Serve func(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo)
	// OpenAPI are the schemas of the kinds, by definition name. They may refer to each other in the spelling of either
	// OpenAPI version. Optional.
	OpenAPI map[string]json.RawMessage
}

// Custom makes a Resource of a whole group-version. It may not be hosted together with others of that group-version.
func Custom(d CustomDefinition) Resource {
	return Resource{id: &resourceID{}, gvr: d.GroupVersion.WithResource(""), custom: &d}
}

func (d *CustomDefinition) validate() error {
	switch {
	case d.GroupVersion.Group == "" || d.GroupVersion.Version == "":
		return fmt.Errorf("custom group-version %q: group and version are required", d.GroupVersion)
	case d.Resources == nil || d.Serve == nil:
		return fmt.Errorf("custom group-version %q: Resources and Serve are required", d.GroupVersion)
	}
	return nil
}

// WriteObject answers with o in the encoding that the client asked for: JSON, YAML, or protobuf when the type has it. o
// must say its kind. What cannot be had is answered 406.
func WriteObject(w http.ResponseWriter, r *http.Request, code int, o runtime.Object) {
	_, protobuf := o.(marshaler)
	offer := offer{verb: "get", protobuf: protobuf, wholeOnly: true}
	rep, ok := offer.negotiate(r.Header.Get("Accept"))
	if !ok {
		WriteError(w, r, respond.NotAcceptable(offer.acceptable()...))
		return
	}
	doc := document{kind: o.GetObjectKind().GroupVersionKind(), value: o, message: func() ([]byte, error) { return marshal(o) }}
	var body bytes.Buffer
	if err := doc.encode(&body, rep.media); err != nil {
		WriteError(w, r, err)
		return
	}
	writeBody(w, r, code, rep.contentType(), "", body.Bytes())
}

// WriteError answers with err as a Status: one that carries a Status as it is, ErrNotFound as 404, any other as 500.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, ErrNotFound) {
		err = notFound(r)
	}
	respond.Error(w, r, err)
}
