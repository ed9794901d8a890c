package proxy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/filters"
	"portico.dev/internal/transport"
)

// configure changes the target as an APIService's annotations do.
func (w *testEnv) configure(change func(*Destination)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.target)
}

const watching = "/apis/metrics.example.com/v1/nodes?watch=true"

func TestInitialEventsAreRejectedByAPIServiceOption(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	var b recorder
	w.backend(w.serve(&b))
	for _, test := range []struct {
		name, path string
		optedIn    bool
		code       int
	}{
		{"asked for", watching + "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", true, 422},
		{"asked for without a value", watching + "&sendInitialEvents=", true, 422},
		{"asked for not to", watching + "&sendInitialEvents=false", true, 200},
		{"0 is false too", watching + "&sendInitialEvents=0", true, 200},
		{"a plain watch", watching, true, 200},
		{"a list", "/apis/metrics.example.com/v1/nodes?sendInitialEvents=true", true, 200},
		{"another APIService", watching + "&sendInitialEvents=true", false, 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			w.configure(func(t *Destination) {
				t.InitialEvents = PassInitialEvents
				if test.optedIn {
					t.InitialEvents = RejectInitialEvents
				}
			})
			before := b.count()
			a := w.get(test.path)
			if a.StatusCode != test.code {
				t.Fatalf("response = %d %s, want %d", a.StatusCode, a.body, test.code)
			}
			if test.code == 200 {
				return
			}
			s := a.status(t)
			if s.Reason != metav1.StatusReasonInvalid || !strings.Contains(s.Message, "sendInitialEvents: Forbidden") || b.count() != before {
				t.Errorf("Status = %+v with %d requests at the backend, want reason Invalid, sendInitialEvents: Forbidden and 0 requests", s, b.count()-before)
			}
		})
	}
}

func TestInitialEventsAreRejectedIfBackendIgnoresThem(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	var b recorder
	w.backend(w.serve(&b))
	w.configure(func(t *Destination) { t.InitialEvents = RejectUnprovenInitialEvents })
	for _, test := range []struct {
		name, path string
		code       int
	}{
		{"asked for", watching + "&sendInitialEvents=true", 422},
		{"asked for not to", watching + "&sendInitialEvents=false", 200},
		{"a plain watch", watching, 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := w.get(test.path)
			if a.StatusCode != test.code || test.code == 422 && !strings.Contains(a.status(t).Message, "sendInitialEvents: Forbidden: the extension server of APIService ") {
				t.Errorf("response = %d %s, want %d", a.StatusCode, a.body, test.code)
			}
		})
	}
}

// Requests without initial events must not pay for requests with them.
func TestInitialEventsCheckDoesNotAllocate(t *testing.T) {
	for _, path := range []string{watching + "&resourceVersion=7&allowWatchBookmarks=true", "/apis/metrics.example.com/v1/nodes"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		info := &apirequest.RequestInfo{IsResourceRequest: true, Verb: "watch", APIGroup: "metrics.example.com", APIVersion: "v1", Resource: "nodes"}
		x := &exchange{r: r, request: &filters.Request{Request: r, Info: info}, dest: Destination{InitialEvents: RejectUnprovenInitialEvents}}
		if n := testing.AllocsPerRun(100, func() {
			if _, err := x.checkInitialEvents(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: checkInitialEvents() makes %v allocations, want 0", path, n)
		}
	}
}

const nodes = `{"kind":"NodeList","apiVersion":"metrics.example.com/v1","metadata":{"resourceVersion":"7","continue":"next","remainingItemCount":3},"items":[
 {"metadata":{"name":"a","namespace":"ns1","uid":"u","creationTimestamp":"2020-01-01T00:00:00Z","labels":{"l":"<1>"},"own":12345678901234567890},"spec":{"x":1}},
 {"metadata":{"name":"b"},"spec":{"x":2}}]}`

const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"

// The Accept headers of client-go's clients.
const (
	asList = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	asOne  = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
)

// plainBackend starts a backend that answers every request with JSON, and keeps the requests.
func plainBackend(w *testEnv, body string, header ...string) *recorder {
	b := &recorder{}
	w.backend(w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		b.seen = append(b.seen, r)
		b.mu.Unlock()
		rw.Header().Set("Content-Type", "application/json")
		rw.Header().Set("ETag", `"plain"`)
		for i := 0; i+1 < len(header); i += 2 {
			rw.Header().Set(header[i], header[i+1])
		}
		_, _ = io.WriteString(rw, body)
	})))
	return b
}

