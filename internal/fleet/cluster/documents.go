package cluster

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/kube-openapi/pkg/handler3"

	"portico.dev/internal/filters"
	"portico.dev/internal/respond"
	"portico.dev/internal/transport"
)

const (
	// followInterval is how often the documents that kubectl reads are fetched without a client.
	followInterval = 30 * time.Second
	// fetchTimeout limits the request for a document. stalePatience limits it if the last one can be served instead.
	fetchTimeout  = 20 * time.Second
	stalePatience = 2 * time.Second
	// maxDocument limits a document. maxOfSingleUser limits the documents of a cluster with a single user, and
	// maxOfCluster the documents of another cluster, in bytes as they are kept: compressed.
	maxDocument     = 16 << 20
	maxOfSingleUser = 64 << 20
	maxOfCluster    = 8 << 20
	// maxVariants limits the documents by their number. Clients choose the variant by their Accept header, up to maxAccept.
	maxVariants = 1000
	maxAccept   = 512
	// maxVersion limits the document of the version, and maxGitVersion the version.
	maxVersion    = 64 << 10
	maxGitVersion = 100
	// maxRefused limits the users that are known to be refused.
	maxRefused = 1000
)

// documents are the documents of discovery and OpenAPI, and the version. A document is fetched for each request with the identity
// of its user, so that it is as current as the API server's, and the API server decides whether the user may read it. While the
// API server does not answer, the last one is served with a Warning: to users that have been authenticated, unless the API
// server has refused them before. All users who may read a document get the same one, so it is kept once.
type documents struct {
	cluster *Cluster
	limit   int                          // of bytes
	refused *lru.Cache[string, struct{}] // keys of identities

	fetches  singleflight.Group
	followed chan struct{}
	once     sync.Once // closes followed

	mu    sync.Mutex // guards the fields below
	known *lru.Cache[variant, *document]
	bytes int
}

// variant is a document in a form that a client accepts.
type variant struct{ path, query, accept string }

// document is a response with status 200.
type document struct {
	respond.Document // only compressed
	warnings         []string
	at               time.Time
	source           string // of a changed document: the ETag and the type of the unchanged one
}

// serve serves the document with its warnings.
func (d *document) serve(w http.ResponseWriter, r *http.Request) {
	for _, text := range d.warnings {
		w.Header().Add("Warning", text)
	}
	d.Serve(w, r)
}

// decode decodes the document, up to a size.
func (d *document) decode(into any, limit int64) error {
	body, err := respond.Unpack(d.Gzip)
	if err != nil {
		return err
	}
	return json.NewDecoder(io.LimitReader(body, limit)).Decode(into)
}

func newDocuments(c *Cluster) *documents {
	d := &documents{cluster: c, limit: maxOfCluster, followed: make(chan struct{})}
	if c.config.SingleUser {
		d.limit = maxOfSingleUser
	}
	var err, refusedErr error
	d.known, err = lru.NewWithEvict(maxVariants, func(_ variant, old *document) { d.bytes -= len(old.Gzip) })
	d.refused, refusedErr = lru.New[string, struct{}](maxRefused)
	if err = errors.Join(err, refusedErr); err != nil {
		panic(err) // the sizes are positive
	}
	return d
}

// documentOf returns the variant of a request for a document. It returns false for other requests, and if the user or
// the parameters may change the response.
func documentOf(r *http.Request) (variant, bool) {
	path := r.URL.Path
	if r.Method != http.MethodGet && r.Method != http.MethodHead || !isDocument(path) || impersonates(r.Header) {
		return variant{}, false
	}
	accept := strings.Join(r.Header.Values("Accept"), ",")
	query := r.URL.Query()
	query.Del("timeout") // client-go sends its own with each request
	hash := query.Get("hash")
	query.Del("hash")
	if len(query) > 0 || len(accept) > maxAccept {
		return variant{}, false
	}
	return variant{path: path, query: queryOf(hash), accept: cmp.Or(accept, "application/json")}, true
}

// queryOf returns the query of a document with a hash, or "" if hash is empty.
func queryOf(hash string) string {
	if hash == "" {
		return ""
	}
	return url.Values{"hash": {hash}}.Encode()
}

// isDocument reports whether a document is at a path: /api, /apis, a group or group-version below them, /openapi/..., or /version.
func isDocument(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch parts[0] {
	case "api":
		return len(parts) <= 2
	case "apis":
		return len(parts) <= 3
	case "openapi":
		return len(parts) > 1
	}
	return len(parts) == 1 && parts[0] == "version"
}

