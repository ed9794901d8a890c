package openapi

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/metrics"
)

const (
	// idleTimeout is how long the merged document is kept without a reader. It is large, few clients still read it, and
	// making it takes less than a second.
	idleTimeout = 5 * time.Minute
	// maxMerged limits the merged document, in bytes before compression. Backends that would exceed it are skipped, in
	// order.
	maxMerged = 64 << 20
)

// v2Publisher makes the version 2 document of all groups, local and remote. Unlike version 3 documents, it exists only
// while clients read it, and backends are only polled for it then.
type v2Publisher struct {
	local   func() []Source
	fetcher *remote.Fetcher
	log     *zap.Logger
	metrics *metrics.OpenAPI

	builds  *builds
	parsers chan struct{}
	wake    chan struct{}

	// mu is never held during I/O, encoding or merging.
	mu       sync.Mutex
	table    remote.Table
	held     map[string]*record // by APIService
	revision int                // incremented whenever table or held changes
	fetches  map[remote.Backend]*v2Fetch
	queued   []*v2Fetch
	merged   *mergedV2
	parts    *localParts
}

// mergedV2 is one state of the merged document.
type mergedV2 struct {
	Document
	revision int
	local    []string // hashes of the local sources

	// mu guards the fields below. It is not held during the conversion to protobuf.
	mu       sync.Mutex
	read     time.Time
	protobuf []byte // compressed; nil until requested
}

func newV2Publisher(local func() []Source, log *zap.Logger, m *metrics.OpenAPI) *v2Publisher {
	return &v2Publisher{
		local: local, log: log, metrics: m,
		fetcher: remote.NewFetcher(maxConcurrentBodies),
		parsers: make(chan struct{}, maxParsers),
		wake:    make(chan struct{}, 1),
		held:    map[string]*record{},
		fetches: map[remote.Backend]*v2Fetch{},
		builds:  newBuilds(),
		parts:   newLocalParts(),
	}
}

// follow switches to a new table. A backend that has become available, or has a different registration, is fetched again
// for the next reader.
func (s *v2Publisher) follow(table remote.Table) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(table.Routes) > 0 && s.table.Equal(table) {
		return
	}
	before := map[string]remote.Route{}
	for _, r := range s.table.Routes {
		before[r.APIService] = r
	}
	held, asked := map[string]*record{}, map[remote.Backend]*v2Fetch{}
	for _, b := range table.Backends() {
		if q := s.fetches[b]; q != nil {
			asked[b] = q
		}
	}
	for _, r := range table.Routes {
		if r.Local {
			continue
		}
		if held[r.APIService] = s.held[r.APIService]; held[r.APIService] == nil || held[r.APIService].uid != r.UID {
			held[r.APIService] = &record{uid: r.UID}
		}
		if old, ok := before[r.APIService]; r.Backend != nil && (!ok || mayDiffer(old, r)) {
			delete(asked, r.Backend)
		}
	}
	if !slices.EqualFunc(s.table.Routes, table.Routes, samePart) {
		s.revision++
	}
	s.table, s.held, s.fetches = table, held, asked
}

// samePart reports whether two routes contribute the same part to the document, which does not depend on availability.
func samePart(a, b remote.Route) bool {
	return a.APIService == b.APIService && a.UID == b.UID && a.Local == b.Local
}

func (s *v2Publisher) problem(apiService string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rec := s.held[apiService]; rec != nil {
		return rec.problem
	}
	return ""
}

// current returns the current document. It waits briefly for backends that are being fetched.
func (s *v2Publisher) current(ctx context.Context) (*mergedV2, error) {
	for _, q := range s.startFetches() {
		q.await(ctx)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	local := hashes(s.local())
	s.mu.Lock()
	e, revision := s.merged, s.revision
	s.mu.Unlock()
	// A reader that arrives during a merge uses its result, unless the merge began too early.
	for range 2 {
		if e.covers(revision, local) {
			break
		}
		made, err := s.builds.do(ctx, "merge", func(ctx context.Context) (any, error) { return s.merge(ctx) })
		if err != nil {
			return nil, err
		}
		e = made.(*mergedV2)
	}
	e.touch()
	return e, nil
}

// covers reports whether the document contains everything up to a revision.
func (e *mergedV2) covers(revision int, local []string) bool {
	return e != nil && e.revision >= revision && slices.Equal(e.local, local)
}

func hashes(sources []Source) []string {
	out := make([]string, 0, len(sources))
	for _, s := range sources {
		out = append(out, s.Hash)
	}
	return out
}

func (e *mergedV2) touch() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.read = time.Now()
}

func (e *mergedV2) idleSince(t time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.read.Before(t)
}

// haveAll reports whether each of the given backends has a document. The caller must hold the lock.
func (s *v2Publisher) haveAll(parts []string) bool {
	return !slices.ContainsFunc(parts, func(name string) bool { return s.held[name] != nil && s.held[name].document == nil })
}

