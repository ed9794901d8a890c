package semantics

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	asTable    = "application/json;as=Table;v=v1;g=meta.k8s.io"
	asMetadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	asList     = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
)

// table sends kubectl get's request.
func table(t *testing.T, k kind) {
	o := k.create(t, "tabled", labelled("tabled", "yes"))
	for _, c := range []struct{ include, kind string }{
		{"", "PartialObjectMetadata"}, {"Metadata", "PartialObjectMetadata"}, {"Object", o.GetKind()}, {"None", ""},
	} {
		for _, path := range []string{k.path(o), k.collection()} {
			var got struct {
				Kind              string                         `json:"kind"`
				ColumnDefinitions []metav1.TableColumnDefinition `json:"columnDefinitions"`
				Rows              []struct {
					Cells  []any          `json:"cells"`
					Object map[string]any `json:"object"`
				} `json:"rows"`
			}
			pairs := []string{"includeObject", c.include}
			if path == k.collection() {
				pairs = append(pairs, "labelSelector", "tabled")
			}
			call(t, http.MethodGet, path+query(pairs...), nil, "Accept", asTable).want(http.StatusOK).into(&got)
			if got.Kind != "Table" || len(got.Rows) != 1 || len(got.ColumnDefinitions) == 0 || len(got.Rows[0].Cells) != len(got.ColumnDefinitions) {
				t.Fatalf("Table of %s = %+v, want one row with a cell per column", path, got)
			}
			if kind, _ := got.Rows[0].Object["kind"].(string); kind != c.kind {
				t.Errorf("object in the row with includeObject=%s has the kind %q, want %q", c.include, kind, c.kind)
			}
			if at := slices.IndexFunc(got.ColumnDefinitions, func(d metav1.TableColumnDefinition) bool { return d.Name == "Name" }); at < 0 || got.Rows[0].Cells[at] != o.GetName() {
				t.Errorf("cells of the row = %v, want the name", got.Rows[0].Cells)
			}
		}
	}
	w := openWatch(t, k.collection()+query("watch", "true", "labelSelector", "tabled"), "Accept", asTable)
	if e := w.next(); e.Type != "ADDED" || e.Object.GetKind() != "Table" {
		t.Errorf("watch event = %s %s, want ADDED with a Table", e, e.Object.GetKind())
	}
	call(t, http.MethodGet, k.collection()+"?includeObject=Half", nil, "Accept", asTable).want(http.StatusBadRequest)
}

