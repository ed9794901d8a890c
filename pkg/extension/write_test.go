package extension_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"

	"portico.dev/pkg/extension"
)

// queueStore is a provider with all write operations. It keeps its versions itself, like a provider over another API.
type queueStore struct {
	mu       sync.Mutex
	items    map[string]Queue
	version  int
	users    []string
	managers []string
	conflict int // number of updates that fail with a conflict
	taken    int // number of creates that fail because the name exists
	lazy     bool
	policies []string
}

func (s *queueStore) List(context.Context, extension.Query) ([]Queue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Queue
	for _, q := range s.items {
		all = append(all, q)
	}
	return all, nil
}

func at(q extension.Query) string { return q.Namespace + "/" + q.Name }

func (s *queueStore) Create(_ context.Context, q extension.Query, o Queue) (Queue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users = append(s.users, q.User.GetName())
	s.managers = append(s.managers, q.FieldManager)
	if _, ok := s.items[at(q)]; ok || s.taken > 0 {
		s.taken--
		return Queue{}, extension.ErrExists
	}
	return s.put(q, o), nil
}

func (s *queueStore) Update(_ context.Context, q extension.Query, o Queue) (Queue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users = append(s.users, q.User.GetName())
	have, ok := s.items[at(q)]
	if !ok {
		return Queue{}, extension.ErrNotFound
	}
	if s.conflict > 0 || o.ResourceVersion != have.ResourceVersion {
		s.conflict--
		return Queue{}, apierrors.NewConflict(schema.GroupResource{Resource: "queues"}, q.Name, errors.New("somebody was faster"))
	}
	return s.put(q, o), nil
}

func (s *queueStore) put(q extension.Query, o Queue) Queue {
	s.version++
	o.ResourceVersion = fmt.Sprintf("theirs-%d", s.version)
	if o.UID == "" {
		o.UID = types.UID(fmt.Sprintf("uid-%d", s.version))
	}
	if !q.DryRun && !s.lazy {
		s.items[at(q)] = o
	}
	return o
}

func (s *queueStore) Delete(_ context.Context, q extension.Query) (Queue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.items[at(q)]
	if !ok {
		return Queue{}, fmt.Errorf("look for %s: %w", at(q), extension.ErrNotFound)
	}
	if p := q.Deletion.PropagationPolicy; p != nil {
		s.policies = append(s.policies, string(*p))
	}
	if o.Labels["slow"] == "true" {
		now := metav1.NewTime(time.Unix(1e9, 0))
		o.DeletionTimestamp = &now
		s.items[at(q)] = o
		return o, nil
	}
	if !q.DryRun {
		delete(s.items, at(q))
	}
	return o, nil
}

func (s *queueStore) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.items["team/"+name]
	return ok
}

func newQueueStore(items ...Queue) *queueStore {
	s := &queueStore{items: map[string]Queue{}}
	for _, q := range items {
		s.put(extension.Query{Namespace: q.Namespace, Name: q.Name}, q)
	}
	return s
}

const teamPath = "/apis/stats.example.com/v1/namespaces/team/queues"

// send sends a request with a body; contentType may be empty.
func (s *server) send(method, path, contentType string, body []byte, headers ...string) answer {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, bytes.NewReader(body))
	must(s.t, err)
	r.Header.Set("X-Test-User", "alice")
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	response, err := s.client.Do(r)
	must(s.t, err)
	defer response.Body.Close()
	answered, err := io.ReadAll(response.Body)
	must(s.t, err)
	return answer{response, answered}
}

func (a answer) queue(t *testing.T) Queue {
	t.Helper()
	var q Queue
	must(t, json.Unmarshal(a.body, &q))
	return q
}

func writable() extension.Definition[Queue] {
	d := queueDefinition()
	d.DryRun = true
	return d
}

