package discovery

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/respond"
)

// Overlay contains group-versions that replace those of another server in its documents.
type Overlay struct{ gvs []GroupVersion }

// NewOverlay returns the Overlay of some group-versions. s may be nil. A group-version that s does not contain, or for which serves
// returns false, is stale and has no resources: clients must not take it for absent.
func NewOverlay(s *Snapshot, gvs []schema.GroupVersion, serves func(schema.GroupVersion) bool) *Overlay {
	o := &Overlay{}
	for _, gv := range gvs {
		g := GroupVersion{GroupVersion: gv, Freshness: apidiscoveryv2.DiscoveryFreshnessStale}
		if s != nil && serves(gv) {
			if found, ok := s.Lookup(gv); ok {
				g = found
			}
		}
		o.gvs = append(o.gvs, g)
	}
	return o
}

// Form is a form of a document that a client accepts.
type Form struct {
	MediaType  string
	Aggregated bool
}

// AggregatedForm returns the form of the aggregated document that a request accepts. It returns false if it accepts the legacy one only.
func AggregatedForm(r *http.Request) (Form, bool) {
	mediaType, ok := negotiateAggregated(accept(r))
	return Form{mediaType, true}, ok
}

// LegacyForm returns the form of a legacy document that a request accepts.
func LegacyForm(r *http.Request) (Form, error) {
	e, ok := respond.Negotiate(accept(r))
	if !ok {
		return Form{}, respond.NotAcceptable(respond.MediaJSON, respond.MediaYAML, respond.MediaProtobuf)
	}
	return Form{MediaType: e.MediaType}, nil
}

// ContentType returns the media type with its parameters.
func (f Form) ContentType() string {
	if f.Aggregated {
		return withParams(f.MediaType, aggregatedParams)
	}
	return f.MediaType
}

// encode encodes a document in the form.
func (f Form) encode(document runtime.Object) ([]byte, error) {
	e, err := overlayEncoder()
	if err != nil {
		return nil, err
	}
	return e.encode(document, f.MediaType)
}

var overlayEncoder = sync.OnceValues(newEncoder)

// Version differs if the documents differ.
func (o *Overlay) Version() (string, error) {
	body, err := json.Marshal(aggregatedList(o.gvs, func(GroupVersion) bool { return true }))
	return respond.Hash(body), err
}

// Groups changes the document at /apis in either form.
func (o *Overlay) Groups(document []byte, f Form) ([]byte, error) {
	if f.Aggregated {
		return o.aggregated(document, f)
	}
	list := &metav1.APIGroupList{}
	if err := decodeDocument(document, list); err != nil {
		return nil, err
	}
	for _, g := range o.gvs {
		at := slices.IndexFunc(list.Groups, func(group metav1.APIGroup) bool { return group.Name == g.Group })
		if at < 0 {
			at = len(list.Groups)
			list.Groups = append(list.Groups, metav1.APIGroup{Name: g.Group})
		}
		addVersion(&list.Groups[at], g.GroupVersion)
	}
	list.TypeMeta = metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}
	return f.encode(list)
}

// Group changes the document of a group. document is nil if the other server does not serve it.
func (o *Overlay) Group(name string, document []byte, f Form) ([]byte, error) {
	group := &metav1.APIGroup{Name: name}
	if document != nil {
		if err := decodeDocument(document, group); err != nil {
			return nil, err
		}
	}
	for _, g := range o.gvs {
		if g.Group == name {
			addVersion(group, g.GroupVersion)
		}
	}
	group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
	return f.encode(group)
}

func addVersion(group *metav1.APIGroup, gv schema.GroupVersion) {
	version := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
	if !slices.Contains(group.Versions, version) {
		group.Versions = append(group.Versions, version)
	}
	if group.PreferredVersion.Version == "" {
		group.PreferredVersion = version
	}
}

func (o *Overlay) aggregated(document []byte, f Form) ([]byte, error) {
	list := &apidiscoveryv2.APIGroupDiscoveryList{}
	if err := decodeDocument(document, list); err != nil {
		return nil, err
	}
	for _, group := range aggregatedList(o.gvs, func(GroupVersion) bool { return true }).Items {
		at := slices.IndexFunc(list.Items, func(g apidiscoveryv2.APIGroupDiscovery) bool { return g.Name == group.Name })
		if at < 0 {
			list.Items = append(list.Items, group)
			continue
		}
		versions := &list.Items[at].Versions
		for _, version := range group.Versions {
			if at := slices.IndexFunc(*versions, func(v apidiscoveryv2.APIVersionDiscovery) bool { return v.Version == version.Version }); at >= 0 {
				(*versions)[at] = version
			} else {
				*versions = append(*versions, version)
			}
		}
	}
	list.TypeMeta = metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: apidiscoveryv2.SchemeGroupVersion.String()}
	return f.encode(list)
}

func decodeDocument(document []byte, into any) error {
	if err := json.Unmarshal(document, into); err != nil {
		return fmt.Errorf("decode the discovery document of the cluster: %w", err)
	}
	return nil
}