// serve serves a document. It returns false if the request must be sent to the API server unchanged, because no response can be
// served from memory.
func (d *documents) serve(w http.ResponseWriter, r *filters.Request, v variant) bool {
	found, err := d.load(r, v)
	if err != nil {
		return false // the API server's response, or that of identify, has the cause
	}
	found.serve(w, r.Request)
	return true
}

// load returns the document for the user of a request: the current one, or the last one with a Warning.
func (d *documents) load(r *filters.Request, v variant) (*document, error) {
	who, err := d.cluster.identityOf(r)
	if err != nil {
		return nil, err
	}
	last := d.get(v)
	if last != nil && v.query != "" && d.cluster.config.SingleUser { // a document with a hash never changes
		return last, nil
	}
	patience := fetchTimeout
	if last = cmp.Or(last, d.similar(v)); last != nil && d.mayServeLast(who) {
		patience = stalePatience
	} else {
		last = nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	current, err := d.refresh(ctx, v, who)
	switch {
	case err == nil:
		return current, nil
	case last == nil || !isOutage(err):
		return nil, err
	}
	d.cluster.config.Logger.Debug("serving a document from memory", zap.String("path", v.path), zap.Error(err))
	stale := *last
	warning := fmt.Sprintf("299 - %q", d.cluster.subject+" does not answer; this document is of "+last.at.UTC().Format(time.RFC3339))
	stale.warnings = append([]string{warning}, last.warnings...)
	return &stale, nil
}

// mayServeLast reports whether a user may read the last documents without a decision of the API server.
func (d *documents) mayServeLast(who identity) bool {
	return d.cluster.config.SingleUser || who.known && !d.refused.Contains(who.key)
}

// statusError is a response with another status than 200.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("the API server answered %d", int(e)) }

// isOutage reports whether an error is a failure of the API server, and not its answer.
func isOutage(err error) bool {
	var status statusError
	return !errors.As(err, &status) || status >= 500 || status == http.StatusTooManyRequests
}

// refresh fetches a document. Concurrent requests with the same identity share the fetch, which counts as one request in flight.
func (d *documents) refresh(ctx context.Context, v variant, who identity) (*document, error) {
	fetched := d.fetches.DoChan(v.path+"\n"+v.query+"\n"+v.accept+"\n"+who.key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
		defer cancel()
		if who.key != "" {
			var slot transport.Slot
			if err := d.cluster.connections().own.Admit(&slot, who.user); err != nil {
				return nil, err
			}
			defer slot.Release()
		}
		made, err := d.fetchOne(ctx, v, who)
		d.recordDecision(who, err)
		return made, err
	})
	select {
	case result := <-fetched:
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.(*document), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// recordDecision records whether the API server refuses the user.
func (d *documents) recordDecision(who identity, err error) {
	var status statusError
	switch {
	case who.key == "":
	case err == nil:
		d.refused.Remove(who.key)
	case errors.As(err, &status) && (status == http.StatusUnauthorized || status == http.StatusForbidden):
		d.refused.Add(who.key, struct{}{})
	}
}

func (d *documents) fetchOne(ctx context.Context, v variant, who identity) (*document, error) {
	header := http.Header{"Accept": {v.accept}, "Accept-Encoding": {"gzip"}}
	last := d.get(v)
	if last != nil {
		header.Set("If-None-Match", last.ETag)
	}
	resp, err := d.cluster.fetch(ctx, v.path, v.query, header, who)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	switch {
	case resp.StatusCode == http.StatusNotModified && last != nil:
		return d.confirm(v, last, resp.Header["Warning"]), nil
	case resp.StatusCode != http.StatusOK:
		if resp.StatusCode == http.StatusNotFound {
			d.forget(v)
		}
		return nil, statusError(resp.StatusCode)
	}
	body, free, err := d.cluster.config.Proxy.ReadDocument(ctx, "cluster/"+d.cluster.config.Name, io.LimitReader(resp.Body, maxDocument+1))
	defer free()
	if err != nil {
		return nil, err
	}
	made, err := newDocument(resp.Header, body)
	if err != nil {
		return nil, err
	}
	d.put(v, made)
	return made, nil
}

// confirm returns a document that is still current, with its current warnings.
func (d *documents) confirm(v variant, last *document, warnings []string) *document {
	now := *last
	now.at, now.warnings = time.Now(), warnings
	d.put(v, &now)
	return &now
}

func newDocument(h http.Header, body []byte) (_ *document, err error) {
	made := &document{Document: respond.Document{
		ETag: h.Get("Etag"), ContentType: h.Get("Content-Type"), CacheControl: h.Get("Cache-Control"), Vary: "Accept",
	}, at: time.Now(), warnings: h["Warning"]}
	if len(body) > maxDocument {
		return nil, fmt.Errorf("the document is larger than %d bytes", maxDocument)
	}
	if h.Get("Content-Encoding") != "gzip" {
		if body, err = respond.Pack(body, gzip.DefaultCompression); err != nil {
			return nil, err
		}
	}
	if made.Gzip = body; made.ETag == "" {
		made.ETag = strconv.Quote(respond.Hash(body))
	}
	return made, nil
}

func (d *documents) get(v variant) *document {
	d.mu.Lock()
	defer d.mu.Unlock()
	found, _ := d.known.Get(v)
	return found
}

// similar returns the newest document of the same path in another form that the client accepts, or nil.
func (d *documents) similar(v variant) *document {
	wanted := respond.ParseAccept(v.accept)
	d.mu.Lock()
	defer d.mu.Unlock()
	var newest *document
	for _, other := range d.known.Keys() {
		if other.path != v.path || other.query != v.query {
			continue
		}
		if found, _ := d.known.Peek(other); found.isAccepted(wanted) && (newest == nil || found.at.After(newest.at)) {
			newest = found
		}
	}
	return newest
}

// isAccepted reports whether a document has a media type that a client accepts.
func (d *document) isAccepted(accept []respond.Clause) bool {
	mediaType, params, err := mime.ParseMediaType(d.ContentType)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(accept, func(c respond.Clause) bool {
		return (c.MediaType == mediaType || c.MediaType == "*/*") && c.Params["as"] == params["as"] && c.Params["v"] == params["v"]
	})
}

// put keeps a document, and forgets the least recently used ones if all of them together are too large.
func (d *documents) put(v variant, made *document) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known.Remove(v)
	d.bytes += len(made.Gzip)
	d.known.Add(v, made)
	for d.bytes > d.limit {
		d.known.RemoveOldest()
	}
}

func (d *documents) forget(v variant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known.Remove(v)
}

// Forms in which kubectl and client-go request documents.
const (
	plain      = "application/json"
	aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)

var versionDocument = variant{path: "/version", accept: plain}

// version returns the version of the API server, or "" if it is not known.
func (d *documents) version() string {
	found := d.get(versionDocument)
	if found == nil {
		return ""
	}
	var info version.Info
	if err := found.decode(&info, maxVersion); err != nil || len(info.GitVersion) > maxGitVersion {
		return ""
	}
	return info.GitVersion
}

// follow fetches the documents that kubectl and client-go read, so that they can be served during an outage. It returns true if
// the documents of discovery have changed.
func (d *documents) follow(ctx context.Context) (changed bool) {
	defer d.once.Do(func() { close(d.followed) })
	followed := []variant{versionDocument, {path: "/api", accept: aggregated}, {path: "/apis", accept: aggregated}}
	if d.cluster.config.SingleUser {
		followed = append(followed, variant{path: "/api", accept: plain}, variant{path: "/apis", accept: plain})
	}
	for _, v := range followed {
		last := d.get(v)
		current, err := d.refresh(ctx, v, identity{})
		if err != nil && isOutage(err) {
			d.cluster.config.Logger.Debug("the API server does not answer", zap.String("path", v.path), zap.Error(err))
			return changed // it would not answer the others either
		}
		changed = changed || err == nil && v != versionDocument && (last == nil || last.ETag != current.ETag)
	}
	if !d.cluster.config.SingleUser {
		return changed
	}
	if err := d.followOpenAPI(ctx); err != nil {
		d.cluster.config.Logger.Debug("the OpenAPI documents are not current", zap.Error(err))
	}
	return changed
}

// openAPIRoot is where the index of the OpenAPI documents is.
const openAPIRoot = "/openapi/v3"

// followOpenAPI fetches the index of the OpenAPI documents, and the documents that are new in it.
func (d *documents) followOpenAPI(ctx context.Context) error {
	index, err := d.refresh(ctx, variant{path: openAPIRoot, accept: plain}, identity{})
	if err != nil {
		return err
	}
	var listed handler3.OpenAPIV3Discovery
	if err := index.decode(&listed, maxDocument); err != nil {
		return fmt.Errorf("read the index of the OpenAPI documents: %w", err)
	}
	for path, entry := range listed.Paths {
		v := variant{path: openAPIRoot + "/" + path, accept: plain}
		if at, err := url.Parse(entry.ServerRelativeURL); err == nil {
			v.query = queryOf(at.Query().Get("hash"))
		}
		if !isDocument(v.path) || v.query != "" && d.get(v) != nil {
			continue
		}
		if _, err := d.refresh(ctx, v, identity{}); err != nil && isOutage(err) {
			return err
		}
	}
	return ctx.Err()
}
