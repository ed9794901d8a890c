package sharedreads

import (
	"container/list"
	"hash/maphash"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"portico.dev/internal/metrics"
)

// Config is the configuration of a Cache. The zero value of each limit selects its default.
type Config struct {
	// MaxBytes limits the kept responses, and separately the responses that are being received to be shared. Default
	// MaxBytes.
	MaxBytes int64
	// MaxResponse limits one response. Default 8 MiB.
	MaxResponse int64
	// Metrics counts shared responses. May be nil.
	Metrics *metrics.SharedReads
}

// MaxBytes is the default of Config.MaxBytes.
const MaxBytes = 64 << 20

const (
	defaultMaxResponse = 8 << 20
	// maxKept is the maximum number of kept responses, whatever their size.
	maxKept = 65536
	// overhead is the approximate memory of a response in addition to its bytes.
	overhead = 512
)

// Policy determines how long responses are shared.
type Policy struct {
	// MaxAge is the maximum age of a response. If zero, it is shared only by the requests that wait for it.
	MaxAge time.Duration
	// StaleIfError is how long after MaxAge a response is served if the server fails (RFC 5861).
	StaleIfError time.Duration
}

// Request is a read that may be shared.
type Request struct {
	// Key is equal for requests that may share a response. It contains everything that may change the response.
	Key string
	// User is the name of the user who sends the request. A kept response is charged to the user of the request that
	// received it.
	User string
	// Of is the name of the APIRoute or its backend, for metrics.
	Of     string
	Policy Policy
	// Unkeyed reports whether the extension server receives a header field that is not part of Key. A response with a Vary
	// header that names such a field is not shared. Nil means that all fields are part of Key.
	Unkeyed func(name string) bool
	// Waiting is called when the request begins to wait for the response to another one.
	Waiting func()
	// Send sends the request, and writes the response to w. It may panic with http.ErrAbortHandler.
	Send func(w http.ResponseWriter)
}

// Cache is a cache of shared responses. It is safe for concurrent use.
type Cache struct {
	config Config
	now    func() time.Time

	seed      maphash.Seed
	mu        sync.RWMutex                  // guards the fields below
	kept      *simplelru.LRU[uint64, *kept] // by the hash of the key; of two keys with the same hash, the later one is kept
	users     map[string]*userResponses     // of kept
	bySize    usersBySize                   // of users
	bytes     int64                         // of kept
	flights   map[string]*flight            // by the key
	receiving int64                         // bytes of responses that are being received
	// receivingBy contains the bytes in receiving by user.
	receivingBy map[string]int64
}

// kept is a kept response.
type kept struct {
	key      string
	fields   []field
	body     []byte
	received time.Time
	until    time.Time // when it is removed
	size     int64
	user     string              // user of the request that received it
	owner    *userResponses      // nil if it is not in the cache
	element  *list.Element       // in owner.responses
	age      atomic.Pointer[age] // the last written Age header
	used     atomic.Int64        // when it was last moved to the front of the lists, Unix nanoseconds
}

// usedInterval is the time for which a response is not moved to the front of the lists again. Otherwise each request would have to wait
// for all others.
const usedInterval = 100 * time.Millisecond

// field is a header field. All responses share the values, so a caller that appends to them must copy them.
type field struct {
	name   string
	values []string
	joins  bool // the front door may have values too
}

type age struct {
	seconds int64
	values  []string
}

// flight is a request that was sent, and for which other requests may wait.
type flight struct {
	done chan struct{} // closed when the fields below are set
	// response is the shared response. Nil if it is not shared.
	response *kept
	// stale is set if the server failed to answer, and response is an earlier one.
	stale bool
	// retry is set if the request failed because its client disconnected. One of the waiting requests is sent next.
	retry bool
}

// New returns a Cache. It starts no goroutine.
func New(c Config) *Cache {
	if c.MaxBytes <= 0 {
		c.MaxBytes = MaxBytes
	}
	if c.MaxResponse <= 0 {
		c.MaxResponse = defaultMaxResponse
	}
	cache := &Cache{config: c, now: time.Now, seed: maphash.MakeSeed(), flights: map[string]*flight{}, users: map[string]*userResponses{}, receivingBy: map[string]int64{}}
	cache.kept, _ = simplelru.NewLRU(maxKept+1, cache.evicted) // only fails for sizes below 1
	return cache
}