func TestCreate(t *testing.T) {
	const jsonType, yamlType = "application/json", "application/yaml"
	for _, c := range []struct {
		situation, path, contentType, body string
		code                               int
		want, warning                      string
		creates                            string
	}{
		{situation: "JSON", contentType: jsonType, body: `{"kind":"Queue","apiVersion":"stats.example.com/v1","metadata":{"name":"new"},"depth":3}`,
			code: 201, want: `"depth":3`, creates: "new"},
		{situation: "no content type", body: `{"metadata":{"name":"new"}}`, code: 201, creates: "new"},
		{situation: "YAML", contentType: yamlType, body: "kind: Queue\nmetadata: {name: new, namespace: team}\ndepth: 4\n", code: 201, want: `"depth":4`, creates: "new"},
		{situation: "a name that is taken", body: `{"metadata":{"name":"old"}}`, code: 409, want: `"reason":"AlreadyExists"`},
		{situation: "another kind", body: `{"kind":"Stack","metadata":{"name":"new"}}`, code: 400, want: "is a Stack of"},
		{situation: "another version", body: `{"kind":"Queue","apiVersion":"stats.example.com/v2","metadata":{"name":"new"}}`, code: 400, want: "v2"},
		{situation: "another namespace", body: `{"metadata":{"name":"new","namespace":"other"}}`, code: 400, want: "namespace"},
		{situation: "no name", body: `{"metadata":{}}`, code: 422, want: "generateName"},
		{situation: "a name that would be a path", body: `{"metadata":{"name":"a/b"}}`, code: 422, want: "metadata.name"},
		{situation: "a version already", body: `{"metadata":{"name":"new","resourceVersion":"7"}}`, code: 400, want: "resourceVersion"},
		{situation: "unknown field, by default", body: `{"metadata":{"name":"new"},"dept":3}`, code: 201, warning: `299 - "unknown field \"dept\""`, creates: "new"},
		{situation: "unknown field, ignored", path: "?fieldValidation=Ignore", body: `{"metadata":{"name":"new"},"dept":3}`, code: 201, creates: "new"},
		{situation: "unknown field, strict", path: "?fieldValidation=Strict", body: `{"metadata":{"name":"new"},"dept":3}`, code: 400,
			want: `strict decoding error: unknown field \"dept\"`},
		{situation: "field twice, strict", path: "?fieldValidation=Strict", body: `{"metadata":{"name":"new"},"depth":3,"depth":4}`, code: 400, want: "duplicate field"},
		{situation: "YAML key twice, strict", path: "?fieldValidation=Strict", contentType: yamlType, body: "metadata: {name: new}\ndepth: 3\ndepth: 4\n", code: 400, want: "depth"},
		{situation: "unknown way to validate", path: "?fieldValidation=Perhaps", body: `{"metadata":{"name":"new"}}`, code: 422, want: "fieldValidation"},
		{situation: "dry run", path: "?dryRun=All", body: `{"metadata":{"name":"new"}}`, code: 201},
		{situation: "half a dry run", path: "?dryRun=Some", body: `{"metadata":{"name":"new"}}`, code: 422, want: "dryRun"},
		{situation: "a manager without end", path: "?fieldManager=" + strings.Repeat("m", 129), body: `{"metadata":{"name":"new"}}`, code: 422, want: "fieldManager"},
		{situation: "not JSON", body: `{"metadata"`, code: 400, want: "not a Queue"},
		{situation: "not YAML", contentType: yamlType, body: "a: b: c", code: 400, want: "not YAML"},
		{situation: "a form", contentType: "application/x-www-form-urlencoded", body: "a=b", code: 415, want: "application/json"},
		{situation: "CBOR", contentType: "application/cbor", body: "x", code: 415, want: `"reason":"UnsupportedMediaType"`},
		{situation: "protobuf of a type that has none", contentType: "application/vnd.kubernetes.protobuf", body: "k8s\x00", code: 415},
		{situation: "all namespaces", path: "all", body: `{"metadata":{"name":"new"}}`, code: 405},
		{situation: "below an object", path: "/new", body: `{"metadata":{"name":"new"}}`, code: 405},
	} {
		t.Run(c.situation, func(t *testing.T) {
			p := newQueueStore(queue("team", "old", 1))
			s := start(t, nil, extension.Of(writable(), p))
			path := teamPath + c.path
			if c.path == "all" {
				path = queuesPath
			}
			a := s.send(http.MethodPost, path, c.contentType, []byte(c.body))
			a.wants(t, c.code, c.want)
			if got := a.Header.Get("Warning"); got != c.warning {
				t.Errorf("Warning %q, want %q", got, c.warning)
			}
			if c.creates != "" && !p.has(c.creates) || c.creates == "" && p.has("new") {
				t.Errorf("object \"new\" exists after the POST: %t, want created object %q (empty: none)", p.has("new"), c.creates)
			}
		})
	}
}

