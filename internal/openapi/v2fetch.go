package openapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/util/proto"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico.dev/internal/discovery/remote"
)

const (
	// v2MaxAge is how long a version 2 response of a backend is used.
	v2MaxAge = time.Minute
	// answerWait is how long a reader waits for backends that have not answered, counted from the start of the fetch. A
	// hanging backend delays its first readers by this time, and no later readers until the next fetch.
	answerWait = 1500 * time.Millisecond
	// parseWait is how long a reader waits for responses to be parsed.
	parseWait = 10 * time.Second
	// maxParsers is the maximum number of documents that are parsed concurrently: each takes many times its size.
	maxParsers = 2
)

// v2Fetch is one request to one backend for its version 2 document. It continues if no reader waits for it, so that a slow
// backend is included in the next document.
type v2Fetch struct {
	backend remote.Backend
	wanted  []schema.GroupVersion
	etag    string
	began   time.Time
	// answered is closed when the backend has answered or failed, done when the response has been processed.
	answered, done chan struct{}
}

// await returns when the fetch is done, or when the wait times out.
func (q *v2Fetch) await(ctx context.Context) {
	timeout := time.NewTimer(time.Until(q.began.Add(answerWait)))
	defer timeout.Stop()
	select {
	case <-q.answered:
	case <-q.done:
		return
	case <-timeout.C:
		return
	case <-ctx.Done():
		return
	}
	reading := time.NewTimer(time.Until(q.began.Add(parseWait)))
	defer reading.Stop()
	select {
	case <-q.done:
	case <-reading.C:
	case <-ctx.Done():
	}
}

// startFetches starts a fetch from every available backend without a recent one, and returns the fetches that a reader
// should wait for. Dead backends keep their last document.
func (s *v2Publisher) startFetches() []*v2Fetch {
	s.mu.Lock()
	defer s.mu.Unlock()
	var open []*v2Fetch
	for _, b := range s.table.Backends() {
		q := s.fetches[b]
		if q == nil || q.isOld() {
			if q = s.newV2Fetch(b, q); q == nil {
				continue
			}
			s.fetches[b] = q
			s.queued = append(s.queued, q)
		}
		if !q.isDone() && time.Since(q.began) < parseWait {
			open = append(open, q)
		}
	}
	if len(s.queued) > 0 {
		select {
		case s.wake <- struct{}{}:
		default: // a previous signal is still pending
		}
	}
	return open
}

func (q *v2Fetch) isDone() bool {
	select {
	case <-q.done:
		return true
	default:
		return false
	}
}

func (q *v2Fetch) isOld() bool { return q.isDone() && time.Since(q.began) > v2MaxAge }

// newV2Fetch returns nil if no group-version of the backend is available. The caller must hold mu.
func (s *v2Publisher) newV2Fetch(b remote.Backend, before *v2Fetch) *v2Fetch {
	q := &v2Fetch{backend: b, began: time.Now(), answered: make(chan struct{}), done: make(chan struct{})}
	complete := true
	for _, r := range s.table.By(b) {
		if r.Available {
			q.wanted = append(q.wanted, r.GroupVersion)
			complete = complete && s.held[r.APIService].document != nil
		}
	}
	if before != nil && complete && slices.Equal(q.wanted, before.wanted) {
		q.etag = before.etag
	}
	if len(q.wanted) == 0 {
		return nil
	}
	return q
}

// run runs the fetches that readers start, and drops the document when it is not read. It returns when all of its
// goroutines have returned.
func (s *v2Publisher) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	tick := time.NewTicker(idleTimeout / 10)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.dropIfIdle()
		case <-s.wake:
			s.mu.Lock()
			queued := s.queued
			s.queued = nil
			s.mu.Unlock()
			for _, q := range queued {
				running.Go(func() { s.fetch(ctx, q) })
			}
		}
	}
}

func (s *v2Publisher) fetch(ctx context.Context, q *v2Fetch) {
	defer close(q.done)
	a, err := s.fetcher.Fetch(ctx, q.backend, remote.Request{
		Path: "/openapi/v2", ETag: q.etag, Accept: "application/json",
		As: aggregatorIdentity, Limit: maxDocument, Timeout: fetchTimeout,
	})
	close(q.answered)
	if ctx.Err() != nil {
		return // the process is stopping; the result is not about the backend
	}
	held := q.etag
	q.etag = ""
	switch {
	case err != nil:
		s.update(q, nil, err)
	case a.Code == http.StatusNotModified && held != "":
		q.etag = held
	case a.Code == http.StatusNotFound: // a backend need not have version 2
		s.update(q, nil, nil)
	case a.Code != http.StatusOK:
		s.update(q, nil, fmt.Errorf("get /openapi/v2 from %s: answered %d", q.backend.Name(), a.Code))
	default:
		s.read(ctx, q, a)
	}
}