// ServeKept answers a request with a kept response that is young enough, and reports whether there is one. Serve begins
// with the same step. ServeKept is for callers for which building a Request is expensive.
func (c *Cache) ServeKept(w http.ResponseWriter, key []byte, of string, maxAge time.Duration) bool {
	hash := maphash.Bytes(c.seed, key)
	now := c.now()
	c.mu.RLock()
	response, ok := c.kept.Peek(hash)
	c.mu.RUnlock()
	if !ok || response.key != string(key) || now.Sub(response.received) >= maxAge {
		return false
	}
	if used := response.used.Load(); now.UnixNano()-used >= int64(usedInterval) && response.used.CompareAndSwap(used, now.UnixNano()) {
		c.mu.Lock()
		c.get(hash) // if it is still kept
		c.mu.Unlock()
	}
	c.config.Metrics.Served(of, metrics.SharedKept)
	response.writeTo(w, now)
	return true
}

// find returns the kept response for a key, and the hash of the key. The caller must hold mu.
func (c *Cache) find(key string) (k *kept, hash uint64) {
	hash = maphash.String(c.seed, key)
	if k, ok := c.get(hash); ok && k.key == key {
		return k, hash
	}
	return nil, hash
}

// youngEnough returns a kept response if it is young enough, and the time. The caller must hold mu.
func (c *Cache) youngEnough(k *kept, hash uint64, maxAge time.Duration) (*kept, time.Time) {
	now := c.now()
	switch {
	case now.Sub(k.received) < maxAge:
		return k, now
	case !now.Before(k.until):
		c.kept.Remove(hash)
		c.config.Metrics.Keeps(c.bytes)
	}
	return nil, time.Time{}
}

// Serve answers a request with a kept response, with the response to an equal request, or by sending it.
func (c *Cache) Serve(w http.ResponseWriter, r *http.Request, q Request) {
	for {
		response, f, leads := c.join(&q)
		switch {
		case response != nil:
			c.config.Metrics.Served(q.Of, metrics.SharedKept)
			response.writeTo(w, c.now())
			return
		case leads:
			c.lead(w, r, &q, f)
			return
		}
		if q.Waiting != nil {
			q.Waiting()
		}
		select {
		case <-f.done:
		case <-r.Context().Done(): // the proxy answers according to the cause
			q.Send(w)
			return
		}
		switch {
		case f.stale:
			c.serveStale(w, &q, f.response)
			return
		case f.response != nil:
			c.config.Metrics.Served(q.Of, metrics.SharedWaited)
			f.response.writeTo(w, c.now())
			return
		case f.retry:
			continue
		}
		c.config.Metrics.Served(q.Of, metrics.SharedNot)
		q.Send(w)
		return
	}
}

// join returns a response that is young enough, or the flight for one. leads is set if the caller must send the request.
func (c *Cache) join(q *Request) (response *kept, f *flight, leads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, hash := c.find(q.Key); k != nil {
		if k, _ = c.youngEnough(k, hash, q.Policy.MaxAge); k != nil {
			return k, nil, false
		}
	}
	if f, ok := c.flights[q.Key]; ok {
		return nil, f, false
	}
	f = &flight{done: make(chan struct{})}
	c.flights[q.Key] = f
	return nil, f, true
}

// lead sends the request, and shares the response.
func (c *Cache) lead(w http.ResponseWriter, r *http.Request, q *Request, f *flight) {
	rec := &recorder{cache: c, to: w, user: q.User, limit: c.config.MaxResponse, vary: q.Unkeyed}
	rec.settle = sync.OnceFunc(func() { c.land(q, f, rec.shared, rec.replaces()) })
	complete := false
	defer func() {
		if !complete && !rec.passing {
			f.retry = r.Context().Err() != nil
			rec.code = 0 // an aborted response does not replace an earlier one
		}
		rec.settle()
		rec.free()
	}()
	q.Send(rec)
	complete = true
	if rec.passing {
		c.config.Metrics.Served(q.Of, metrics.SharedNot)
		return
	}
	if rec.failed() {
		if stale := c.stale(q); stale != nil {
			rec.shared, f.stale = stale, true
			rec.settle()
			c.serveStale(w, q, stale)
			return
		}
	}
	rec.shared = rec.response(c.now(), q.Policy)
	rec.settle() // before writing to the client, which may be slow
	c.config.Metrics.Served(q.Of, metrics.SharedSent)
	rec.pass()
}

