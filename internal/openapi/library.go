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
	"portico.dev/internal/metrics"
	"portico.dev/internal/run"
)

const (
	// bodiesAtOnce bounds the memory that answers of backends take while they are being read: that many times maxDocument.
	bodiesAtOnce = 4
	// localPoll is how often Local is asked again when nothing announces a change; upstream's period.
	localPoll = time.Second
	// minRest between two indexes.
	minRest = 20 * time.Millisecond
	// protobufDocuments is how many documents are kept as protobuf, which few clients ask for.
	protobufDocuments = 32
)

// Config is what a Library is made of. All but LocalV2, LocalChanged, Keep and Metrics is required.
type Config struct {
	// Local returns the documents of what this server serves itself. It is called often and must not block.
	Local func() []Document
	// LocalV2 returns the same in version 2: documents without a path, of one or many group-versions each. It is called
	// for each reader and must not build anything. Nil: there is none.
	LocalV2 func() []Source
	// LocalChanged returns a channel that is closed at the next change of Local. Nil: Local is asked every second.
	LocalChanged func() <-chan struct{}
	// Routes returns the table of the moment, Changed a channel that is closed when the next one is there.
	Routes  func() remote.Table
	Changed func() <-chan struct{}
	// Keep survives restarts. Nil: what backends said is known again when they have said it again.
	Keep    remote.LastKnown
	Logger  *zap.Logger
	Metrics *metrics.OpenAPI
}

// Library keeps the documents and serves them.
type Library struct {
	cfg     Config
	log     *zap.Logger
	metrics *metrics.OpenAPI
	fetcher *remote.Fetcher
	rounds  *remote.Rounds

	swaggers *swaggers
	keeper   *keeper

	current  atomic.Pointer[index]
	ready    chan struct{}
	news     chan struct{}
	protobuf *lru.Cache[string, []byte] // by hash, packed
	making   singleflight.Group

	// mu protects what workers and the loop share. It is never held during I/O or encoding.
	mu    sync.Mutex
	table remote.Table
	held  map[string]*holding // by APIService
	kept  map[string]*holding // what was loaded at start and has not been claimed by a route yet
}

// holding is what is known of one remote group-version.
type holding struct {
	uid      types.UID
	document *Document // the last good one; nil: none yet
	trouble  string
}

// New returns a Library that has not asked anything yet.
func New(cfg Config) (*Library, error) {
	if cfg.Local == nil || cfg.Routes == nil || cfg.Changed == nil || cfg.Logger == nil {
		return nil, errors.New("openapi: Local, Routes, Changed and Logger are required")
	}
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.NewOpenAPI(prometheus.NewRegistry())
	}
	if cfg.LocalV2 == nil {
		cfg.LocalV2 = func() []Source { return nil }
	}
	protobuf, err := lru.New[string, []byte](protobufDocuments)
	if err != nil {
		return nil, err
	}
	l := &Library{
		cfg:      cfg,
		log:      cfg.Logger,
		metrics:  cfg.Metrics,
		fetcher:  remote.NewFetcher(bodiesAtOnce),
		swaggers: newSwaggers(cfg.LocalV2, cfg.Logger, cfg.Metrics),
		keeper:   newKeeper(cfg.Keep, cfg.Logger),
		ready:    make(chan struct{}),
		news:     make(chan struct{}, 1),
		protobuf: protobuf,
		held:     map[string]*holding{},
	}
	l.rounds = remote.NewRounds(l.visitor)
	return l, nil
}

// Reask tells that a backend may describe itself otherwise than before: it is asked soon, but not more often than once a
// minute. It does not block.
func (l *Library) Reask(b remote.Backend) { l.rounds.Reask(b) }

// Ready is closed when the first index is there, made of the local documents and of what was kept.
func (l *Library) Ready() <-chan struct{} { return l.ready }