// read parses a response as soon as a parser is free.
func (s *v2Publisher) read(ctx context.Context, q *v2Fetch, a *remote.Answer) {
	select {
	case s.parsers <- struct{}{}:
		defer func() { <-s.parsers }()
	case <-ctx.Done():
		return
	}
	results, err := splitByGroupVersion(a.Body, q.wanted)
	if err == nil {
		q.etag = a.ETag
	}
	s.update(q, results, err)
}

// update processes a backend's response. An invalid or missing response leaves the last valid documents in place.
func (s *v2Publisher) update(q *v2Fetch, results map[schema.GroupVersion]result, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.table.By(q.backend) {
		if !slices.Contains(q.wanted, r.GroupVersion) {
			continue
		}
		rec, fetched := s.held[r.APIService], results[r.GroupVersion]
		rec.setProblem(cmp.Or(failure, fetched.err), s.log, "OpenAPI v2 document is missing or old", r.APIService)
		if rec.replace(fetched.document) {
			s.revision++
		}
	}
}

// splitByGroupVersion extracts the wanted group-versions from a backend's version 2 document, each as a separate document
// with its paths and the entries that they reference. Group-versions that are not in the document are not in the result. An
// error in one does not affect the others.
//
// Every client reads the merged document as a whole: one dangling reference, or one entry that cannot be encoded as
// protobuf, breaks it for all kinds (kubernetes-sigs/metrics-server#1868). Therefore each part is parsed once here like
// clients parse it.
func splitByGroupVersion(body []byte, wanted []schema.GroupVersion) (results map[schema.GroupVersion]result, err error) {
	defer recoverPanic(&err)
	var whole spec.Swagger
	if err := json.Unmarshal(body, &whole); err != nil {
		return nil, fmt.Errorf("the OpenAPI v2 document does not parse: %w", err)
	}
	if !strings.HasPrefix(whole.Swagger, "2.") || whole.Paths == nil {
		return nil, fmt.Errorf("the OpenAPI v2 document is of version %q, not 2, or describes no path", whole.Swagger)
	}
	whole.Definitions = handler.PruneDefaults(whole.Definitions)
	for name, definition := range whole.Definitions {
		whole.Definitions[name] = keepOwnKinds(definition, wanted)
	}
	// The re-encoded document has no white space, and its fields are ordered.
	canonical, err := whole.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("write the OpenAPI v2 document: %w", err)
	}
	results = map[schema.GroupVersion]result{}
	for _, gv := range wanted {
		s, err := openSwagger(canonical)
		if err != nil {
			return nil, err
		}
		s.retain(func(path string) bool { return isUnder(path, gv) })
		if len(s.paths) > 0 {
			results[gv] = s.forGroupVersion(gv)
		}
	}
	return results, nil
}

// recoverPanic converts a panic about a backend's document to an error: the OpenAPI parsers are not robust against
// malicious input.
func recoverPanic(err *error) {
	if why := recover(); why != nil {
		*err = fmt.Errorf("the OpenAPI document cannot be read: %v", why)
	}
}

func isUnder(path string, gv schema.GroupVersion) bool {
	root := "/" + indexPath(gv)
	return path == root || strings.HasPrefix(path, root+"/")
}

func (s *swagger) forGroupVersion(gv schema.GroupVersion) result {
	used := map[string]bool{}
	for _, item := range s.paths {
		s.markUsed(item, used)
	}
	for _, key := range slices.Sorted(maps.Keys(used)) {
		if _, ok := s.named[key]; !ok {
			return result{err: fmt.Errorf("the OpenAPI v2 document of %s has a reference that leads nowhere: %q", gv, key)}
		}
	}
	var body bytes.Buffer
	writeSwagger(&body, s)
	if err := readAsClient(body.Bytes()); err != nil {
		return result{err: fmt.Errorf("clients could not read the OpenAPI v2 document of %s: %w", gv, err)}
	}
	document, err := NewDocument(indexPath(gv), body.Bytes())
	return result{document: &document, err: err}
}

// readAsClient parses a document like kubectl does.
func readAsClient(body []byte) error {
	document, err := openapi_v2.ParseDocument(body)
	if err != nil {
		return err
	}
	_, err = proto.NewOpenAPIData(document)
	return err
}

// keepOwnKinds removes the kinds of other group-versions from a definition: a backend must not describe ClusterRole to
// clients.
func keepOwnKinds(definition spec.Schema, own []schema.GroupVersion) spec.Schema {
	listed, ok := definition.Extensions[kindsField]
	if !ok {
		return definition
	}
	kinds, _ := listed.([]any)
	kept := slices.DeleteFunc(slices.Clone(kinds), func(kind any) bool {
		fields, _ := kind.(map[string]any)
		group, _ := fields["group"].(string)
		version, _ := fields["version"].(string)
		return !slices.Contains(own, schema.GroupVersion{Group: group, Version: version})
	})
	extensions := maps.Clone(definition.Extensions)
	if extensions[kindsField] = kept; len(kept) == 0 {
		delete(extensions, kindsField)
	}
	definition.Extensions = extensions
	return definition
}
