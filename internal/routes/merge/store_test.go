package merge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico.dev/internal/respond"
)

// store is a server of widgets with the behavior of etcd: lists at a version, pages, watches from a version, bookmarks and 410.
type store struct {
	mu        sync.Mutex
	version   int
	log       []change
	compacted int // versions up to this one are compacted
	changed   chan struct{}
	cut       chan struct{} // closed to end all watches
	words     bool          // its resourceVersions are not numbers
	tables    bool
	columns   []string
	down      error
}

// change is the state of a widget after a write or before its deletion.
type change struct {
	version         int
	kind            string
	namespace, name string
	n               int
}

func newStore(version int) *store {
	return &store{version: version, compacted: version, changed: make(chan struct{}), cut: make(chan struct{})}
}

// write appends a change of a widget, which may be a deletion.
func (s *store) write(kind, namespace, name string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version += 1 + n%3
	s.log = append(s.log, change{s.version, kind, namespace, name, n})
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *store) breakOff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
}

func (s *store) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = s.version
}

// at returns the widgets at a version, by key. The caller holds mu. compact does not shorten the log.
func (s *store) at(version int) map[string]change {
	out := map[string]change{}
	for _, c := range s.log {
		if c.version > version {
			break
		}
		if key := c.namespace + "/" + c.name; c.kind == "DELETED" {
			delete(out, key)
		} else {
			out[key] = c
		}
	}
	return out
}

func (s *store) now() map[string]change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at(s.version)
}

func (s *store) text(version int) string {
	if s.words {
		return fmt.Sprintf("version-%d", version)
	}
	return strconv.Itoa(version)
}

func (s *store) number(text string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(text, "version-"))
	return n
}

func (s *store) object(c change) string {
	return fmt.Sprintf(`{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"namespace":%q,"name":%q,"resourceVersion":%q},"n":%d,"text":"a<b"}`, c.namespace, c.name, s.text(c.version), c.n)
}

func answer(code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}
}

func statusOf(err error) string {
	data, _ := json.Marshal(respond.StatusOf(err))
	return string(data)
}

func (s *store) get(ctx context.Context, watch bool, accept []string, q url.Values) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		return nil, s.down
	}
	gone := apierrors.NewResourceExpired("too old")
	if version := q.Get("resourceVersion"); version != "" && version != "0" {
		if at := s.number(version); at < s.compacted && watch && s.compacted%2 == 0 { // servers use either form
			return answer(http.StatusOK, `{"type":"ERROR","object":`+statusOf(gone)+"}\n"), nil
		} else if at < s.compacted && (watch || q.Get("resourceVersionMatch") == "Exact") {
			return answer(http.StatusGone, statusOf(gone)), nil
		} else if at > s.version {
			return answer(http.StatusGatewayTimeout, statusOf(apierrors.NewTimeoutError("Too large resource version", 1))), nil
		}
	}
	if watch {
		return s.watch(ctx, s.number(q.Get("resourceVersion")), s.tables && strings.Contains(accept[0], "as=Table")), nil
	}
	at, from := s.version, ""
	if q.Get("resourceVersionMatch") == "Exact" {
		at = s.number(q.Get("resourceVersion"))
	}
	if token := q.Get("continue"); token != "" {
		version, key, _ := strings.Cut(token, "@")
		at, from = s.number(version), key
		if at < s.compacted {
			return answer(http.StatusGone, statusOf(gone)), nil
		}
	}
	widgets := s.at(at)
	limit, _ := strconv.Atoi(q.Get("limit"))
	var items []string
	next := ""
	for _, key := range slices.Sorted(maps.Keys(widgets)) {
		if key < from {
			continue
		}
		if limit > 0 && len(items) == limit {
			next = s.text(at) + "@" + key
			break
		}
		if s.tables && strings.Contains(accept[0], "as=Table") {
			items = append(items, s.row(widgets[key]))
		} else {
			items = append(items, s.object(widgets[key]))
		}
	}
	about := fmt.Sprintf(`{"resourceVersion":%q,"continue":%q}`, s.text(at), next)
	if s.tables && strings.Contains(accept[0], "as=Table") {
		return answer(http.StatusOK, fmt.Sprintf(`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":%s,"columnDefinitions":[%s],"rows":[%s]}`, about, s.definitions(), strings.Join(items, ","))), nil
	}
	return answer(http.StatusOK, fmt.Sprintf(`{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":%s,"items":[%s]}`, about, strings.Join(items, ","))), nil
}

func (s *store) definitions() string {
	var out []string
	for _, name := range s.columns {
		out = append(out, fmt.Sprintf(`{"name":%q}`, name))
	}
	return strings.Join(out, ",")
}

func (s *store) row(c change) string {
	var cells []string
	for _, name := range s.columns {
		cells = append(cells, fmt.Sprintf("%q", name+" of "+c.name))
	}
	return fmt.Sprintf(`{"cells":[%s],"object":{"metadata":{"namespace":%q,"name":%q,"resourceVersion":%q}}}`, strings.Join(cells, ","), c.namespace, c.name, s.text(c.version))
}

// watch sends the events after a version, and a bookmark after every third event.
func (s *store) watch(ctx context.Context, after int, tables bool) *http.Response {
	reader, writer := io.Pipe()
	cut := s.cut
	go func() {
		defer func() { _ = writer.Close() }()
		stop := context.AfterFunc(ctx, func() { _ = writer.CloseWithError(ctx.Err()) })
		defer stop()
		sent, place := 0, 0
		for {
			s.mu.Lock()
			changed := s.changed
			var out bytes.Buffer
			for ; place < len(s.log); place++ {
				c := s.log[place]
				if c.version <= after {
					continue
				}
				object := s.object(c)
				if tables {
					object = fmt.Sprintf(`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"columnDefinitions":[%s],"rows":[%s]}`, s.definitions(), s.row(c))
				}
				fmt.Fprintf(&out, "{\"type\":%q,\"object\":%s}\n", c.kind, object)
				if sent++; sent%3 == 0 && !tables {
					fmt.Fprintf(&out, `{"type":"BOOKMARK","object":{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"resourceVersion":%q}}}`+"\n", s.text(c.version))
				}
			}
			s.mu.Unlock()
			if _, err := writer.Write(out.Bytes()); err != nil {
				return
			}
			select {
			case <-changed:
			case <-cut:
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: reader}
}