// merge makes a document and replaces the current one, unless ctx ends before.
func (s *v2Publisher) merge(ctx context.Context) (*mergedV2, error) {
	began, local := time.Now(), s.local()
	s.parts.keep(local)
	sources := s.sources()
	m := newSwaggerMerger()
	size, err := s.addLocals(ctx, m, local, func(path string) bool { return !sources.remotePaths[path] || sources.customFirst[path] })
	if err != nil {
		return nil, err
	}
	if err := s.addRemotes(ctx, m, sources.remotes, size); err != nil {
		return nil, err
	}
	if len(sources.customLast) > 0 {
		if _, err := s.addLocals(ctx, m, local, func(path string) bool { return sources.customLast[path] }); err != nil {
			return nil, err
		}
	}
	d, err := m.pack()
	if err != nil {
		return nil, err
	}
	e := &mergedV2{Document: d, revision: sources.revision, local: hashes(local), read: began}
	s.mu.Lock()
	s.merged = e
	s.mu.Unlock()
	s.metrics.SwaggerSeconds.Observe(time.Since(began).Seconds())
	s.metrics.SwaggerBytes.Set(float64(len(d.Packed)))
	return e, nil
}

// v2Sources are the inputs of one merge, from one state of the publisher. The keys of the maps are paths of group-versions.
type v2Sources struct {
	revision    int
	remotes     []remoteSwagger
	remotePaths map[string]bool
	// group-versions that include custom resources, as the first part or as a later one
	customFirst, customLast map[string]bool
}

func (s *v2Publisher) sources() v2Sources {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := v2Sources{revision: s.revision, remotePaths: map[string]bool{}, customFirst: map[string]bool{}, customLast: map[string]bool{}}
	served := map[string]schema.GroupVersion{}
	for _, r := range s.table.Routes {
		served[r.APIService] = r.GroupVersion
	}
	for _, r := range s.table.Routes {
		if r.Local && r.PartOf != "" {
			of := out.customLast
			if slices.ContainsFunc(s.table.Routes, func(whole remote.Route) bool { return len(whole.Parts) > 0 && whole.Parts[0] == r.APIService }) {
				of = out.customFirst
			}
			of[indexPath(r.GroupVersion)] = true
		}
		if r.Local || len(r.Parts) > 0 && s.haveAll(r.Parts) {
			continue // an APIService with an APIRoute is served by the parts alone
		}
		as := r.GroupVersion
		if r.PartOf != "" {
			as = served[r.PartOf]
		}
		out.remotePaths[indexPath(as)] = true
		if d := s.held[r.APIService].document; d != nil {
			out.remotes = append(out.remotes, remoteSwagger{*d, r.GroupVersion, as})
		}
	}
	return out
}

// addLocals adds the paths of the local group-versions for which keep holds, and returns the size of the local documents.
func (s *v2Publisher) addLocals(ctx context.Context, m *swaggerMerger, local []Source, keep func(groupVersion string) bool) (size int, err error) {
	for _, from := range local {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		d, err := s.parts.document(from)
		if err == nil {
			size += d.size()
			err = m.addLocal(d, keep)
		}
		if err != nil {
			s.log.Error("omitting local groups from the OpenAPI v2 document", zap.Error(err))
		}
	}
	return size, ctx.Err()
}

// addRemotes adds documents of backends until the merged document would be too large. size is the size of the documents
// added before.
func (s *v2Publisher) addRemotes(ctx context.Context, m *swaggerMerger, remotes []remoteSwagger, size int) error {
	for _, d := range remotes {
		if err := ctx.Err(); err != nil {
			return err
		}
		if size += d.size(); size > maxMerged {
			s.log.Warn("OpenAPI v2 document is too large; omitting members", zap.String("from", d.Path))
			break
		}
		if err := m.addServed(d); err != nil {
			s.log.Error("omitting a member from the OpenAPI v2 document", zap.String("member", d.Path), zap.Error(err))
		}
	}
	return ctx.Err()
}

// addLocal adds the paths of the group-versions for which keep holds.
func (m *swaggerMerger) addLocal(d Document, keep func(groupVersion string) bool) error {
	s, err := d.open()
	if err != nil {
		return err
	}
	s.retain(func(path string) bool { return keep(ownerOf(path)) })
	m.add(s)
	return nil
}

// ownerOf returns the group-version of a path, as in the index.
func ownerOf(path string) string {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if parts[0] == "api" {
		return strings.Join(parts[:min(2, len(parts))], "/")
	}
	return strings.Join(parts[:min(3, len(parts))], "/")
}

// remoteSwagger is a backend's description of a group-version, and the group-version under which it is served.
type remoteSwagger struct {
	Document
	source, served schema.GroupVersion
}

func (m *swaggerMerger) addServed(d remoteSwagger) error {
	if d.source == d.served {
		return m.addPacked(d.Document)
	}
	body, err := d.unpacked()
	if err == nil {
		body, err = inVersion(body, d.source, d.served)
	}
	if err != nil {
		return err
	}
	s, err := openSwagger(body)
	if err != nil {
		return err
	}
	m.add(s)
	return nil
}

func (m *swaggerMerger) addPacked(d Document) error {
	s, err := d.open()
	if err != nil {
		return err
	}
	m.add(s)
	return nil
}

func (s *v2Publisher) dropIfIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := time.Now().Add(-idleTimeout)
	if s.merged != nil && s.merged.idleSince(since) {
		s.merged = nil
		s.metrics.SwaggerBytes.Set(0)
	}
	if s.merged == nil {
		s.parts.dropIfIdle(since)
	}
}