// Trouble says in a few words why the document of an APIService, of either version, is missing or old; empty when it is
// neither.
func (l *Library) Trouble(apiService string) string {
	l.mu.Lock()
	h := l.held[apiService]
	why := ""
	if h != nil {
		why = h.trouble
	}
	l.mu.Unlock()
	return cmp.Or(why, l.swaggers.trouble(apiService))
}

// Run keeps the index up to date until ctx ends.
func (l *Library) Run(ctx context.Context) error {
	kept, err := l.keeper.load(ctx)
	if err != nil {
		return nil // ctx ended: nothing else ends the loading
	}
	l.kept = kept
	ctx, cancel := context.WithCancel(ctx)
	var own sync.WaitGroup
	own.Go(func() { l.rounds.Run(ctx) })
	own.Go(func() { l.swaggers.run(ctx) })
	own.Go(func() { l.keeper.run(ctx) })
	own.Go(func() { l.keeper.follow(ctx, l.overhear) })
	defer own.Wait()
	defer cancel()
	for ctx.Err() == nil {
		// Taken before what they announce is read: a change in between is seen again rather than missed.
		changed, localChanged := l.cfg.Changed(), l.localChanged()
		l.follow(l.cfg.Routes())
		for again := true; again; {
			l.publish()
			again = l.await(ctx, changed, localChanged)
		}
	}
	return nil
}

func (l *Library) localChanged() <-chan struct{} {
	if l.cfg.LocalChanged == nil {
		return nil
	}
	return l.cfg.LocalChanged()
}

// await returns when an index made now could differ from the last, but not at once, and reports whether the table and the
// announcements are still those of before.
func (l *Library) await(ctx context.Context, changed, localChanged <-chan struct{}) bool {
	run.Pause(ctx, minRest)
	var poll <-chan time.Time
	if localChanged == nil {
		timer := time.NewTimer(localPoll)
		defer timer.Stop()
		poll = timer.C
	}
	select {
	case <-ctx.Done():
	case <-changed:
	case <-localChanged:
	case <-l.news:
		return true
	case <-poll:
		return true
	}
	return false
}

// follow takes a new table over. A backend is asked when it is new, or new to a group-version, or has become available:
// then it may be another program than before.
func (l *Library) follow(table remote.Table) {
	l.swaggers.follow(table)
	l.mu.Lock()
	before := map[string]remote.Route{}
	for _, r := range l.table.Routes {
		before[r.APIService] = r
	}
	l.table = table
	l.adopt(table)
	l.mu.Unlock()

	for _, r := range table.Routes {
		if !r.Local && r.Backend != nil && news(before, r) {
			l.rounds.Wake(r.Backend)
		}
	}
	l.rounds.Keep(table.Backends())
}

// adopt gives every remote route its holding and drops those that no route needs. A recreated registration may mean
// another backend altogether, so what the one before said is not taken for its word. While the table is not synced, a
// registration that is not in it may still come. The caller holds mu.
func (l *Library) adopt(table remote.Table) {
	wanted := map[string]bool{}
	for _, r := range table.Routes {
		if r.Local {
			continue
		}
		wanted[r.APIService] = true
		if h := l.held[r.APIService]; h == nil || h.uid != r.UID {
			l.held[r.APIService] = &holding{uid: r.UID}
			if kept := l.kept[r.APIService]; kept != nil && kept.uid == r.UID && kept.document.Path == indexPath(r.GroupVersion) {
				l.held[r.APIService] = kept
			}
			delete(l.kept, r.APIService)
		}
	}
	for name := range l.held {
		if !wanted[name] {
			delete(l.held, name)
			l.keeper.forget(name)
		}
	}
	if !table.Synced {
		return
	}
	for name := range l.kept {
		l.keeper.forget(name)
	}
	l.kept = nil
}