func (c *Cache) serveStale(w http.ResponseWriter, q *Request, response *kept) {
	c.config.Metrics.Served(q.Of, metrics.SharedStale)
	w.Header().Add("Warning", `299 - "the server does not answer: this is an earlier response"`)
	response.writeTo(w, c.now())
}

// land ends a flight, and keeps its response unless it is kept already. replaces is set if the kept response is outdated.
func (c *Cache) land(q *Request, f *flight, response *kept, replaces bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.flights, q.Key)
	f.response = response
	before, hash := c.find(q.Key)
	if replaces && before != nil {
		c.kept.Remove(hash)
	}
	if response != nil && !f.stale && response.until.After(response.received) {
		response.key, response.user = q.Key, q.User
		response.size = int64(len(q.Key)+len(response.body)) + fieldsSize(response.fields) + overhead
		c.forgetOld()
		c.keep(hash, response)
	}
	c.config.Metrics.Keeps(c.bytes)
	close(f.done)
}

// forgetOld removes the least recently used responses that are too old. The caller must hold mu.
func (c *Cache) forgetOld() {
	now := c.now()
	for {
		if _, k, ok := c.kept.GetOldest(); !ok || now.Before(k.until) {
			return
		}
		c.kept.RemoveOldest()
	}
}

// stale returns the kept response for a failed request.
func (c *Cache) stale(q *Request) *kept {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, _ := c.find(q.Key)
	if k == nil || c.now().Sub(k.received) >= q.Policy.MaxAge+q.Policy.StaleIfError {
		return nil
	}
	return k
}

// writeTo answers with a kept response.
func (k *kept) writeTo(w http.ResponseWriter, now time.Time) {
	h := w.Header()
	for i := range k.fields {
		f := &k.fields[i]
		values := f.values
		if f.joins {
			if have := h[f.name]; have != nil {
				values = append(have[:len(have):len(have)], values...)
			}
		}
		h[f.name] = values
	}
	h["Age"] = k.ageAt(now)
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(k.body) // ignore the error: the client has disconnected
}

// ageAt returns the value of the Age header, which is shared by all responses within a second.
func (k *kept) ageAt(now time.Time) []string {
	seconds := int64(max(0, now.Sub(k.received)) / time.Second)
	if a := k.age.Load(); a != nil && a.seconds == seconds {
		return a.values
	}
	a := &age{seconds, []string{strconv.FormatInt(seconds, 10)}}
	k.age.Store(a)
	return a.values
}

// copyHeader adds the header of a response to the client's. The front door keeps its audit ID and the flow control headers.
func copyHeader(to, from http.Header) {
	for name, values := range from {
		switch {
		case perRequest(name):
			if to[name] == nil {
				to[name] = values
			}
		case joins(name):
			to[name] = append(to[name], values...)
		default:
			to[name] = append([]string(nil), values...)
		}
	}
}

// joins reports whether a header combines the values of the server and of the front door.
func joins(name string) bool {
	return name == "Vary" || name == "Warning" || name == "Access-Control-Expose-Headers"
}

// perRequest reports whether a header refers to a single request.
func perRequest(name string) bool {
	return name == "Audit-Id" || strings.HasPrefix(name, "X-Kubernetes-Pf-")
}

// fieldsOf returns the fields of a header that are kept.
func fieldsOf(h http.Header) []field {
	fields := make([]field, 0, len(h))
	for name, values := range h {
		if !perRequest(name) && name != "Date" && name != "Age" {
			fields = append(fields, field{name, slices.Clip(slices.Clone(values)), joins(name)})
		}
	}
	return fields
}

func fieldsSize(fields []field) (n int64) {
	for _, f := range fields {
		for _, v := range f.values {
			n += int64(len(f.name) + len(v) + 32)
		}
	}
	return n
}