func TestCreatedObjectReachesWatch(t *testing.T) {
	t.Parallel()
	p := newQueueStore()
	d := writable()
	d.PollInterval = time.Hour // Only the write can cause the event.
	s := start(t, nil, extension.Of(d, p))
	w := s.watch(streaming)
	w.sees("BOOKMARK")
	made := s.send(http.MethodPost, teamPath+"?fieldManager=kubectl", "", []byte(`{"metadata":{"name":"new"}}`)).queue(t)
	added := w.sees("ADDED new")
	if made.ResourceVersion == "" || made.ResourceVersion != added.Object.Metadata.ResourceVersion {
		t.Errorf("version of the event = %q, want %q, the version in the response", added.Object.Metadata.ResourceVersion, made.ResourceVersion)
	}
	made.Depth = 9
	body, err := json.Marshal(made)
	must(t, err)
	s.send(http.MethodPut, teamPath+"/new", "", body).wants(t, 200, `"depth":9`)
	w.sees("MODIFIED new")
	s.do(http.MethodDelete, teamPath+"/new").wants(t, 200, `"status":"Success"`, `"uid":"uid-1"`, `"kind":"queues"`)
	w.sees("DELETED new")
	if !slices.Equal(p.users, []string{"alice", "alice"}) || p.managers[0] != "kubectl" {
		t.Errorf("provider received users %v, field managers %v, want alice twice and kubectl first", p.users, p.managers)
	}
}

func TestGenerateNameRetriesTakenNames(t *testing.T) {
	p := newQueueStore()
	p.taken = 3
	s := start(t, nil, extension.Of(writable(), p))
	a := s.send(http.MethodPost, teamPath, "", []byte(`{"metadata":{"generateName":"job-"}}`))
	a.wants(t, 201)
	if name := a.queue(t).Name; !strings.HasPrefix(name, "job-") || len(name) != 9 || !p.has(name) {
		t.Errorf("generated name = %q, want job- and five characters, stored in the provider", name)
	}
	p.taken = 100
	s.send(http.MethodPost, teamPath, "", []byte(`{"metadata":{"generateName":"job-"}}`)).wants(t, 409)
}

func TestUpdate(t *testing.T) {
	p := newQueueStore(queue("team", "old", 1))
	s := start(t, nil, extension.Of(writable(), p))
	first := s.get(teamPath + "/old").queue(t)
	with := func(change func(q *Queue)) []byte {
		q := first
		change(&q)
		body, err := json.Marshal(q)
		must(t, err)
		return body
	}
	put := func(path string, body []byte) answer { return s.send(http.MethodPut, teamPath+path, "", body) }
	put("/old", with(func(q *Queue) { q.Name = "other" })).wants(t, 400, "metadata.name")
	put("/old", with(func(q *Queue) { q.UID = "another" })).wants(t, 409, "uid is")
	put("/none", with(func(q *Queue) { q.Name = "none" })).wants(t, 404, `"reason":"NotFound"`)
	put("/old?dryRun=All", with(func(q *Queue) { q.Depth = 5 })).wants(t, 200, `"depth":5`)
	second := put("/old", with(func(q *Queue) { q.Depth = 2; q.CreationTimestamp = metav1.Now() }))
	second.wants(t, 200, `"depth":2`)
	if q := second.queue(t); version(t, q.ResourceVersion) <= version(t, first.ResourceVersion) || !q.CreationTimestamp.IsZero() {
		t.Errorf("updated metadata = %+v, want a later version and no creationTimestamp", q.ObjectMeta)
	}
	put("/old", with(func(q *Queue) { q.Depth = 3 })).wants(t, 409, `"reason":"Conflict"`, "read it again")
	put("/old", with(func(q *Queue) { q.Depth = 4; q.ResourceVersion = "" })).wants(t, 200, `"depth":4`)
}

func TestUpdateAfterDelayedWriteDetectsConflict(t *testing.T) {
	p := newQueueStore(queue("team", "old", 1))
	s := start(t, nil, extension.Of(writable(), p))
	first := s.get(teamPath + "/old").queue(t)
	p.lazy = true // The source accepts the write and keeps returning the old state.
	first.Depth = 2
	body, err := json.Marshal(first)
	must(t, err)
	written := s.send(http.MethodPut, teamPath+"/old", "", body)
	written.wants(t, 200, `"depth":2`)
	p.mu.Lock()
	p.lazy = false
	q := p.items["team/old"]
	q.Depth = 7 // a write of another client
	p.items["team/old"] = q
	p.mu.Unlock()
	s.send(http.MethodPut, teamPath+"/old", "", written.body).wants(t, 409)
}