func (w *testEnv) accept(path, accept string) answer {
	w.t.Helper()
	r := w.request(http.MethodGet, path, nil)
	r.Header.Set("Accept", accept)
	r.Header.Set("If-None-Match", `"table"`)
	r.Header.Set("Accept-Encoding", "gzip")
	return w.do(w.client(), r)
}

func TestPlainObjectsAreConvertedToTable(t *testing.T) {
	const list = "/apis/metrics.example.com/v1/nodes"
	w := newTestEnv(t, Config{}, transport.Options{})
	b := plainBackend(w, nodes)
	w.configure(func(t *Destination) { t.ConvertTable = true })

	a := w.accept(list, asTable)
	var got metav1.Table
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.StatusCode != 200 {
		t.Fatalf("response = %d %s, error %v, want 200 with a Table", a.StatusCode, a.body, err)
	}
	if got.Kind != "Table" || got.APIVersion != "meta.k8s.io/v1" || got.ResourceVersion != "7" || got.Continue != "next" || *got.RemainingItemCount != 3 {
		t.Errorf("table = %+v, want kind Table of meta.k8s.io/v1 with resource version 7, continue next and 3 remaining items", got)
	}
	if len(got.ColumnDefinitions) != 2 || got.ColumnDefinitions[0].Name != "Name" || got.ColumnDefinitions[1].Name != "Age" {
		t.Errorf("columns = %+v, want Name and Age", got.ColumnDefinitions)
	}
	if len(got.Rows) != 2 || got.Rows[0].Cells[0] != "a" || !strings.Contains(got.Rows[0].Cells[1].(string), "y") || got.Rows[1].Cells[1] != "<unknown>" {
		t.Errorf("rows = %+v, want a with an age and b with an unknown age", got.Rows)
	}
	if o := string(got.Rows[0].Object.Raw); !strings.Contains(o, `"PartialObjectMetadata"`) || strings.Contains(o, "spec") ||
		!strings.Contains(o, "12345678901234567890") {
		t.Errorf("object of a row = %s, want a PartialObjectMetadata without spec", o)
	}
	sent := b.last(t).Header
	if sent.Get("Accept") != "application/json" || sent.Get("Accept-Encoding") != "" || sent.Get("If-None-Match") != "" {
		t.Errorf("headers at the backend = %v, want Accept application/json, and neither Accept-Encoding nor If-None-Match", sent)
	}
	if a.Header.Get("ETag") != "" || a.Header.Get("Vary") == "" || a.Header.Get("Content-Type") != "application/json" {
		t.Errorf("response headers = %v, want application/json with Vary and without ETag", a.Header)
	}
	for include, want := range map[string]string{"None": "", "Object": `"spec"`, "Metadata": `"PartialObjectMetadata"`} {
		a := w.accept(list+"?includeObject="+include, asTable)
		if has := strings.Contains(a.body, `"object"`); has != (want != "") || !strings.Contains(a.body, want) {
			t.Errorf("includeObject=%s: body = %s, want it to contain %q", include, a.body, want)
		}
	}
}

func TestPlainObjectsAreConvertedToMetadata(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	plainBackend(w, nodes)
	w.configure(func(t *Destination) { t.ConvertMetadata = true })
	var list metav1.PartialObjectMetadataList
	a := w.accept("/apis/metrics.example.com/v1/nodes", asList)
	if err := json.Unmarshal([]byte(a.body), &list); err != nil {
		t.Fatalf("Unmarshal(%s) failed: %v, want no error", a.body, err)
	}
	if list.Kind != "PartialObjectMetadataList" || list.ResourceVersion != "7" || len(list.Items) != 2 ||
		list.Items[0].Labels["l"] != "<1>" || list.Items[0].Kind != "PartialObjectMetadata" {
		t.Errorf("list = %+v, want a PartialObjectMetadataList at 7 with 2 items", list)
	}
	plainBackend(w, `{"kind":"Node","apiVersion":"metrics.example.com/v1","metadata":{"name":"a"},"spec":{"x":1}}`)
	w.configure(func(t *Destination) { t.ConvertMetadata = true })
	var one metav1.PartialObjectMetadata
	a = w.accept(resource, asOne)
	if err := json.Unmarshal([]byte(a.body), &one); err != nil || one.Kind != "PartialObjectMetadata" || one.Name != "a" || strings.Contains(a.body, "spec") {
		t.Errorf("object = %s, error %v, want the PartialObjectMetadata of a without spec", a.body, err)
	}
}

