package openapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/logging"
	"portico.dev/internal/metrics"
	"portico.dev/internal/transport"
)

const (
	// maxConcurrentBodies limits the memory of responses while they are read, to this multiple of maxDocument.
	maxConcurrentBodies = 4
	// The pause between two indexes is at least minPause, and pauseFactor times the duration of the last one, at most
	// maxPause.
	minPause    = 20 * time.Millisecond
	maxPause    = 200 * time.Millisecond
	pauseFactor = 20
	// cachedProtobufs is the number of documents cached as protobuf, which few clients request.
	cachedProtobufs = 32
)

// Config is the configuration of a Publisher. All fields except LocalV2, Warning, BackendEvents, Storage and Metrics are
// required.
type Config struct {
	// Local returns the documents of the group-versions that this server serves itself. It is called often and must not
	// block.
	Local func() []Document
	// LocalV2 returns these documents in version 2, without a path and with one or many group-versions each. It is called
	// for each reader and must not build anything. May be nil.
	LocalV2 func() []Source
	// LocalChanged returns a channel that is closed at the next change of Local.
	LocalChanged func() <-chan struct{}
	// Routes returns the current table. Changed returns a channel that is closed when the table is replaced.
	Routes  func() remote.Table
	Changed func() <-chan struct{}
	// Warning returns the warning of the document of a path, such as "/apis/example.com/v1". It must not block. If nil,
	// documents have no warnings.
	Warning func(path string) *remote.Warning
	// BackendEvents reports backends that may serve different documents than before. May be nil.
	BackendEvents *transport.Events
	// Storage keeps the last documents of backends across restarts. If nil, nothing is stored.
	Storage remote.LastKnown
	Logger  *zap.Logger
	Metrics *metrics.OpenAPI
}

// Publisher collects the OpenAPI documents and serves them.
type Publisher struct {
	cfg     Config
	log     *zap.Logger
	metrics *metrics.OpenAPI
	fetcher *remote.Fetcher
	records *remote.Collector[record]
	v2      *v2Publisher
	unions  unions

	current    atomic.Pointer[index]
	ready      chan struct{}
	protobufs  *lru.Cache[string, []byte] // by hash, compressed
	converting singleflight.Group
}

// record is the state of one remote group-version.
type record struct {
	uid      types.UID
	document *Document // last valid document, or nil
	problem  string
	startup  logging.Startup
}

// New returns a Publisher that has not polled anything yet.
func New(cfg Config) (*Publisher, error) {
	if cfg.Local == nil || cfg.LocalChanged == nil || cfg.Routes == nil || cfg.Changed == nil || cfg.Logger == nil {
		return nil, errors.New("openapi: Local, LocalChanged, Routes, Changed and Logger are required")
	}
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.NewOpenAPI(prometheus.NewRegistry())
	}
	if cfg.Warning == nil {
		cfg.Warning = func(string) *remote.Warning { return nil }
	}
	if cfg.LocalV2 == nil {
		cfg.LocalV2 = func() []Source { return nil }
	}
	protobufs, err := lru.New[string, []byte](cachedProtobufs)
	if err != nil {
		return nil, err
	}
	p := &Publisher{
		cfg:       cfg,
		log:       cfg.Logger,
		metrics:   cfg.Metrics,
		fetcher:   remote.NewFetcher(maxConcurrentBodies),
		v2:        newV2Publisher(cfg.LocalV2, cfg.Logger, cfg.Metrics),
		ready:     make(chan struct{}),
		protobufs: protobufs,
	}
	p.records = remote.NewCollector(remote.Config[record]{
		Routes: cfg.Routes, RoutesChanged: cfg.Changed, LocalChanged: cfg.LocalChanged, Storage: cfg.Storage,
		Decode: decodeRecord, Adopt: adopt, Merge: merge, PollNow: mayDiffer, NewPoll: p.newPoll, Publish: p.publish,
		BackendEvents: cfg.BackendEvents, PollOnResources: true, Polls: cfg.Metrics.Rounds, Logger: cfg.Logger,
	})
	return p, nil
}

// Ready is closed when the first index exists. It contains the local documents and the stored ones.
func (p *Publisher) Ready() <-chan struct{} { return p.ready }

// Problem briefly describes why the document of an APIService, of either version, is missing or old. It returns "" if it is
// neither.
func (p *Publisher) Problem(apiService string) string {
	problem := ""
	p.records.Read(func(_ remote.Table, records map[string]*record) {
		if rec := records[apiService]; rec != nil {
			problem = rec.problem
		}
	})
	return cmp.Or(problem, p.v2.problem(apiService))
}