func TestPatch(t *testing.T) {
	const merge, operations = "application/merge-patch+json", "application/json-patch+json"
	bomb := `[{"op":"add","path":"/metadata/annotations","value":{"a":"` + strings.Repeat("x", 1000) + `"}}`
	for i := range 60 {
		bomb += fmt.Sprintf(`,{"op":"copy","from":"/metadata","path":"/metadata/annotations/b%d"}`, i)
	}
	for _, c := range []struct {
		situation, contentType, body, query string
		code                                int
		want                                string
		conflict                            int
	}{
		{situation: "merge", contentType: merge, body: `{"depth":8,"metadata":{"labels":{"a":"b"}}}`, code: 200, want: `"depth":8`},
		{situation: "operations", contentType: operations, body: `[{"op":"test","path":"/depth","value":1},{"op":"replace","path":"/depth","value":8}]`, code: 200, want: `"depth":8`},
		{situation: "a copy between", contentType: operations, body: `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}},{"op":"copy","from":"/metadata/labels/a","path":"/metadata/labels/c"},{"op":"replace","path":"/depth","value":8}]`, code: 200, want: `"c":"b"`},
		{situation: "no operation", contentType: operations, body: `[]`, code: 200, want: `"depth":1`},
		{situation: "a test that fails", contentType: operations, body: `[{"op":"test","path":"/depth","value":2}]`, code: 422, want: "JSON patch"},
		{situation: "a path that is not there", contentType: operations, body: `[{"op":"remove","path":"/nothing"}]`, code: 422},
		{situation: "copies that double", contentType: operations, body: bomb + `]`, code: 413, want: "limit"},
		{situation: "operations without end", contentType: operations, body: `[` + strings.Repeat(`{"op":"test","path":"/depth","value":1},`, 10000) + `{"op":"remove","path":"/depth"}]`, code: 413},
		{situation: "not a patch", contentType: operations, body: `{"a":1}`, code: 400},
		{situation: "not a merge patch", contentType: merge, body: `[`, code: 400},
		{situation: "strategic merge", contentType: "application/strategic-merge-patch+json", body: `{}`, code: 415, want: merge},
		{situation: "apply", contentType: "application/apply-patch+yaml", body: `{}`, query: "?fieldManager=me", code: 415},
		{situation: "another name", contentType: merge, body: `{"metadata":{"name":"new"}}`, code: 400, want: "metadata.name"},
		{situation: "a version that is not the present one", contentType: merge, body: `{"metadata":{"resourceVersion":"5"}}`, code: 409},
		{situation: "unknown field, strict", contentType: merge, query: "?fieldValidation=Strict", body: `{"dept":1}`, code: 400, want: "unknown field"},
		{situation: "somebody faster now and then", contentType: merge, body: `{"depth":8}`, conflict: 3, code: 200, want: `"depth":8`},
		{situation: "somebody always faster", contentType: merge, body: `{"depth":8}`, conflict: 100, code: 409},
	} {
		t.Run(c.situation, func(t *testing.T) {
			p := newQueueStore(queue("team", "old", 1))
			p.conflict = c.conflict
			s := start(t, func(c *extension.Config) { c.MaxBodyBytes = 1 << 20 }, extension.Of(writable(), p))
			s.send(http.MethodPatch, teamPath+"/old"+c.query, c.contentType, []byte(c.body)).wants(t, c.code, c.want)
		})
	}
}

// TestConsecutivePatchesAreAllApplied: twenty patches that each add one label must leave twenty labels.
func TestConsecutivePatchesAreAllApplied(t *testing.T) {
	p := newQueueStore(queue("team", "old", 0))
	s := start(t, nil, extension.Of(writable(), p))
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			a := s.send(http.MethodPatch, teamPath+"/old", "application/merge-patch+json",
				fmt.Appendf(nil, `{"metadata":{"labels":{"l%d":"x"}}}`, i))
			if a.StatusCode != http.StatusOK {
				t.Errorf("patch %d = %d, want 200; body: %s", i, a.StatusCode, a.body)
			}
		})
	}
	all.Wait()
	if q := s.get(teamPath + "/old").queue(t); len(q.Labels) != 20 {
		t.Errorf("object has %d labels after 20 patches, want 20: %v", len(q.Labels), q.Labels)
	}
}

