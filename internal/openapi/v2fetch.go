package openapi

import (
	"bytes"
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
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/util/proto"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico.dev/internal/discovery/remote"
)

const (
	// freshFor is how long the answer of a backend about version 2 is good for.
	freshFor = time.Minute
	// patience is how long a reader waits for backends that have not been heard, counted from when they were asked: a
	// backend that hangs costs its first readers this much, and nobody anything after that until it is asked again.
	patience = 1500 * time.Millisecond
	// diligence is how long a reader waits for us to read what backends have said in time.
	diligence = 10 * time.Second
	// readersAtOnce bounds the documents that are open at one time: one takes many times its size.
	readersAtOnce = 2
)

// inquiry is one question to one backend for its version 2 document. It goes on when nobody waits for it any more, so
// that a slow backend is in the next document.
type inquiry struct {
	backend remote.Backend
	wanted  []schema.GroupVersion
	etag    string
	began   time.Time
	// said is closed when the backend has answered or failed to, done when the answer has been taken in.
	said, done chan struct{}
}

// await returns when the inquiry is done, or nobody should wait for it any longer.
func (q *inquiry) await(ctx context.Context) {
	silence := time.NewTimer(time.Until(q.began.Add(patience)))
	defer silence.Stop()
	select {
	case <-q.said:
	case <-q.done:
		return
	case <-silence.C:
		return
	case <-ctx.Done():
		return
	}
	reading := time.NewTimer(time.Until(q.began.Add(diligence)))
	defer reading.Stop()
	select {
	case <-q.done:
	case <-reading.C:
	case <-ctx.Done():
	}
}

// inquire asks every backend that is available and has not been asked lately, and returns the inquiries that a reader
// should wait for. A backend that is known to be dead is not asked: what it last said stands.
func (s *swaggers) inquire() []*inquiry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var open []*inquiry
	for _, b := range s.table.Backends() {
		q := s.asked[b]
		if q == nil || q.isOld() {
			if q = s.newInquiry(b, q); q == nil {
				continue
			}
			s.asked[b] = q
			s.orders = append(s.orders, q)
		}
		if !q.isDone() && time.Since(q.began) < diligence {
			open = append(open, q)
		}
	}
	if len(s.orders) > 0 {
		select {
		case s.more <- struct{}{}:
		default: // it has been told already and did not get to it yet
		}
	}
	return open
}

func (q *inquiry) isDone() bool {
	select {
	case <-q.done:
		return true
	default:
		return false
	}
}

func (q *inquiry) isOld() bool { return q.isDone() && time.Since(q.began) > freshFor }

// newInquiry returns nil if there is nothing to ask the backend for. The caller holds mu.
func (s *swaggers) newInquiry(b remote.Backend, before *inquiry) *inquiry {
	q := &inquiry{backend: b, began: time.Now(), said: make(chan struct{}), done: make(chan struct{})}
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

// run makes the inquiries that readers order, and drops the document when it has none. It returns when everything that
// it started has returned.
func (s *swaggers) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	look := time.NewTicker(idle / 10)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			s.dropIfIdle()
		case <-s.more:
			s.mu.Lock()
			orders := s.orders
			s.orders = nil
			s.mu.Unlock()
			for _, q := range orders {
				running.Go(func() { s.pursue(ctx, q) })
			}
		}
	}
}

func (s *swaggers) pursue(ctx context.Context, q *inquiry) {
	defer close(q.done)
	a, err := s.fetcher.Fetch(ctx, q.backend, remote.Request{
		Path: "/openapi/v2", ETag: q.etag, Accept: "application/json",
		As: aggregatorIdentity, Limit: maxDocument, Timeout: fetchTimeout,
	})
	close(q.said)
	if ctx.Err() != nil {
		return // we are stopping: that says nothing about the backend
	}
	held := q.etag
	q.etag = ""
	switch {
	case err != nil:
		s.learn(q, nil, err)
	case a.Code == http.StatusNotModified && held != "":
		q.etag = held
	case a.Code == http.StatusNotFound: // it does not speak version 2, which is its good right
		s.learn(q, nil, nil)
	case a.Code != http.StatusOK:
		s.learn(q, nil, fmt.Errorf("get /openapi/v2 from %s: answered %d", q.backend.Name(), a.Code))
	default:
		s.read(ctx, q, a)
	}
}