// Run keeps the index up to date until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { p.v2.run(ctx) })
	return p.records.Run(ctx)
}

// adopt drops the record of an APIService that was deleted and recreated: it may refer to a different backend, which the
// old document does not describe.
func adopt(r remote.Route, current, stored *record) *record {
	switch {
	case current != nil && current.uid == r.UID:
		return current
	case stored != nil && stored.uid == r.UID && stored.document.Path == indexPath(r.GroupVersion):
		return stored
	}
	return &record{uid: r.UID}
}

// merge adopts the document that another replica stored.
func merge(r remote.Route, own, stored *record) bool {
	if r.UID != stored.uid || own.document != nil && own.document.Hash == stored.document.Hash {
		return false
	}
	own.document = stored.document
	return true
}

// mayDiffer reports whether the backend of a route may serve a different document: it is a different backend, or has become
// available and may run a different program.
func mayDiffer(before, after remote.Route) bool {
	return before.Backend != after.Backend || before.UID != after.UID || after.Available && !before.Available
}

// publish replaces the index, if it differs, and returns the minimum time until the next call.
func (p *Publisher) publish() time.Duration {
	start := time.Now()
	p.replaceIndex()
	took := time.Since(start)
	return min(max(minPause, pauseFactor*took), max(maxPause, 4*took))
}

func (p *Publisher) replaceIndex() {
	documents, bytes := p.collect()
	before := p.current.Load()
	if before != nil && hasSameDocuments(before, documents) {
		return
	}
	p.current.Store(newIndex(documents))
	if before == nil {
		close(p.ready)
	}
	p.metrics.Documents.Set(float64(len(documents)))
	p.metrics.Bytes.Set(float64(bytes))
}

// collect returns the last valid documents of backends, with their size, and the local documents, except documents of
// group-versions that a backend serves.
func (p *Publisher) collect() (documents []Document, bytes int) {
	remotes := map[string]bool{}
	var several []union
	locals := map[string]*Document{}
	for _, d := range p.cfg.Local() {
		locals[d.Path] = &d
	}
	p.records.Read(func(table remote.Table, records map[string]*record) {
		p.v2.follow(table)
		for _, r := range table.Routes {
			if r.Local || r.PartOf != "" {
				continue
			}
			remotes[indexPath(r.GroupVersion)] = true
			if len(r.Parts) > 0 {
				several = append(several, unionOf(r, table, records, locals[indexPath(r.GroupVersion)]))
				continue
			}
			if d := records[r.APIService].document; d != nil {
				documents = append(documents, *d)
				bytes += len(d.Packed)
			}
		}
	})
	for _, d := range p.unions.documents(several, p.log) {
		documents = append(documents, d)
		bytes += len(d.Packed)
	}
	for path, d := range locals {
		if !remotes[path] {
			documents = append(documents, *d)
		}
	}
	return documents, bytes
}

func hasSameDocuments(i *index, documents []Document) bool {
	if len(i.documents) != len(documents) {
		return false
	}
	for _, d := range documents {
		if i.documents[d.Path].Hash != d.Hash {
			return false
		}
	}
	return true
}

// newPoll returns the Poll of one backend.
func (p *Publisher) newPoll(b remote.Backend) remote.Poll {
	s := &session{fetcher: p.fetcher, backend: b}
	return func(ctx context.Context) (bool, error) {
		var wanted []schema.GroupVersion
		held := map[schema.GroupVersion]bool{}
		p.records.Each(b, func(r remote.Route, rec *record) {
			known, twice := held[r.GroupVersion] // an APIService and an APIRoute may both have it
			if !twice {
				wanted = append(wanted, r.GroupVersion)
			}
			held[r.GroupVersion] = rec.document != nil && (known || !twice)
		})
		results, err := s.fetchAll(ctx, wanted, held)
		if ctx.Err() != nil {
			return false, ctx.Err() // the process is stopping; the result is not about the backend
		}
		changed, err := p.update(b, results, err)
		if changed && largest(results) > largeDocument {
			b.RenewProbes()
		}
		return changed, err
	}
}

// largeDocument is the minimum size in bytes of a document for which the connection is replaced: about a TLS record.
// Unchanged documents do not count, because a backend without hashes and ETags would otherwise get a new connection for
// each poll.
const largeDocument = 8 << 10

