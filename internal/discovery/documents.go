package discovery

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/respond"
)

// aggregatedParams are the media type parameters of an aggregated document, in upstream's order.
const aggregatedParams = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// document is one object in every encoding. The ETag is the hash of its JSON for all encodings, like upstream's.
type document struct {
	etag string
	// encodings are by media type, without parameters.
	encodings map[string]*encoding
}

// encoding is a document in one media type. It is encoded at the first request, or earlier if clients requested the
// encoding of the previous document.
type encoding struct {
	make      func() (*respond.Document, error)
	requested atomic.Bool
}

// request returns the encoding to a client.
func (e *encoding) request() (*respond.Document, error) {
	if !e.requested.Load() {
		e.requested.Store(true)
	}
	return e.make()
}

type encoder struct {
	codecs serializer.CodecFactory
}

func newEncoder() (*encoder, error) {
	scheme := runtime.NewScheme()
	if err := apidiscoveryv2.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register discovery types: %w", err)
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return &encoder{codecs: serializer.NewCodecFactory(scheme)}, nil
}

// document encodes obj, which must have a kind and an apiVersion, as JSON immediately and in other encodings on demand.
// params are appended to the media types.
func (e *encoder) document(obj runtime.Object, params string) (*document, error) {
	asJSON, err := e.encode(obj, respond.MediaJSON)
	if err != nil {
		return nil, err
	}
	d := &document{etag: `"` + respond.Hash(asJSON) + `"`, encodings: map[string]*encoding{}}
	for mediaType, plain := range map[string]func() ([]byte, error){
		respond.MediaJSON: func() ([]byte, error) { return asJSON, nil },
		// Convert from JSON: otherwise the closure would keep obj, which is large, in memory for a rare request.
		respond.MediaYAML:     func() ([]byte, error) { return yaml.JSONToYAML(asJSON) },
		respond.MediaProtobuf: func() ([]byte, error) { return e.encode(obj, respond.MediaProtobuf) },
	} {
		d.encodings[mediaType] = &encoding{make: sync.OnceValues(func() (*respond.Document, error) {
			body, err := plain()
			if err != nil {
				return nil, err
			}
			made := &respond.Document{ETag: d.etag, ContentType: withParams(mediaType, params), Vary: "Accept", Plain: body}
			if len(body) > respond.CompressAbove {
				made.Gzip, err = respond.Pack(body, gzip.BestSpeed)
			}
			return made, err
		})}
	}
	return d, nil
}

// prepare makes the encodings that clients usually request, so that no request has to wait. It skips the encodings that
// were not requested of the previous document: while a thousand backends are registered there are hundreds of documents,
// most of which are never read. YAML is slow to encode and made on demand.
func (d *document) prepare(before *document) error {
	for _, mediaType := range []string{respond.MediaJSON, respond.MediaProtobuf} {
		if before != nil && !before.encodings[mediaType].requested.Load() {
			continue
		}
		if _, err := d.encodings[mediaType].make(); err != nil {
			return err
		}
	}
	return nil
}

func (e *encoder) encode(obj runtime.Object, mediaType string) ([]byte, error) {
	info, ok := runtime.SerializerInfoForMediaType(e.codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		return nil, fmt.Errorf("no serializer for %s", mediaType)
	}
	var body bytes.Buffer
	if err := info.Serializer.Encode(obj, &body); err != nil {
		return nil, fmt.Errorf("encode %T as %s: %w", obj, mediaType, err)
	}
	return body.Bytes(), nil
}

func withParams(mediaType, params string) string {
	if params == "" {
		return mediaType
	}
	return mediaType + ";" + params
}

// Local contains the resources that this server serves itself, in the form of the aggregated documents of /api and /apis.
type Local struct {
	Core   []apidiscoveryv2.APIGroupDiscovery
	Groups []apidiscoveryv2.APIGroupDiscovery
}

// resources returns the served resources of each group-version.
func (l Local) resources() map[schema.GroupVersion][]apidiscoveryv2.APIResourceDiscovery {
	served := map[schema.GroupVersion][]apidiscoveryv2.APIResourceDiscovery{}
	for _, groups := range [][]apidiscoveryv2.APIGroupDiscovery{l.Core, l.Groups} {
		for _, group := range groups {
			for _, version := range group.Versions {
				gv := schema.GroupVersion{Group: group.Name, Version: version.Version}
				served[gv] = fill(version.DeepCopy().Resources)
			}
		}
	}
	return served
}

