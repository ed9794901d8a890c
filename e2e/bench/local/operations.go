package local

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The layers, from the inside out.
const (
	libraryLayer   = "storage library"
	handlerLayer   = "REST handler"
	chainLayer     = "chain and handler"
	frontDoorLayer = "front door, TLS"
)

var layers = []string{libraryLayer, handlerLayer, chainLayer, frontDoorLayer}

// The namespaces: one with a hundred objects, one with ten thousand, and one in which objects are created.
const (
	fewIn, manyIn, madeIn = "few", "many", "made"
	few                   = 100
	first                 = "object-0"
	watchers              = 100
)

// ManyPath is the path of the long list. Its first object is object-0.
const ManyPath = "/api/v1/namespaces/" + manyIn + "/configmaps"

// watchFirst selects one object, because the existing objects would otherwise dominate the deliveries.
const watchFirst = "?watch=true&fieldSelector=metadata.name%3D" + first

// Operation is an operation of clients.
type Operation struct {
	Name    string `json:"operation"`
	Clients int    `json:"clients"`
	// accept is the media type of a list of all objects.
	accept string
	kind   kind
}

type kind int

const (
	creating kind = iota
	getting
	gettingCached
	listing
	listingAll
	watching
	nothing
)

// forms lists the media types of a list of ten thousand objects.
var forms = []struct{ name, accept string }{
	{"JSON", jsonType},
	{"protobuf", "application/vnd.kubernetes.protobuf"},
	{"Table", "application/json;as=Table;v=v1;g=meta.k8s.io"},
	{"metadata", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"},
}

func operations(many int) []Operation {
	var all []Operation
	for _, o := range []Operation{
		{Name: "a request to an empty handler", kind: nothing}, {Name: "get", kind: getting}, {Name: "get, resourceVersion=0", kind: gettingCached},
		{Name: "create", kind: creating}, {Name: fmt.Sprintf("list %d", few), kind: listing},
	} {
		for _, o.Clients = range []int{1, 32} {
			all = append(all, o)
		}
	}
	for _, f := range forms {
		all = append(all, Operation{Name: fmt.Sprintf("list %d, %s", many, f.name), Clients: 1, kind: listingAll, accept: f.accept})
	}
	return append(all, Operation{Name: "watch, an event", Clients: watchers, kind: watching})
}

// Compared returns the operations that any API server supports.
func Compared(many int) []Operation {
	var all []Operation
	for _, o := range operations(many) {
		if o.kind != nothing && o.kind != watching {
			all = append(all, o)
		}
	}
	for _, n := range []int{1, 32} {
		all = append(all, Operation{Name: "watch, an event", Clients: n, kind: watching})
	}
	return all
}

func newConfigMap(ns, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Data: map[string]string{"value": value(name)}}
}

// value has the same length for every object, but a different content, because a server may store common content
// once.
func value(name string) string { return name + filler[len(name):] }

var filler = strings.Repeat("c", 900)

func body(ns, name string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"` + ns + `","name":"` + name + `"},"data":{"value":"` + value(name) + `"}}`
}

func annotation(sent string) string { return `{"metadata":{"annotations":{"sent":"` + sent + `"}}}` }

func nameOf(n int) string { return "object-" + strconv.Itoa(n) }