// partialMetadata sends the requests of garbage collectors and metadata caches.
func partialMetadata(t *testing.T, k kind) {
	o := k.create(t, "partial", labelled("partial", "yes"))
	got := call(t, http.MethodGet, k.path(o), nil, "Accept", asMetadata).want(http.StatusOK).object()
	if got.GetKind() != "PartialObjectMetadata" || got.GetAPIVersion() != "meta.k8s.io/v1" || got.GetUID() != o.GetUID() {
		t.Errorf("partial metadata = %v, want PartialObjectMetadata with the UID", got.Object)
	}
	for field := range got.Object {
		if field != "kind" && field != "apiVersion" && field != "metadata" {
			t.Errorf("partial metadata has the field %q, want only the metadata", field)
		}
	}
	selected := query("labelSelector", "partial")
	var list unstructured.UnstructuredList
	if err := list.UnmarshalJSON(call(t, http.MethodGet, k.collection()+selected, nil, "Accept", asList).want(http.StatusOK).body); err != nil {
		t.Fatal(err)
	}
	if list.GetKind() != "PartialObjectMetadataList" || len(list.Items) != 1 || list.Items[0].GetUID() != o.GetUID() || list.Items[0].Object["spec"] != nil {
		t.Errorf("list of partial metadata = %v, want one item without a spec", list)
	}
	w := openWatch(t, k.collection()+selected+"&watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "Accept", asMetadata)
	for {
		e := w.next()
		if e.Object.GetKind() != "PartialObjectMetadata" || e.Object.GetAPIVersion() != "meta.k8s.io/v1" {
			t.Fatalf("watch event = %s %s, want PartialObjectMetadata", e, e.Object.GetKind())
		}
		if e.initialEventsEnd() {
			break
		}
	}
	// A resource that is available as metadata supports no unknown form.
	call(t, http.MethodGet, k.collection(), nil, "Accept", "application/json;as=Nonsense;v=v1;g=meta.k8s.io").refused(http.StatusNotAcceptable, "NotAcceptable")
}

// mediaTypes checks JSON, YAML and protobuf in both directions, and the refusal of further types.
func mediaTypes(t *testing.T, k kind) {
	o := k.create(t, "encoded")
	inYAML := call(t, http.MethodGet, k.path(o), nil, "Accept", mediaYAML).want(http.StatusOK)
	read := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(inYAML.body, &read.Object); err != nil || read.GetUID() != o.GetUID() || inYAML.header.Get("Content-Type") != mediaYAML {
		t.Errorf("YAML response: %v, %s; want the object as YAML", err, inYAML.head())
	}
	ghost, err := yaml.Marshal(k.object(t, "ghost-of-yaml").Object)
	if err != nil {
		t.Fatal(err)
	}
	post := func(body []byte, media string) *answer {
		return call(t, http.MethodPost, k.collection()+"?dryRun=All", body, "Content-Type", media)
	}
	post(ghost, mediaYAML).want(http.StatusCreated)
	if !k.inProtobuf() {
		call(t, http.MethodGet, k.path(o), nil, "Accept", mediaProtobuf).want(http.StatusNotAcceptable)
		post([]byte("k8s\x00"), mediaProtobuf).refused(http.StatusUnsupportedMediaType, "UnsupportedMediaType")
	} else {
		inProtobuf := call(t, http.MethodGet, k.path(o), nil, "Accept", mediaProtobuf).want(http.StatusOK)
		if !bytes.HasPrefix(inProtobuf.body, []byte("k8s\x00")) || inProtobuf.header.Get("Content-Type") != mediaProtobuf {
			t.Errorf("protobuf response = %q, want the protobuf prefix", inProtobuf.head())
		}
		call(t, http.MethodPut, k.path(o)+"?dryRun=All", inProtobuf.body, "Content-Type", mediaProtobuf).want(http.StatusOK, http.StatusConflict)
		list := call(t, http.MethodGet, k.collection(), nil, "Accept", mediaProtobuf).want(http.StatusOK)
		if !bytes.HasPrefix(list.body, []byte("k8s\x00")) {
			t.Errorf("protobuf list = %q, want the protobuf prefix", list.head())
		}
	}
	either := call(t, http.MethodGet, k.path(o), nil, "Accept", "application/vnd.nobody, "+mediaJSON+";q=0.5").want(http.StatusOK)
	if !strings.HasPrefix(either.header.Get("Content-Type"), mediaJSON) {
		t.Errorf("Content-Type = %s, want JSON", either.header.Get("Content-Type"))
	}
	call(t, http.MethodGet, k.path(o), nil, "Accept", "text/html").refused(http.StatusNotAcceptable, "NotAcceptable")
	call(t, http.MethodGet, k.collection(), nil, "Accept", "application/cbor").refused(http.StatusNotAcceptable, "NotAcceptable")
	post([]byte("\xd9\xd9\xf7\xa0"), "application/cbor").refused(http.StatusUnsupportedMediaType, "UnsupportedMediaType")
	call(t, http.MethodPut, k.path(o), []byte("\xd9\xd9\xf7\xa0"), "Content-Type", "application/cbor").refused(http.StatusUnsupportedMediaType, "UnsupportedMediaType")
	post([]byte(`{"kind":`), mediaJSON).refused(http.StatusBadRequest, "BadRequest")
}

// subresources that show the object itself change only their part of it.
func subresources(t *testing.T, k kind) {
	o := k.create(t, "parted")
	for _, sub := range k.discovered.Subresources {
		path := k.path(o) + "/" + sub.Subresource
		if !slices.Contains(sub.Verbs, "get") || !slices.Contains(sub.Verbs, "update") || sub.Subresource == "proxy" { // its tests are in another package
			continue
		}
		got := call(t, http.MethodGet, path, nil).want(http.StatusOK).object()
		if got.GetKind() != sub.ResponseKind.Kind || got.GetName() != o.GetName() {
			t.Errorf("GET %s = %s %s, want the subresource's kind and the name", path, got.GetKind(), got.GetName())
		}
		call(t, http.MethodPut, path+"?dryRun=All", encode(t, got)).want(http.StatusOK, http.StatusConflict)
		call(t, http.MethodPatch, path+"?dryRun=All", []byte(`{}`), "Content-Type", mergePatch).want(http.StatusOK)
		call(t, http.MethodPost, path, encode(t, got)).want(http.StatusMethodNotAllowed)
		call(t, http.MethodGet, k.collection()+"/missing/"+sub.Subresource, nil).refused(http.StatusNotFound, "NotFound")
	}
	call(t, http.MethodGet, k.path(o)+"/nonsense", nil).refused(http.StatusNotFound, "NotFound")
}
