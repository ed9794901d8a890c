package listcache

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// maxFrame bounds what is held of the library's answer with an empty list: the columns of a table, a continue token, a selector.
const maxFrame = 256 << 10

// Handler serves lists from the cache. next must serve them by the library; it is called a second time for a request if its answer is none that
// objects can be put into.
func (c *Cache) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := apirequest.RequestInfoFrom(r.Context())
		if !ok || !isPlainList(info, r) || isRecorded(r.Context()) {
			next.ServeHTTP(w, r)
			return
		}
		t := &taken{request: info, table: strings.Contains(r.Header.Get("Accept"), "as=Table")}
		f := &frame{ResponseWriter: w, of: t}
		next.ServeHTTP(f, r.WithContext(context.WithValue(r.Context(), takenKey{}, t)))
		if !f.holding {
			return
		}
		if f.code == http.StatusOK && !c.answer(w, r, f) {
			w.Header().Del("Content-Type")
			next.ServeHTTP(w, r)
			return
		}
		if f.code != http.StatusOK {
			w.WriteHeader(f.code)
			_, _ = w.Write(f.body) // a client that left is nobody's failure
		}
	})
}

// isPlainList reports whether the answer to a request is a list in a form that objects can be put into: not YAML, not indented, and no
// table with whole objects or with none.
func isPlainList(info *apirequest.RequestInfo, r *http.Request) bool {
	if r.Method != http.MethodGet || info.Verb != "list" || !info.IsResourceRequest || info.Subresource != "" {
		return false
	}
	accept, agent, query := r.Header.Get("Accept"), r.UserAgent(), r.URL.Query()
	for _, other := range []string{"yaml", "cbor", "pretty"} {
		if strings.Contains(accept, other) {
			return false
		}
	}
	for _, person := range []string{"curl", "Wget", "Mozilla/5.0"} { // who gets indented JSON without asking
		if strings.HasPrefix(agent, person) {
			return false
		}
	}
	return !query.Has("pretty") && !slices.ContainsFunc(query["includeObject"], func(policy string) bool {
		return policy != string(metav1.IncludeMetadata)
	})
}

// isRecorded reports whether the audit log gets the whole answer, which the library encodes for it.
func isRecorded(ctx context.Context) bool {
	ac := audit.AuditContextFrom(ctx)
	return ac != nil && !ac.GetEventLevel().Less(auditinternal.LevelRequestResponse)
}

// frame holds the answer from which objects were taken. Others pass it.
type frame struct {
	http.ResponseWriter
	of *taken

	holding  bool
	code     int
	body     []byte
	overflow bool
}

// Unwrap lets http.ResponseController through.
func (f *frame) Unwrap() http.ResponseWriter { return f.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (f *frame) WriteHeader(code int) {
	if f.of.list == nil {
		f.ResponseWriter.WriteHeader(code)
		return
	}
	f.holding = true
	f.code = cmp.Or(f.code, code)
}

func (f *frame) Write(p []byte) (int, error) {
	if f.of.list == nil {
		return f.ResponseWriter.Write(p)
	}
	f.WriteHeader(http.StatusOK)
	if f.overflow = f.overflow || len(f.body)+len(p) > maxFrame; !f.overflow {
		f.body = append(f.body, p...)
	}
	return len(p), nil
}

// answer puts the objects into the frame. It reports false if it cannot, and has written nothing then.
func (c *Cache) answer(w http.ResponseWriter, r *http.Request, f *frame) bool {
	if f.overflow || w.Header().Get("Content-Encoding") != "" {
		return false
	}
	switch w.Header().Get("Content-Type") {
	case runtime.ContentTypeJSON:
		return c.answerJSON(w, r, f)
	case runtime.ContentTypeProtobuf:
		return c.answerProtobuf(w, r, f)
	}
	return false
}

// The places of objects in a list, of those that are reduced to metadata, and of rows in a table, as they are when there are none. Quotes within
// a string are escaped, so it cannot be mistaken for a place.
const noItems, noMetadata, noRows = `"items":[]`, `"items":null`, `"rows":[]`

// split finds the place of objects in an answer.
func split(body []byte, form form) (before, after []byte, ok bool) {
	place, key := noItems, `"items":`
	switch form.kind {
	case metadata:
		place = noMetadata
	case rows:
		place, key = noRows, `"rows":`
	}
	at := bytes.Index(body, []byte(place))
	if at < 0 || bytes.Count(body, []byte(place)) != 1 {
		return nil, nil, false
	}
	return body[:at+len(key)], body[at+len(place):], true
}

func (c *Cache) answerJSON(w http.ResponseWriter, r *http.Request, f *frame) bool {
	var kind metav1.TypeMeta
	if err := json.Unmarshal(f.body, &kind); err != nil {
		return false
	}
	form, ok := formOf(kind.APIVersion, kind.Kind)
	if !ok {
		return false
	}
	before, after, ok := split(f.body, form)
	if !ok {
		return false
	}
	objects, err := f.of.objects(r.Context(), form, f.body)
	if err != nil {
		return false
	}
	out := c.buffers.output(w, r)
	defer out.release()
	out.write(before)
	out.write(openArray)
	c.jsonArray(out, f.of.source.Storage, objects, form)
	out.write(closeArray)
	out.write(after)
	out.close()
	return true
}

// formOf is the form of the objects of a list.
func formOf(apiVersion, kind string) (form, bool) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || kind == "" {
		return form{}, false
	}
	if gv.Group != metav1.GroupName {
		return form{kind: whole}, true
	}
	switch kind {
	case "PartialObjectMetadataList":
		return form{metadata, apiVersion}, true
	case "Table":
		return form{rows, apiVersion}, true
	}
	return form{}, false
}