// read takes an answer apart, when it is its turn.
func (s *swaggers) read(ctx context.Context, q *inquiry, a *remote.Answer) {
	select {
	case s.readers <- struct{}{}:
		defer func() { <-s.readers }()
	case <-ctx.Done():
		return
	}
	results, err := members(a.Body, q.wanted)
	if err == nil {
		q.etag = a.ETag
	}
	s.learn(q, results, err)
}

// learn takes in what a backend said. What it said badly, or not at all, leaves the last good members where they are.
func (s *swaggers) learn(q *inquiry, results map[schema.GroupVersion]heard, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.table.By(q.backend) {
		if !slices.Contains(q.wanted, r.GroupVersion) {
			continue
		}
		h, result := s.held[r.APIService], results[r.GroupVersion]
		err := failure
		if err == nil {
			err = result.err
		}
		trouble := ""
		if err != nil {
			trouble = publicReason(err)
		}
		if trouble != h.trouble && err != nil {
			s.log.Warn("OpenAPI v2 document is missing or old", zap.String("apiservice", r.APIService), zap.Error(err))
		}
		h.trouble = trouble
		if result.document != nil && (h.document == nil || h.document.Hash != result.document.Hash) {
			h.document = result.document
			s.revision++
		}
	}
}

// members takes the wanted group-versions out of a backend's version 2 document, each as a document of its own: its paths
// and what they refer to. What the document does not describe is not in the result. An error of one does not touch the
// others.
//
// Every client reads the merged document whole: one dangling reference in it, or one entry that cannot be written as
// protobuf, takes the descriptions of all kinds from everybody (kubernetes-sigs/metrics-server#1868). So what a member
// says is read here once the way clients are going to read it.
func members(body []byte, wanted []schema.GroupVersion) (results map[schema.GroupVersion]heard, err error) {
	defer catch(&err)
	var whole spec.Swagger
	if err := json.Unmarshal(body, &whole); err != nil {
		return nil, fmt.Errorf("the OpenAPI v2 document does not parse: %w", err)
	}
	if !strings.HasPrefix(whole.Swagger, "2.") || whole.Paths == nil {
		return nil, fmt.Errorf("the OpenAPI v2 document is of version %q, not 2, or describes no path", whole.Swagger)
	}
	whole.Definitions = handler.PruneDefaults(whole.Definitions)
	for name, definition := range whole.Definitions {
		whole.Definitions[name] = speakForOwn(definition, wanted)
	}
	// Written anew it has no white space, and its fields have an order.
	canonical, err := whole.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("write the OpenAPI v2 document: %w", err)
	}
	results = map[schema.GroupVersion]heard{}
	for _, gv := range wanted {
		s, err := openSwagger(canonical)
		if err != nil {
			return nil, err
		}
		s.retain(func(path string) bool { return isUnder(path, gv) })
		if len(s.paths) > 0 {
			results[gv] = s.member(gv)
		}
	}
	return results, nil
}

// catch turns a panic over what a backend wrote into an error: the parsers of OpenAPI were made for documents of friends.
func catch(err *error) {
	if why := recover(); why != nil {
		*err = fmt.Errorf("the OpenAPI document cannot be read: %v", why)
	}
}

func isUnder(path string, gv schema.GroupVersion) bool {
	root := "/" + indexPath(gv)
	return path == root || strings.HasPrefix(path, root+"/")
}

func (s *swagger) member(gv schema.GroupVersion) heard {
	used := map[string]bool{}
	for _, item := range s.paths {
		s.use(item, used)
	}
	for _, key := range slices.Sorted(maps.Keys(used)) {
		if _, ok := s.named[key]; !ok {
			return heard{err: fmt.Errorf("the OpenAPI v2 document of %s has a reference that leads nowhere: %q", gv, key)}
		}
	}
	var body bytes.Buffer
	writeSwagger(&body, s)
	if err := readAsClient(body.Bytes()); err != nil {
		return heard{err: fmt.Errorf("clients could not read the OpenAPI v2 document of %s: %w", gv, err)}
	}
	document, err := NewDocument(indexPath(gv), body.Bytes())
	return heard{document: &document, err: err}
}

// readAsClient reads a document as kubectl does.
func readAsClient(body []byte) error {
	document, err := openapi_v2.ParseDocument(body)
	if err != nil {
		return err
	}
	_, err = proto.NewOpenAPIData(document)
	return err
}

// speakForOwn leaves a definition only those kinds that are in the backend's own group-versions. A client that looks for
// ClusterRole must not be shown what a backend says it looks like.
func speakForOwn(definition spec.Schema, own []schema.GroupVersion) spec.Schema {
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
