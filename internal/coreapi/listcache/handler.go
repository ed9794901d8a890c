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

// maxFrame limits the buffered response for an empty list: the columns of a table, a continue token, a selector.
const maxFrame = 256 << 10

// Handler serves lists from the cache. next must serve them through k8s.io/apiserver. It is called a second time for a request
// if objects cannot be inserted into its response.
func (c *Cache) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := apirequest.RequestInfoFrom(r.Context())
		if !ok || !isPlainList(info, r) || isRecorded(r.Context()) {
			next.ServeHTTP(w, r)
			return
		}
		t := &taken{request: info, table: strings.Contains(r.Header.Get("Accept"), "as=Table")}
		f := &frame{ResponseWriter: w, taken: t}
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
			_, _ = w.Write(f.body) // an error means that the client has disconnected
		}
	})
}

// isPlainList reports whether the response to a request is a list into which objects can be inserted: no YAML, no indentation,
// and no table with entire objects or without objects.
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
	for _, person := range []string{"curl", "Wget", "Mozilla/5.0"} { // these clients get indented JSON by default
		if strings.HasPrefix(agent, person) {
			return false
		}
	}
	return !query.Has("pretty") && !slices.ContainsFunc(query["includeObject"], func(policy string) bool {
		return policy != string(metav1.IncludeMetadata)
	})
}

// isRecorded reports whether the audit log contains the entire response, which k8s.io/apiserver encodes for it.
func isRecorded(ctx context.Context) bool {
	ac := audit.AuditContextFrom(ctx)
	return ac != nil && !ac.GetEventLevel().Less(auditinternal.LevelRequestResponse)
}

// frame buffers the response from which objects were taken. Other responses pass through.
type frame struct {
	http.ResponseWriter
	taken *taken

	holding  bool
	code     int
	body     []byte
	overflow bool
}

// Unwrap implements the interface of http.ResponseController.
func (f *frame) Unwrap() http.ResponseWriter { return f.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (f *frame) WriteHeader(code int) {
	if f.taken.list == nil {
		f.ResponseWriter.WriteHeader(code)
		return
	}
	f.holding = true
	f.code = cmp.Or(f.code, code)
}

func (f *frame) Write(p []byte) (int, error) {
	if f.taken.list == nil {
		return f.ResponseWriter.Write(p)
	}
	f.WriteHeader(http.StatusOK)
	if f.overflow = f.overflow || len(f.body)+len(p) > maxFrame; !f.overflow {
		f.body = append(f.body, p...)
	}
	return len(p), nil
}

// answer inserts the objects into the frame. It returns false if it cannot; it has then written nothing.
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

// noItems, noMetadata and noRows mark the insertion point in a list without objects, in a list of metadata, and in a table.
// Quotes within a JSON string are escaped, so a string cannot contain them.
const noItems, noMetadata, noRows = `"items":[]`, `"items":null`, `"rows":[]`

// split splits a response at the insertion point of objects.
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
	objects, err := f.taken.objects(r.Context(), form, f.body)
	if err != nil {
		return false
	}
	out := c.buffers.output(w, r)
	defer out.release()
	out.write(before)
	out.write(openArray)
	c.jsonArray(out, f.taken.source.Storage, objects, form)
	out.write(closeArray)
	out.write(after)
	out.close()
	return true
}

// formOf returns the form of the objects of a list.
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
