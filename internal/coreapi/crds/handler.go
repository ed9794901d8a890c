package crds

import (
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"

	"portico.dev/internal/respond"
)

// ServeHTTP serves custom resources, and the discovery document of each group-version.
func (d *Definitions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, ok := apirequest.RequestInfoFrom(r.Context())
	if ok && instanceInProtobuf(info, r) {
		respond.Error(w, r, negotiation.NewUnsupportedMediaTypeError([]string{runtime.ContentTypeJSON, runtime.ContentTypeYAML}))
		return
	}
	if !ok || info.IsResourceRequest {
		d.instances.ServeHTTP(w, r)
		return
	}
	parts := strings.Split(strings.Trim(info.Path, "/"), "/")
	if len(parts) != 3 || parts[0] != "apis" {
		notFound(w, r)
		return
	}
	gv := schema.GroupVersion{Group: parts[1], Version: parts[2]}
	resources, ok := d.Served().resources[gv]
	switch {
	case !ok:
		notFound(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		respond.Error(w, r, apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, r.Method, schema.GroupResource{}, "", "", 0, false))
	default:
		respond.Object(w, r, http.StatusOK, &metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: gv.String(), APIResources: resources,
		})
	}
}

// instanceInProtobuf reports whether a body contains a custom resource in protobuf, which is not possible.
// apiextensions-apiserver's handler advertises protobuf, because it encodes tables and metadata and decodes delete options in
// it, and then calls a nil decoder.
func instanceInProtobuf(info *apirequest.RequestInfo, r *http.Request) bool {
	if !info.IsResourceRequest || info.Verb != "create" && info.Verb != "update" || info.Subresource == "scale" {
		return false
	}
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && mediaType == runtime.ContentTypeProtobuf
}

// notFound returns 404 for paths that no definition serves.
func notFound(w http.ResponseWriter, r *http.Request) {
	respond.Error(w, r, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "", "", 0, false))
}

// StorageCodec returns kube-apiserver's codec for stored definitions: JSON of v1.
func StorageCodec() runtime.Codec {
	return apiserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion)
}

// Storage opens the storage of definitions and of their status.
func Storage(options generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	definitions, err := customresourcedefinition.NewREST(apiserver.Scheme, options)
	if err != nil {
		return nil, fmt.Errorf("open customresourcedefinitions: %w", err)
	}
	return map[string]rest.Storage{
		"customresourcedefinitions":        definitions,
		"customresourcedefinitions/status": customresourcedefinition.NewStatusREST(apiserver.Scheme, definitions),
	}, nil
}

// justEstablished is the time during which apiextensions-apiserver's handler treats a definition as new. It delays the first
// create of an instance by that time, so that the next request does not reach a replica without the definition. A single server
// has no such replica, so the delay would only cost two seconds in every installation.
const justEstablished = 2 * time.Second

// settledInformer presents every established definition to apiextensions-apiserver's handler as established long ago.
type settledInformer struct {
	apiextensionsinformers.CustomResourceDefinitionInformer
}

func (i settledInformer) Lister() apiextensionslisters.CustomResourceDefinitionLister {
	return settledLister{i.CustomResourceDefinitionInformer.Lister()}
}

type settledLister struct {
	apiextensionslisters.CustomResourceDefinitionLister
}

func (l settledLister) Get(name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd, err := l.CustomResourceDefinitionLister.Get(name)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established
	})
	if at < 0 || time.Since(crd.Status.Conditions[at].LastTransitionTime.Time) > justEstablished {
		return crd, nil
	}
	// Copy only the changed parts. The rest is shared with the cache and only read.
	settled := *crd
	settled.Status.Conditions = slices.Clone(crd.Status.Conditions)
	settled.Status.Conditions[at].LastTransitionTime = metav1.Time{}
	return &settled, nil
}