// publish puts a new index in the place of the one before, if it says anything else.
func (l *Library) publish() {
	documents, bytes := l.collect()
	before := l.current.Load()
	if before != nil && same(before, documents) {
		return
	}
	next, err := newIndex(documents)
	if err != nil {
		l.log.Error("cannot make the OpenAPI index; the one before stays", zap.Error(err))
		return
	}
	l.current.Store(next)
	if before == nil {
		close(l.ready)
	}
	l.metrics.Documents.Set(float64(len(documents)))
	l.metrics.Bytes.Set(float64(bytes))
}

// collect returns the local documents, but those whose group-version has been taken over by a backend, and the last good
// ones of backends, and how many bytes the latter have.
func (l *Library) collect() (documents []Document, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := map[string]bool{}
	for _, r := range l.table.Routes {
		if r.Local {
			continue
		}
		taken[indexPath(r.GroupVersion)] = true
		if d := l.held[r.APIService].document; d != nil {
			documents = append(documents, *d)
			bytes += len(d.Packed)
		}
	}
	for _, d := range l.cfg.Local() {
		if !taken[d.Path] {
			documents = append(documents, d)
		}
	}
	return documents, bytes
}

func same(i *index, documents []Document) bool {
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

// visitor returns the rounds with one backend.
func (l *Library) visitor(b remote.Backend) remote.Visit {
	v := &visit{fetcher: l.fetcher, backend: b}
	return func(ctx context.Context) (bool, error) {
		wanted, held := l.wantedFrom(b)
		results, err := v.round(ctx, wanted, held)
		if ctx.Err() != nil {
			return false, ctx.Err() // we are stopping: that says nothing about the backend
		}
		news, err := l.learn(b, results, err)
		if err != nil {
			l.metrics.Rounds.WithLabelValues("failed").Inc()
		} else {
			l.metrics.Rounds.WithLabelValues("ok").Inc()
		}
		return news, err
	}
}

func (l *Library) wantedFrom(b remote.Backend) (wanted []schema.GroupVersion, held map[schema.GroupVersion]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held = map[schema.GroupVersion]bool{}
	for _, r := range l.table.By(b) {
		wanted = append(wanted, r.GroupVersion)
		if l.held[r.APIService].document != nil {
			held[r.GroupVersion] = true
		}
	}
	return wanted, held
}

// learn takes in what a backend said in one round, and reports whether it was anything new. What it said badly, or not at
// all, leaves the last good document where it is.
func (l *Library) learn(b remote.Backend, results map[schema.GroupVersion]heard, failure error) (news bool, err error) {
	learned, all, err := l.hear(b, results, failure)
	for name, h := range learned {
		l.keeper.save(name, h.uid, *h.document, all)
	}
	if len(learned) > 0 {
		l.announce()
	}
	return len(learned) > 0, err
}

// overhear takes in what another replica was told.
func (l *Library) overhear(name string, told *holding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.held[name]
	if h == nil || h.uid != told.uid || h.document != nil && h.document.Hash == told.document.Hash {
		return
	}
	h.document = told.document
	l.announce()
}

func (l *Library) announce() {
	select {
	case l.news <- struct{}{}:
	default: // the loop has not yet got to the one before; it will see this as well
	}
}

// hear returns what is new, by APIService, and how many bytes all documents of backends have.
func (l *Library) hear(b remote.Backend, results map[schema.GroupVersion]heard, failure error) (learned map[string]holding, all int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	learned = map[string]holding{}
	failures := []error{failure}
	for _, r := range l.table.By(b) {
		h, result := l.held[r.APIService], results[r.GroupVersion]
		err := errors.Join(failure, result.err)
		if result.err != nil {
			failures = append(failures, result.err)
		}
		trouble := ""
		if err != nil {
			trouble = publicReason(err)
		}
		if trouble != h.trouble && err != nil {
			l.log.Warn("OpenAPI document is missing or old", zap.String("apiservice", r.APIService), zap.Error(err))
		}
		h.trouble = trouble
		if result.document != nil && (h.document == nil || h.document.Hash != result.document.Hash) {
			h.document = result.document
			learned[r.APIService] = *h
		}
	}
	for _, h := range l.held {
		if h.document != nil {
			all += len(h.document.Packed)
		}
	}
	return learned, all, errors.Join(failures...)
}

const (
	// maxKept is the largest value that is kept: etcd takes 1.5 MiB in one request. Compressed, a document of that size
	// describes more than all of Kubernetes.
	maxKept = 1 << 20
	// maxKeptAll bounds what is kept of all backends together.
	maxKeptAll = 64 << 20
)

// keeper writes the last good document of each backend down, so that a dead backend's kinds are described after the next
// start as well. A nil keeper keeps nothing.
type keeper struct {
	*remote.Keeper
	log *zap.Logger
}

func newKeeper(store remote.LastKnown, log *zap.Logger) *keeper {
	if store == nil {
		return nil
	}
	return &keeper{Keeper: remote.NewKeeper(store, log), log: log}
}

// header is the first line of a value. What follows it are the bytes of the document.
type header struct {
	UID  types.UID `json:"uid,omitempty"`
	Path string    `json:"path"`
	Hash string    `json:"hash"`
	// Sum is SHA-256 of the bytes: half a document would be found out only when a client asks for it.
	Sum string `json:"sum"`
}

func sumOf(packed []byte) string {
	sum := sha256.Sum256(packed)
	return hex.EncodeToString(sum[:])
}

func encodeHolding(uid types.UID, d Document) ([]byte, error) {
	line, err := json.Marshal(header{UID: uid, Path: d.Path, Hash: d.Hash, Sum: sumOf(d.Packed)})
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{line, d.Packed}, []byte("\n")), nil
}