func TestDelete(t *testing.T) {
	uid, other, foreground := types.UID("uid-1"), types.UID("other"), metav1.DeletePropagationForeground
	protobufOptions := func(o metav1.DeleteOptions) []byte {
		raw, err := o.Marshal()
		must(t, err)
		unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, Raw: raw}
		body, err := unknown.Marshal()
		must(t, err)
		return append([]byte("k8s\x00"), body...)
	}
	for _, c := range []struct {
		situation, path, contentType string
		body                         []byte
		code                         int
		want                         string
		stays                        bool
	}{
		{situation: "plain", path: "/old", code: 200, want: `"status":"Success"`},
		{situation: "not there", path: "/none", code: 404, want: `queues.stats.example.com \"none\" not found`, stays: true},
		{situation: "the right uid", path: "/old", body: []byte(`{"preconditions":{"uid":"uid-1"}}`), code: 200},
		{situation: "another uid", path: "/old", body: []byte(`{"preconditions":{"uid":"other"}}`), code: 409, want: "uid", stays: true},
		{situation: "another version", path: "/old", body: []byte(`{"preconditions":{"resourceVersion":"1"}}`), code: 409, stays: true},
		{situation: "the right uid in protobuf", path: "/old", contentType: "application/vnd.kubernetes.protobuf",
			body: protobufOptions(metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}), code: 200},
		{situation: "another uid in protobuf", path: "/old", contentType: "application/vnd.kubernetes.protobuf",
			body: protobufOptions(metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}), code: 409, stays: true},
		{situation: "propagation", path: "/old", contentType: "application/vnd.kubernetes.protobuf",
			body: protobufOptions(metav1.DeleteOptions{PropagationPolicy: &foreground}), code: 200},
		{situation: "dry run in the query", path: "/old?dryRun=All", code: 200, stays: true},
		{situation: "dry run in the body", path: "/old", body: []byte(`{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}`), code: 200, stays: true},
		{situation: "half a dry run in the body", path: "/old", body: []byte(`{"dryRun":["Some"]}`), code: 422, stays: true},
		{situation: "another kind of options", path: "/old", body: []byte(`{"kind":"Queue"}`), code: 400, stays: true},
		{situation: "nonsense", path: "/old", body: []byte(`{`), code: 400, stays: true},
		{situation: "nonsense in protobuf", path: "/old", contentType: "application/vnd.kubernetes.protobuf", body: []byte("k8s\x00\xff"), code: 400, stays: true},
		{situation: "one that takes its time", path: "/slow", code: 200, want: `"deletionTimestamp"`, stays: true},
		{situation: "a selection", path: "?labelSelector=slow!%3Dtrue", code: 200, want: `"kind":"QueueList"`},
		{situation: "a selection of none", path: "?labelSelector=a%3Db", code: 200, want: `"items":[]`, stays: true},
		{situation: "all of all namespaces", path: "all", code: 405, stays: true},
	} {
		t.Run(c.situation, func(t *testing.T) {
			p := newQueueStore(queue("team", "old", 1), queue("team", "slow", 1, "slow=true"))
			s := start(t, nil, extension.Of(writable(), p))
			path := teamPath + c.path
			if c.path == "all" {
				path = queuesPath
			}
			s.send(http.MethodDelete, path, c.contentType, c.body).wants(t, c.code, c.want)
			if p.has("old") != c.stays {
				t.Errorf("object exists after the DELETE: %t, want %t", p.has("old"), c.stays)
			}
			if c.situation == "propagation" && !slices.Equal(p.policies, []string{"Foreground"}) {
				t.Errorf("provider received propagation policies %v, want Foreground", p.policies)
			}
		})
	}
}

