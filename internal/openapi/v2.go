package openapi

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/metrics"
)

const (
	// idle is how long the merged document is kept without a reader. It is large, few clients still read it, and making
	// it again takes less than a second.
	idle = 5 * time.Minute
	// maxUnion bounds the merged document, in bytes before compression. Members that would make it larger are left out,
	// the last ones first.
	maxUnion = 64 << 20
)

// swaggers makes the one document of version 2: of the local groups and of every backend that has one. Unlike those of
// version 3 it exists only while somebody reads it, and backends are asked for their part only then.
type swaggers struct {
	local   func() []Source
	fetcher *remote.Fetcher
	log     *zap.Logger
	metrics *metrics.OpenAPI

	making  singleflight.Group
	readers chan struct{}
	more    chan struct{}

	// mu is never held during I/O, encoding or merging.
	mu       sync.Mutex
	table    remote.Table
	held     map[string]*holding // by APIService
	revision int                 // grows whenever table or held say something else
	asked    map[remote.Backend]*inquiry
	orders   []*inquiry
	edition  *edition
}

// edition is the document as it was made at one time.
type edition struct {
	Document
	revision int
	local    []string // the hashes of what is local

	// mu protects what follows. It is not held while protobuf is made.
	mu       sync.Mutex
	read     time.Time
	protobuf []byte // packed; nil until somebody asks
}

func newSwaggers(local func() []Source, log *zap.Logger, m *metrics.OpenAPI) *swaggers {
	return &swaggers{
		local: local, log: log, metrics: m,
		fetcher: remote.NewFetcher(bodiesAtOnce),
		readers: make(chan struct{}, readersAtOnce),
		more:    make(chan struct{}, 1),
		held:    map[string]*holding{},
		asked:   map[remote.Backend]*inquiry{},
	}
}

// follow takes a new table over. A backend that has become available, or serves another registration, is asked again by
// the next reader, however lately it was asked.
func (s *swaggers) follow(table remote.Table) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := map[string]remote.Route{}
	for _, r := range s.table.Routes {
		before[r.APIService] = r
	}
	held, asked := map[string]*holding{}, map[remote.Backend]*inquiry{}
	for _, b := range table.Backends() {
		if q := s.asked[b]; q != nil {
			asked[b] = q
		}
	}
	for _, r := range table.Routes {
		if r.Local {
			continue
		}
		if held[r.APIService] = s.held[r.APIService]; held[r.APIService] == nil || held[r.APIService].uid != r.UID {
			held[r.APIService] = &holding{uid: r.UID}
		}
		if news(before, r) && r.Backend != nil {
			delete(asked, r.Backend)
		}
	}
	if !slices.EqualFunc(s.table.Routes, table.Routes, sameMember) {
		s.revision++
	}
	s.table, s.held, s.asked = table, held, asked
}

// sameMember reports whether two routes have the same part in the document. A backend that dies or comes back changes
// nothing.
func sameMember(a, b remote.Route) bool {
	return a.APIService == b.APIService && a.UID == b.UID && a.Local == b.Local
}

// news reports whether the backend behind a route may have something else to say than before.
func news(before map[string]remote.Route, r remote.Route) bool {
	old, ok := before[r.APIService]
	return !ok || old.Backend != r.Backend || old.UID != r.UID || r.Available && !old.Available
}

func (s *swaggers) trouble(apiService string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[apiService]; h != nil {
		return h.trouble
	}
	return ""
}

// current returns the document of the moment. It waits for backends that are being asked, but not long, and not for those
// that have been found not to answer.
func (s *swaggers) current(ctx context.Context) (*edition, error) {
	for _, q := range s.inquire() {
		q.await(ctx)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	local := hashes(s.local())
	s.mu.Lock()
	e, revision := s.edition, s.revision
	s.mu.Unlock()
	// One merger at a time: whoever comes while another is under way takes what that makes, unless it began too early.
	for range 2 {
		if e.covers(revision, local) {
			break
		}
		made, err, _ := s.making.Do("merge", func() (any, error) { return s.merge() })
		if err != nil {
			return nil, err
		}
		e = made.(*edition)
	}
	e.touch()
	return e, nil
}

// covers reports whether the edition says everything that was known at a revision.
func (e *edition) covers(revision int, local []string) bool {
	return e != nil && e.revision >= revision && slices.Equal(e.local, local)
}

func hashes(sources []Source) []string {
	out := make([]string, 0, len(sources))
	for _, s := range sources {
		out = append(out, s.Hash)
	}
	return out
}

func (e *edition) touch() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.read = time.Now()
}

func (e *edition) idleSince(t time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.read.Before(t)
}

// merge makes an edition and puts it in the place of the one before.
func (s *swaggers) merge() (*edition, error) {
	began, local := time.Now(), s.local()
	s.mu.Lock()
	revision, taken := s.revision, map[string]bool{}
	var remotes []Document
	for _, r := range s.table.Routes {
		if r.Local {
			continue
		}
		taken[indexPath(r.GroupVersion)] = true
		if d := s.held[r.APIService].document; d != nil {
			remotes = append(remotes, *d)
		}
	}
	s.mu.Unlock()

	u, size := newUnion(), 0
	for _, from := range local {
		d, err := from.Document()
		if err == nil {
			size += d.size()
			err = u.addLocal(d, taken)
		}
		if err != nil {
			s.log.Error("leaving local groups out of the OpenAPI v2 document", zap.Error(err))
		}
	}
	for _, d := range remotes {
		if size += d.size(); size > maxUnion {
			s.log.Warn("the OpenAPI v2 document would be too large; leaving members out", zap.String("from", d.Path))
			break
		}
		if err := u.addPacked(d); err != nil {
			s.log.Error("leaving a member of the OpenAPI v2 document out", zap.String("member", d.Path), zap.Error(err))
		}
	}
	d, err := u.pack()
	if err != nil {
		return nil, err
	}
	e := &edition{Document: d, revision: revision, local: hashes(local), read: began}
	s.mu.Lock()
	s.edition = e
	s.mu.Unlock()
	s.metrics.SwaggerSeconds.Observe(time.Since(began).Seconds())
	s.metrics.SwaggerBytes.Set(float64(len(d.Packed)))
	return e, nil
}

// addLocal leaves out the paths of group-versions that a backend has taken over.
func (u *union) addLocal(d Document, taken map[string]bool) error {
	s, err := d.open()
	if err != nil {
		return err
	}
	s.retain(func(path string) bool { return !taken[ownerOf(path)] })
	u.add(s)
	return nil
}

// ownerOf is the group-version that a path belongs to, as it is in the index.
func ownerOf(path string) string {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if parts[0] == "api" {
		return strings.Join(parts[:min(2, len(parts))], "/")
	}
	return strings.Join(parts[:min(3, len(parts))], "/")
}

func (u *union) addPacked(d Document) error {
	s, err := d.open()
	if err != nil {
		return err
	}
	u.add(s)
	return nil
}

func (s *swaggers) dropIfIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.edition != nil && s.edition.idleSince(time.Now().Add(-idle)) {
		s.edition = nil
		s.metrics.SwaggerBytes.Set(0)
	}
}