// A response is not converted if the client did not request it, or if the backend converts it.
func TestUnrequestedConversionIsSkipped(t *testing.T) {
	const list = "/apis/metrics.example.com/v1/nodes"
	for _, test := range []struct {
		name, path, accept, body string
		target                   Destination
		header                   []string
		code                     int
		want                     string
	}{
		{"plain JSON is preferred", list, "application/json, " + asTable, nodes, Destination{ConvertTable: true}, nil, 200, `"NodeList"`},
		{"by its quality", list, "application/json;as=Table;v=v1;g=meta.k8s.io;q=0.5, application/json", nodes, Destination{ConvertTable: true}, nil, 200, `"NodeList"`},
		{"not opted in", list, asTable, nodes, Destination{}, nil, 200, `"NodeList"`},
		{"opted in to the other", list, asTable, nodes, Destination{ConvertMetadata: true}, nil, 200, `"NodeList"`},
		{"discovery", "/apis/metrics.example.com/v1", asTable, nodes, Destination{ConvertTable: true}, nil, 200, `"NodeList"`},
		{"a Status stays one", list, asTable, `{"kind":"Status","status":"Success"}`, Destination{ConvertTable: true}, nil, 200, `"Success"`},
		{"a log", resource + "/log", asTable, "line\n", Destination{ConvertTable: true}, []string{"Content-Type", "text/plain"}, 200, "line"},
		{"a version that nobody knows", list, "application/json;as=Table;v=v9;g=meta.k8s.io,application/json", nodes, Destination{ConvertTable: true}, nil, 200, `"NodeList"`},
		{"no JSON", list, asTable, "nonsense", Destination{ConvertTable: true}, nil, 502, "neither an object of the API nor a list"},
		{"metadata that is none", list, asTable, `{"kind":"NodeList","metadata":[],"items":[]}`, Destination{ConvertTable: true}, nil, 502, "neither an object"},
		{"an empty list", list, asTable, `{"kind":"NodeList","items":null}`, Destination{ConvertTable: true}, nil, 200, `"rows":[]`},
		{"more than can be held", list, asTable, `{"kind":"NodeList","items":["` + strings.Repeat("x", maxConverted) + `"]}`, Destination{ConvertTable: true}, nil, 502, "more than 16 MiB"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newTestEnv(t, Config{}, transport.Options{})
			plainBackend(w, test.body, test.header...)
			w.configure(func(t *Destination) {
				t.ConvertTable, t.ConvertMetadata = test.target.ConvertTable, test.target.ConvertMetadata
			})
			if a := w.accept(test.path, test.accept); a.StatusCode != test.code || !strings.Contains(a.body, test.want) {
				t.Errorf("response = %d %.300s, want %d with %q", a.StatusCode, a.body, test.code, test.want)
			}
		})
	}
}