// largest returns the size of the largest document that was fetched.
func largest(results map[schema.GroupVersion]result) int {
	size := 0
	for _, r := range results {
		if r.document != nil {
			size = max(size, r.document.size())
		}
	}
	return size
}

// update processes a backend's responses of one poll, and reports whether a document changed. An invalid or missing
// response leaves the last valid document in place.
func (p *Publisher) update(b remote.Backend, results map[schema.GroupVersion]result, failure error) (changed bool, err error) {
	failures, updated := []error{failure}, map[string]record{}
	p.records.Each(b, func(r remote.Route, rec *record) {
		fetched := results[r.GroupVersion]
		if fetched.err != nil {
			failures = append(failures, fetched.err)
		}
		rec.setProblem(errors.Join(failure, fetched.err), p.log, "OpenAPI document is missing or old", r.APIService)
		if rec.replace(fetched.document) {
			updated[r.APIService] = *rec
		}
	})
	if len(updated) == 0 { // nearly always the case
		return false, errors.Join(failures...)
	}
	total := 0
	p.records.Each(nil, func(_ remote.Route, rec *record) {
		if rec.document != nil {
			total += len(rec.document.Packed)
		}
	})
	for name, rec := range updated {
		p.save(name, rec, total)
	}
	p.records.Announce()
	return true, errors.Join(failures...)
}

// setProblem records why the document is missing or old, or clears the problem if err is nil. It logs a new problem.
func (rec *record) setProblem(err error, log *zap.Logger, message, apiService string) {
	if err == nil {
		rec.problem = ""
		rec.startup.Succeeded()
		return
	}
	problem := publicReason(err)
	if level, overdue := rec.startup.Failed(time.Now()); problem != rec.problem || overdue {
		log.Log(level, message, zap.String("apiservice", apiService), zap.Error(err))
	}
	rec.problem = problem
}

// replace replaces the document and reports whether it differs from the previous one.
func (rec *record) replace(d *Document) bool {
	if d == nil || rec.document != nil && rec.document.Hash == d.Hash {
		return false
	}
	rec.document = d
	return true
}

// save stores the document, unless it or all documents together are too large. In that case the previously stored document
// stays, because an old description is better than none.
func (p *Publisher) save(name string, rec record, total int) {
	value, err := encodeRecord(rec.uid, *rec.document)
	if err == nil && (len(value) > maxStored || total > maxStoredTotal) {
		err = fmt.Errorf("it has %d bytes of the %d that all have together", len(value), total)
	}
	if err != nil {
		p.log.Warn("failed to store an OpenAPI document; a previously stored version is kept", zap.String("apiservice", name), zap.Error(err))
		return
	}
	p.records.Save(name, value)
}

const (
	// maxStored is the maximum size of a stored value: etcd accepts 1.5 MiB in one request. A compressed document of that
	// size describes more than all of Kubernetes.
	maxStored = 1 << 20
	// maxStoredTotal limits the stored documents of all backends together.
	maxStoredTotal = 64 << 20
)

// headerVersion is the newest version of a stored value that this release can read, and the version that it writes.
const headerVersion = 1

// header is the first line of a stored value. The bytes of the document follow.
type header struct {
	// Version is the version of the whole value, 0 in values written before the field existed.
	Version int       `json:"version,omitempty"`
	UID     types.UID `json:"uid,omitempty"`
	Path    string    `json:"path"`
	Hash    string    `json:"hash"`
	// Sum is the SHA-256 of the bytes: a truncated document would otherwise be detected only when a client requests it.
	Sum string `json:"sum"`
}

func sumOf(packed []byte) string {
	sum := sha256.Sum256(packed)
	return hex.EncodeToString(sum[:])
}

func encodeRecord(uid types.UID, d Document) ([]byte, error) {
	line, err := json.Marshal(header{Version: headerVersion, UID: uid, Path: d.Path, Hash: d.Hash, Sum: sumOf(d.Packed)})
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{line, d.Packed}, []byte("\n")), nil
}

func decodeRecord(value []byte) (*record, error) {
	line, packed, found := bytes.Cut(value, []byte("\n"))
	if !found {
		return nil, errors.New("there is no document in it")
	}
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, fmt.Errorf("decode what is written about it: %w", err)
	}
	if h.Version > headerVersion {
		return nil, remote.ErrNewerRelease
	}
	if h.Sum != sumOf(packed) {
		return nil, errors.New("the document is not what was written")
	}
	return &record{uid: h.UID, document: &Document{Path: h.Path, Hash: h.Hash, Packed: packed}}, nil
}