func decodeHolding(value []byte) (*holding, error) {
	line, packed, found := bytes.Cut(value, []byte("\n"))
	if !found {
		return nil, errors.New("there is no document in it")
	}
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, fmt.Errorf("decode what is written about it: %w", err)
	}
	if h.Sum != sumOf(packed) {
		return nil, errors.New("the document is not what was written")
	}
	return &holding{uid: h.UID, document: &Document{Path: h.Path, Hash: h.Hash, Packed: packed}}, nil
}

// load returns what was kept, by APIService. What cannot be read is left out: the backend will say it again.
func (k *keeper) load(ctx context.Context) (map[string]*holding, error) {
	if k == nil {
		return nil, nil
	}
	values, err := k.Load(ctx)
	if err != nil {
		return nil, err
	}
	kept := map[string]*holding{}
	for name, value := range values {
		h, err := decodeHolding(value)
		if err != nil {
			k.log.Warn("ignoring an unreadable OpenAPI document that was kept", zap.String("apiservice", name), zap.Error(err))
			continue
		}
		kept[name] = h
	}
	return kept, nil
}

func (k *keeper) run(ctx context.Context) {
	if k != nil {
		k.Run(ctx)
	}
}

// follow hears what any replica saves until ctx ends.
func (k *keeper) follow(ctx context.Context, saved func(name string, h *holding)) {
	if k == nil {
		return
	}
	k.Follow(ctx, func(name string, value []byte) {
		h, err := decodeHolding(value)
		if err != nil {
			k.log.Warn("ignoring an unreadable OpenAPI document of another replica", zap.String("apiservice", name), zap.Error(err))
			return
		}
		saved(name, h)
	})
}

// save keeps the document, unless it is too large or there is too much already. What was kept before then stays: an old
// description is better than none.
func (k *keeper) save(name string, uid types.UID, d Document, all int) {
	if k == nil {
		return
	}
	value, err := encodeHolding(uid, d)
	if err == nil && (len(value) > maxKept || all > maxKeptAll) {
		err = fmt.Errorf("it has %d bytes of the %d that all have together", len(value), all)
	}
	if err != nil {
		k.log.Warn("an OpenAPI document will not outlive this process", zap.String("apiservice", name), zap.Error(err))
		return
	}
	k.Save(name, value)
}

func (k *keeper) forget(name string) {
	if k != nil {
		k.Forget(name)
	}
}
