package conformance

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/respond"
)

const (
	mediaTable        = "application/json;as=Table;v=v1;g=meta.k8s.io"
	mediaMetadataList = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	mediaMetadata     = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
)

func formChecks() []check {
	return []check{
		{id: "forms/table", expected: "a list can be had as Table of meta.k8s.io/v1, with a row for each object and a cell for each column",
			reason: "kubectl get prints it; otherwise people see NAME and AGE alone", run: moving("list", table)},
		{id: "forms/include", expected: "includeObject=None, Metadata and Object decide what a row holds of its object",
			reason: "kubectl get -w, --sort-by and label columns ask for the objects", run: moving("list", some(included))},
		{id: "forms/metadata-list", expected: "a list can be had as PartialObjectMetadataList of the same objects",
			reason: "garbage collection and namespace deletion list nothing else (kubernetes/kubernetes#86666)", run: moving("list", metadataList)},
		{id: "forms/metadata", expected: "an object can be had as PartialObjectMetadata",
			reason: "metadata clients read one so", run: moving("list", some(metadataOne))},
		{id: "forms/yaml", expected: "YAML is answered to who asks for it, or 406",
			reason: "people look with curl; an answer in another form than the header says breaks any client", run: each("list", yamlList)},
		{id: "forms/protobuf", expected: "protobuf is answered to who takes nothing else, or 406; and JSON to who takes that too",
			reason: "typed clients ask for protobuf first", run: each("list", protobufList)},
		{id: "forms/unknown", expected: "406 is the answer to who takes only what there is not",
			reason: "the client would decode something else than it asked for", run: each("list", unknownForm)},
		{id: "forms/gzip", expected: "an answer is compressed only for who accepts that, and unpacks to the same",
			reason: "clients ask for gzip with every request", run: moving("list", compressed)},
		{id: "forms/head", expected: "HEAD is answered like GET, or 405",
			reason: "proxies and monitors ask so", run: each("list", head)},
	}
}

// tableOf contains the fields of a Table that are checked.
type tableOf struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Columns    []struct {
		Name string `json:"name"`
		Type string `json:"type"`
	} `json:"columnDefinitions"`
	Rows []struct {
		Cells  []json.RawMessage `json:"cells"`
		Object *object           `json:"object"`
	} `json:"rows"`
}

func (x *examination) table(ctx context.Context, r metav1.APIResource, pairs ...string) (t tableOf, v verdict) {
	a := x.ask.as(ctx, x.path(r, ""), mediaTable, pairs...)
	if err := a.into(&t); err != nil {
		return t, failed("%v", err)
	}
	if t.Kind != "Table" || t.APIVersion != "meta.k8s.io/v1" {
		return t, failed("the answer is %s %s", t.APIVersion, t.Kind)
	}
	return t, ok
}

func table(ctx context.Context, x *examination, r metav1.APIResource) verdict {
	t, v := x.table(ctx, r)
	if v.outcome != Pass {
		return v
	}
	// Some servers derive the columns from the objects, so an empty table may have no columns.
	if len(t.Columns) == 0 && len(t.Rows) > 0 {
		return failed("there are no columns")
	}
	for _, c := range t.Columns {
		if c.Name == "" || c.Type == "" {
			return failed("a column has no name or no type")
		}
	}
	l, err := x.list(ctx, x.path(r, ""))
	if err != nil {
		return notApplicable("there is no list to compare with: %v", err)
	}
	if len(t.Rows) != len(l.Items) {
		return failed("there are %d rows for %d objects", len(t.Rows), len(l.Items))
	}
	for _, row := range t.Rows {
		if len(row.Cells) != len(t.Columns) {
			return failed("a row has %d cells for %d columns", len(row.Cells), len(t.Columns))
		}
	}
	return ok
}

func included(ctx context.Context, x *examination, r metav1.APIResource, l objectList) verdict {
	for _, c := range []struct{ ask, kind string }{
		{"", "PartialObjectMetadata"}, {"Metadata", "PartialObjectMetadata"}, {"Object", r.Kind}, {"None", ""},
	} {
		var pairs []string
		if c.ask != "" {
			pairs = []string{"includeObject", c.ask}
		}
		t, v := x.table(ctx, r, pairs...)
		if v.outcome != Pass || len(t.Rows) == 0 {
			return notApplicable("there is no Table with rows")
		}
		got := t.Rows[0].Object
		switch {
		case c.kind == "" && got != nil && got.Kind != "":
			return failed("includeObject=None is answered with objects")
		case c.kind == "":
		case got == nil || got.Kind != c.kind:
			return failed("includeObject=%s is answered with rows that hold no %s", c.ask, c.kind)
		case !slices.Contains(l.keys(), got.key()):
			return failed("a row holds %s, which the list lacks", got.key())
		}
	}
	return ok
}