func TestUnsupportedDryRunsAreRejected(t *testing.T) {
	p := newQueueStore(queue("team", "old", 1))
	s := start(t, nil, extension.Of(queueDefinition(), p))
	s.send(http.MethodPost, teamPath+"?dryRun=All", "", []byte(`{"metadata":{"name":"new"}}`)).wants(t, 400, "dry run")
	s.send(http.MethodDelete, teamPath+"/old", "", []byte(`{"dryRun":["All"]}`)).wants(t, 400, "dry run")
	if p.has("new") || !p.has("old") {
		t.Errorf("refused dry runs changed the store: new exists: %t, old exists: %t, want only old", p.has("new"), p.has("old"))
	}
}

func TestOnlySupportedVerbsAreAdvertised(t *testing.T) {
	s := start(t, nil, extension.Of(writable(), newQueueStore()))
	s.get("/apis/stats.example.com/v1").wants(t, 200,
		`"verbs":["create","delete","deletecollection","get","list","patch","update","watch"]`)
	a := s.do(http.MethodOptions, teamPath)
	if a.StatusCode != http.StatusNoContent || a.Header.Get("Allow") != "GET, HEAD, OPTIONS, POST, DELETE" {
		t.Errorf("OPTIONS = %d, Allow %q, want 204 and GET, HEAD, OPTIONS, POST, DELETE", a.StatusCode, a.Header.Get("Allow"))
	}
	readOnly := start(t, nil, extension.Of(queueDefinition(), twoQueues()))
	refused := readOnly.do(http.MethodDelete, teamPath+"/x")
	refused.wants(t, 405, `"reason":"MethodNotAllowed"`)
	if got := refused.Header.Get("Allow"); got != "GET, HEAD, OPTIONS" {
		t.Errorf("Allow = %q, want GET, HEAD, OPTIONS", got)
	}
	if head := readOnly.do(http.MethodHead, queuesPath); head.StatusCode != 200 || len(head.body) != 0 || head.Header.Get("Content-Length") == "" {
		t.Errorf("HEAD = %d, %d bytes, header %v, want 200 with Content-Length and no body", head.StatusCode, len(head.body), head.Header)
	}
	if head := readOnly.do(http.MethodHead, queuesPath+"?watch=true"); head.StatusCode != 200 || len(head.body) != 0 {
		t.Errorf("HEAD of a watch = %d, %d bytes, want 200 without a body", head.StatusCode, len(head.body))
	}
}

func TestBodiesOfUnknownLengthAreBounded(t *testing.T) {
	s := start(t, func(c *extension.Config) { c.MaxBodyBytes = 100 }, extension.Of(writable(), newQueueStore()))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+teamPath, io.MultiReader(strings.NewReader(strings.Repeat(" ", 200))))
	must(t, err)
	r.Header.Set("X-Test-User", "alice")
	response, err := s.client.Do(r)
	must(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("POST of a chunked body over the limit = %d, want 413", response.StatusCode)
	}
}

// nodes is a provider of a type with generated protobuf code.
type nodes struct {
	extension.ListFunc[metricsv1.NodeMetrics]
}

func (nodes) Create(_ context.Context, _ extension.Query, o metricsv1.NodeMetrics) (metricsv1.NodeMetrics, error) {
	return o, nil
}

func TestCreateInProtobuf(t *testing.T) {
	list := func(context.Context, extension.Query) ([]metricsv1.NodeMetrics, error) { return nil, nil }
	s := start(t, nil, extension.Of(extension.Definition[metricsv1.NodeMetrics]{
		Group: "stats.example.com", Version: "v1", Plural: "nodes", Kind: "NodeMetrics", Nameless: true,
	}, nodes{list}))
	in := metricsv1.NodeMetrics{Window: metav1.Duration{Duration: time.Minute}}
	raw, err := in.Marshal()
	must(t, err)
	body, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "stats.example.com/v1", Kind: "NodeMetrics"}, Raw: raw}).Marshal()
	must(t, err)
	const media, path = "application/vnd.kubernetes.protobuf", "/apis/stats.example.com/v1/nodes"
	s.send(http.MethodPost, path, media, append([]byte("k8s\x00"), body...)).wants(t, 201, `"window":"1m0s"`)
	s.send(http.MethodPost, path, media, append([]byte("k8s\x00"), body...), "Accept: "+media).wants(t, 201, "k8s\x00")
	s.send(http.MethodPost, path, media, raw).wants(t, 400, "not a NodeMetrics")
	s.send(http.MethodPost, path, media, []byte("k8s\x00\xff\xff")).wants(t, 400)
}