func TestWatchesAreConvertedEventByEvent(t *testing.T) {
	for _, test := range []struct {
		name, accept, kind string
		first, later       string
	}{
		{"metadata", asOne, "PartialObjectMetadata", `"metadata":{"name":"n0"`, `"metadata":{"name":"n1"`},
		{"tables", asTable, "Table", `"columnDefinitions":[{`, `"columnDefinitions":null`},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newTestEnv(t, Config{}, transport.Options{})
			next := make(chan string)
			w.backend(w.serve(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", "application/json")
				rw.(http.Flusher).Flush()
				for text := range next {
					_, _ = io.WriteString(rw, text)
					rw.(http.Flusher).Flush()
				}
			})))
			w.configure(func(t *Destination) { t.ConvertTable, t.ConvertMetadata = true, true })
			r := w.request(http.MethodGet, watching, nil)
			r.Header.Set("Accept", test.accept)
			resp, err := w.client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			lines := bufio.NewReader(resp.Body)
			// Each event is sent in two pieces, and must be forwarded before the next one is sent.
			for i, want := range []string{test.first, test.later} {
				text := fmt.Sprintf(`{"type":"ADDED","object":{"kind":"Node","apiVersion":"v1","metadata":{"name":"n%d","resourceVersion":"1"},"spec":{}}}`, i)
				next <- text[:20]
				next <- text[20:] + "\n"
				line, err := lines.ReadString('\n')
				if err != nil || !strings.Contains(line, test.kind) || !strings.Contains(line, want) || strings.Contains(line, "spec") {
					t.Fatalf("event %d = %q, error %v, want kind %s with %q and without spec", i, line, err, test.kind, want)
				}
			}
			next <- `{"type":"BOOKMARK","object":{"kind":"Node","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}`
			if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, `"9"`) || strings.Contains(line, "cells") {
				t.Errorf("bookmark = %q, error %v, want version 9 without cells", line, err)
			}
			next <- `{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}`
			if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, `"Expired"`) {
				t.Errorf("error event = %q, error %v, want reason Expired", line, err)
			}
			close(next)
			if _, err := lines.ReadString('\n'); err != io.EOF {
				t.Errorf("end of the watch: error = %v, want %v", err, io.EOF)
			}
		})
	}
}

func TestWatchWithInvalidJSONIsAborted(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	plainBackend(w, `{"type":"ADDED","object":{"kind":"Node"}} nonsense`)
	w.configure(func(t *Destination) { t.ConvertMetadata = true })
	if a := w.accept(watching, asOne); a.err == nil {
		t.Errorf("the watch ended without an error after %q, want an error", a.body)
	}
}

// A subresource that an APIService declares as long-running outlives the deadline from the chain.
func TestLongRunningSubresourceOutlivesDeadline(t *testing.T) {
	w := newTestEnv(t, Config{BodyIdle: 50 * time.Millisecond}, transport.Options{})
	const deadline = 300 * time.Millisecond
	w.mu.Lock()
	w.deadline = deadline
	w.mu.Unlock()
	w.backend(w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(2 * deadline):
			rw.Header().Set("Content-Length", "4")
			_, _ = io.WriteString(rw, "la")
			rw.(http.Flusher).Flush()
			<-time.After(deadline)
			_, _ = io.WriteString(rw, "te")
		case <-r.Context().Done():
		}
	})))
	if a := w.get(resource + "/console"); a.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("without the annotation: response = %d %s, want 504", a.StatusCode, a.body)
	}
	w.configure(func(t *Destination) { t.LongRunning = true })
	if a := w.get(resource + "/console"); a.StatusCode != 200 || a.body != "late" || a.err != nil {
		t.Errorf("with the annotation: response = %d %q, error %v, want 200 %q", a.StatusCode, a.body, a.err, "late")
	}
}

func TestRecordContainsMessageSentToClient(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	dead, alive := w.deadAddress(), w.serve(&recorder{})
	tell := func(path string) *filters.Record {
		record := &filters.Record{}
		w.mu.Lock()
		w.record = record
		w.mu.Unlock()
		a := w.get(path)
		if record.Failure != "" {
			if told := a.status(t).Message; told != record.Failure {
				t.Errorf("message to the client = %q, want the record's failure %q", told, record.Failure)
			}
			if logged := w.logs.FilterField(zap.String("told", record.Failure)).Len(); logged != 1 {
				t.Errorf("%d log entries with the failure, want 1", logged)
			}
		}
		return record
	}
	w.backend(dead)
	if r := tell(resource); r.Endpoint != dead || r.Attempts != 1 || !strings.Contains(r.Failure, apiService) {
		t.Errorf("record with a dead endpoint = %+v, want endpoint %s, 1 attempt and a failure of %s", r, dead, apiService)
	}
	w.backend(alive)
	if r := tell(resource); r.Endpoint != alive || r.Failure != "" || r.IsLongRunning {
		t.Errorf("record with a live endpoint = %+v, want endpoint %s, no failure and not long-running", r, alive)
	}
	if r := tell(watching); !r.IsLongRunning {
		t.Errorf("record of a watch = %+v, want long-running", r)
	}
}