func metadataList(ctx context.Context, x *examination, r metav1.APIResource) verdict {
	var l objectList
	if err := x.ask.as(ctx, x.path(r, ""), mediaMetadataList).into(&l); err != nil {
		return failed("%v", err)
	}
	if l.Kind != "PartialObjectMetadataList" || l.APIVersion != "meta.k8s.io/v1" {
		return failed("the answer is %s %s", l.APIVersion, l.Kind)
	}
	whole, err := x.list(ctx, x.path(r, ""))
	if err != nil {
		return notApplicable("there is no list to compare with: %v", err)
	}
	if different := difference(l.keys(), whole.keys()); different != "" {
		return failed("of the whole list, %s", different)
	}
	return ok
}

func metadataOne(ctx context.Context, x *examination, r metav1.APIResource, l objectList) verdict {
	if !can(r, "get") {
		return notApplicable("there is no verb get")
	}
	a := x.ask.as(ctx, x.home(r, l.Items[0]), mediaMetadata)
	if a.is(http.StatusForbidden) {
		return notApplicable("the caller may not: %s", a)
	}
	var got object
	if err := a.into(&got); err != nil {
		return failed("%v", err)
	}
	if got.Kind != "PartialObjectMetadata" || got.key() != l.Items[0].key() {
		return failed("the answer is %s %s", got.Kind, got.key())
	}
	return ok
}

func yamlList(ctx context.Context, x *examination, r metav1.APIResource) verdict {
	a := x.ask.as(ctx, x.path(r, ""), respond.MediaYAML)
	if a.is(http.StatusNotAcceptable) {
		return noted("not offered")
	}
	var l objectList
	switch {
	case !a.is(http.StatusOK):
		return failed("%s", a)
	case a.media() != respond.MediaYAML:
		return failed("the Content-Type is %q", a.headers.Get("Content-Type"))
	case json.Valid(a.body):
		return failed("what is called YAML is JSON")
	}
	if err := yaml.Unmarshal(a.body, &l); err != nil || l.Kind != r.Kind+"List" {
		return failed("what is called YAML is no %sList (%v)", r.Kind, err)
	}
	return ok
}

// protobufMagic is the prefix of protobuf documents in the Kubernetes API.
var protobufMagic = []byte("k8s\x00")

func protobufList(ctx context.Context, x *examination, r metav1.APIResource) verdict {
	mixed := x.ask.as(ctx, x.path(r, ""), respond.MediaProtobuf+", */*")
	if !mixed.is(http.StatusOK) {
		return failed("asked for protobuf or anything: %s", mixed)
	}
	a := x.ask.as(ctx, x.path(r, ""), respond.MediaProtobuf)
	switch {
	case a.is(http.StatusNotAcceptable):
		return noted("not offered")
	case !a.is(http.StatusOK):
		return failed("asked for protobuf: %s", a)
	case a.media() != respond.MediaProtobuf || !bytes.HasPrefix(a.body, protobufMagic):
		return failed("asked for protobuf, the answer is %s", a.headers.Get("Content-Type"))
	}
	return ok
}

func unknownForm(ctx context.Context, x *examination, r metav1.APIResource) verdict {
	return x.ask.as(ctx, x.path(r, ""), "application/x-conformance").refusal(http.StatusNotAcceptable)
}

func compressed(ctx context.Context, x *examination, r metav1.APIResource) verdict {
	whole := x.ask.get(ctx, x.path(r, ""))
	if !whole.is(http.StatusOK) {
		return notApplicable("there is no list: %s", whole)
	}
	if coding := whole.headers.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return failed("who does not accept it gets %s", coding)
	}
	a := x.ask.do(ctx, question{path: x.path(r, ""), headers: http.Header{"Accept-Encoding": {"gzip"}}})
	if !a.is(http.StatusOK) {
		return failed("with Accept-Encoding: gzip, %s", a)
	}
	if a.headers.Get("Content-Encoding") == "gzip" {
		unpacked, err := gunzip(a.body)
		if err != nil {
			return failed("what is called gzip does not unpack: %v", err)
		}
		a.body = unpacked
	}
	var l, plain objectList
	if err := a.into(&l); err != nil {
		return failed("with Accept-Encoding: gzip, %v", err)
	}
	if err := whole.into(&plain); err != nil {
		return notApplicable("there is no list: %v", err)
	}
	if different := difference(l.keys(), plain.keys()); different != "" {
		return failed("of the compressed list, %s", different)
	}
	return ok
}

func gunzip(body []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, maxBody))
}

func head(ctx context.Context, x *examination, r metav1.APIResource) verdict {
	a := x.ask.do(ctx, question{method: http.MethodHead, path: x.path(r, "")})
	switch {
	case a.is(http.StatusOK):
		return ok
	case a.is(http.StatusMethodNotAllowed):
		return noted("405")
	}
	return failed("%s", a)
}
