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

	"portico.dev/internal/filters"
	"portico.dev/internal/respond"
)

const (
	// followInterval is how often the documents that kubectl reads are fetched without a client.
	followInterval = 30 * time.Second
	// fetchTimeout limits the request for a document. stalePatience limits it if the last one can be served instead.
	fetchTimeout  = 20 * time.Second
	stalePatience = 2 * time.Second
	// maxDocument limits a document, and maxDocuments all of them, in bytes as they are kept: compressed.
	maxDocument  = 16 << 20
	maxDocuments = 64 << 20
	// maxVariants limits the documents by their number. Clients choose the variant by their Accept header, up to maxAccept.
	maxVariants = 1000
	maxAccept   = 512
)

// documents are the documents of discovery and OpenAPI, and the version. A document is fetched for each request, so that it is
// as current as the API server's; while the API server does not answer, the last one is served with a Warning.
type documents struct {
	fetch  fetcher
	server string // in warnings
	log    *zap.Logger

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
}

// serve serves the document with its warnings.
func (d *document) serve(w http.ResponseWriter, r *http.Request) {
	for _, text := range d.warnings {
		w.Header().Add("Warning", text)
	}
	d.Serve(w, r)
}

func newDocuments(fetch fetcher, server string, log *zap.Logger) *documents {
	d := &documents{fetch: fetch, server: server, log: log, followed: make(chan struct{})}
	known, err := lru.NewWithEvict(maxVariants, func(_ variant, old *document) { d.bytes -= len(old.Gzip) })
	if err != nil {
		panic(err) // the size is positive
	}
	d.known = known
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
	v := variant{path: path, accept: cmp.Or(accept, "application/json")}
	if hash != "" {
		v.query = url.Values{"hash": {hash}}.Encode()
	}
	return v, true
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
	last := d.get(v)
	if last != nil && v.query != "" { // a document with a hash never changes
		last.serve(w, r.Request)
		return true
	}
	patience := fetchTimeout
	if last = cmp.Or(last, d.similar(v)); last != nil {
		patience = stalePatience
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	current, err := d.refresh(ctx, v)
	switch {
	case err == nil:
		current.serve(w, r.Request)
		return true
	case last == nil || !isOutage(err):
		return false
	}
	d.log.Debug("serving a document from memory", zap.String("path", v.path), zap.Error(err))
	w.Header().Add("Warning", fmt.Sprintf("299 - %q", d.server+" does not answer; this document is of "+last.at.UTC().Format(time.RFC3339)))
	last.serve(w, r.Request)
	return true
}

// statusError is a response with another status than 200.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("the API server answered %d", int(e)) }

// isOutage reports whether an error is a failure of the API server, and not its answer.
func isOutage(err error) bool {
	var status statusError
	return !errors.As(err, &status) || status >= 500 || status == http.StatusTooManyRequests
}

// refresh fetches a document. Concurrent requests share the fetch.
func (d *documents) refresh(ctx context.Context, v variant) (*document, error) {
	fetched := d.fetches.DoChan(v.path+"\n"+v.query+"\n"+v.accept, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
		defer cancel()
		return d.fetchOne(ctx, v)
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

func (d *documents) fetchOne(ctx context.Context, v variant) (*document, error) {
	header := http.Header{"Accept": {v.accept}, "Accept-Encoding": {"gzip"}}
	last := d.get(v)
	if last != nil {
		header.Set("If-None-Match", last.ETag)
	}
	resp, err := d.fetch(ctx, v.path, v.query, header)
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
	made, err := read(resp)
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

func read(resp *http.Response) (*document, error) {
	h := resp.Header
	made := &document{Document: respond.Document{
		ETag: h.Get("Etag"), ContentType: h.Get("Content-Type"), CacheControl: h.Get("Cache-Control"), Vary: "Accept",
	}, at: time.Now(), warnings: h["Warning"]}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	switch {
	case err != nil:
		return nil, err
	case len(body) > maxDocument:
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
	for d.bytes > maxDocuments {
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

// follow fetches the documents that kubectl and client-go read, so that they can be served during an outage.
func (d *documents) follow(ctx context.Context) {
	defer d.once.Do(func() { close(d.followed) })
	for _, v := range []variant{
		{path: "/version", accept: plain}, {path: "/api", accept: plain}, {path: "/apis", accept: plain}, {path: "/api", accept: aggregated},
		{path: "/apis", accept: aggregated},
	} {
		if _, err := d.refresh(ctx, v); err != nil && isOutage(err) {
			d.log.Debug("the API server does not answer", zap.String("path", v.path), zap.Error(err))
			return // it would not answer the others either
		}
	}
	if err := d.followOpenAPI(ctx); err != nil {
		d.log.Debug("the OpenAPI documents are not current", zap.Error(err))
	}
}

// openAPIRoot is where the index of the OpenAPI documents is.
const openAPIRoot = "/openapi/v3"

// followOpenAPI fetches the index of the OpenAPI documents, and the documents that are new in it.
func (d *documents) followOpenAPI(ctx context.Context) error {
	index, err := d.refresh(ctx, variant{path: openAPIRoot, accept: plain})
	if err != nil {
		return err
	}
	body, err := respond.Unpack(index.Gzip)
	if err != nil {
		return err
	}
	var listed struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := json.NewDecoder(io.LimitReader(body, maxDocument)).Decode(&listed); err != nil {
		return fmt.Errorf("read the index of the OpenAPI documents: %w", err)
	}
	for path, entry := range listed.Paths {
		v := variant{path: openAPIRoot + "/" + path, accept: plain}
		at, err := url.Parse(entry.ServerRelativeURL)
		if hash := at.Query().Get("hash"); err == nil && hash != "" {
			v.query = url.Values{"hash": {hash}}.Encode()
		}
		if !isDocument(v.path) || v.query != "" && d.get(v) != nil {
			continue
		}
		if _, err := d.refresh(ctx, v); err != nil && isOutage(err) {
			return err
		}
	}
	return ctx.Err()
}