// mergeGroupVersions returns the group-versions of all routes. The order is the table's, which is the order of legacy
// discovery.
//
// A local route with a group-version that is not served is omitted, like upstream does, because any client may create an
// APIService without a Service under any name. A local group-version without a route is also omitted, because requests
// would not reach it.
func mergeGroupVersions(local Local, table remote.Table, records map[string]*record) []GroupVersion {
	served := local.resources()
	routes := map[string]remote.Route{}
	for _, r := range table.Routes {
		if r.PartOf != "" {
			routes[r.APIService] = r
		}
	}
	merged := make([]GroupVersion, 0, len(table.Routes))
	for _, r := range table.Routes {
		if r.PartOf != "" {
			continue
		}
		g := GroupVersion{GroupVersion: r.GroupVersion, APIService: r.APIService, Local: r.Local, groupPriority: r.GroupPriority}
		if r.Local {
			resources, ok := served[r.GroupVersion]
			if !ok {
				continue
			}
			g.Freshness, g.Resources = apidiscoveryv2.DiscoveryFreshnessCurrent, resources
		} else if len(r.Parts) > 0 {
			g.unavailable, g.lastTransition = !r.Available && !r.ReachedElsewhere, r.Since
			g.uniteParts(r, routes, records, served[r.GroupVersion])
		} else {
			rec := records[r.APIService]
			g.unavailable, g.lastTransition = !r.Available && !r.ReachedElsewhere, r.Since
			g.Freshness, g.Reason = rec.freshness(r)
			g.Resources = rec.resources(r)
		}
		merged = append(merged, g)
	}
	return registrationFirst(merged)
}

// registrationFirst moves apiregistration.k8s.io to the front, whatever the priorities of the other groups.
func registrationFirst(gvs []GroupVersion) []GroupVersion {
	slices.SortStableFunc(gvs, func(a, b GroupVersion) int {
		return cmp.Compare(rank(a.Group), rank(b.Group))
	})
	return gvs
}

func rank(group string) int {
	if group == "apiregistration.k8s.io" {
		return 0
	}
	return 1
}

// aggregatedList returns the v2 document of the group-versions for which keep holds: groups by priority, then by name. This
// order differs slightly from the legacy list.
func aggregatedList(gvs []GroupVersion, keep func(GroupVersion) bool) *apidiscoveryv2.APIGroupDiscoveryList {
	list := &apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: apidiscoveryv2.SchemeGroupVersion.String()},
		Items:    []apidiscoveryv2.APIGroupDiscovery{},
	}
	place, priority := map[string]int{}, map[string]int32{}
	for _, g := range gvs {
		if !keep(g) {
			continue
		}
		at, ok := place[g.Group]
		if !ok {
			at = len(list.Items)
			place[g.Group] = at
			list.Items = append(list.Items, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.Group}})
		}
		priority[g.Group] = max(priority[g.Group], g.groupPriority)
		list.Items[at].Versions = append(list.Items[at].Versions, apidiscoveryv2.APIVersionDiscovery{
			Version: g.Version, Resources: g.Resources, Freshness: g.Freshness,
		})
	}
	slices.SortFunc(list.Items, func(a, b apidiscoveryv2.APIGroupDiscovery) int {
		return cmp.Or(
			cmp.Compare(rank(a.Name), rank(b.Name)),
			cmp.Compare(priority[b.Name], priority[a.Name]),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return list
}

// legacyGroups returns the groups of the legacy list. It includes a group with only dead backends: hiding it made namespace
// controllers orphan objects (kubernetes/kubernetes#66932).
func legacyGroups(gvs []GroupVersion) []metav1.APIGroup {
	groups := []metav1.APIGroup{}
	place := map[string]int{}
	for _, g := range gvs {
		if g.Group == "" {
			continue
		}
		version := metav1.GroupVersionForDiscovery{GroupVersion: g.GroupVersion.String(), Version: g.Version}
		at, ok := place[g.Group]
		if !ok {
			at = len(groups)
			place[g.Group] = at
			groups = append(groups, metav1.APIGroup{Name: g.Group, PreferredVersion: version})
		}
		groups[at].Versions = append(groups[at].Versions, version)
	}
	return groups
}

func legacyVersions(gvs []GroupVersion, address string) *metav1.APIVersions {
	versions := &metav1.APIVersions{
		TypeMeta:                   metav1.TypeMeta{Kind: "APIVersions"},
		Versions:                   []string{},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: address}},
	}
	for _, g := range gvs {
		if g.Group == "" {
			versions.Versions = append(versions.Versions, g.Version)
		}
	}
	return versions
}
