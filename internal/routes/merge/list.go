package merge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/respond"
)

// errMixed is returned if some sources return a Table and others return objects.
var errMixed = errors.New("a backend has no Tables")

// maxRequests limits the requests for one part of a list, because a source may own none of the objects that it returns.
const maxRequests = 16

// page is a list as the client gets it, or a part of one.
type page struct {
	first    *document // determines the kind of the list
	columns  columns
	items    []json.RawMessage
	rows     []row
	versions []string // of the sources
	token    string
}

func (m *Merger) list(w http.ResponseWriter, r *http.Request, c *Collection, q *query) error {
	ctx, cancel := context.WithTimeout(r.Context(), listTimeout)
	defer cancel()
	room := m.newRoom(q.user)
	defer room.free() // after the response is written
	body, err := m.merged(ctx, c, q, room)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", respond.MediaJSON)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body) // an error means that the client has disconnected
	return nil
}

// merged returns the encoded list.
func (m *Merger) merged(ctx context.Context, c *Collection, q *query, room *room) ([]byte, error) {
	leave, err := m.enter(ctx, c.ID, q.user)
	if err != nil {
		return nil, err
	}
	defer leave()
	p, err := c.page(ctx, q, q.form, room)
	if errors.Is(err, errMixed) {
		if !q.plain {
			return nil, respond.NotAcceptable(respond.MediaJSON)
		}
		room.free()
		p, err = c.page(ctx, q, q.form.objects(), room)
	}
	if err != nil {
		return nil, err
	}
	return p.encode(c)
}

// page returns the list or the part of it that the query requests.
func (c *Collection) page(ctx context.Context, q *query, f form, room *room) (*page, error) {
	if q.limit <= 0 && q.token == "" {
		return c.whole(ctx, q, f, room)
	}
	return c.part(ctx, q, f, room)
}

// whole lists all sources concurrently.
func (c *Collection) whole(ctx context.Context, q *query, f form, room *room) (*page, error) {
	lists, errs := make([]*document, len(c.Sources)), make([]error, len(c.Sources))
	var asking sync.WaitGroup
	for i := range c.Sources {
		asking.Go(func() {
			lists[i], errs[i] = c.Sources[i].list(ctx, q, f, room, "resourceVersion", q.versionFor(i), "resourceVersionMatch", q.matchFor(i))
		})
	}
	asking.Wait()
	p := &page{versions: make([]string, len(c.Sources))}
	for i, list := range lists {
		if errs[i] != nil {
			return nil, errs[i]
		}
		if err := p.add(&c.Sources[i], list); err != nil {
			return nil, err
		}
		p.versions[i] = list.Metadata.ResourceVersion
	}
	return p, nil
}

// versionFor returns the resource version at which a source is listed.
func (q *query) versionFor(source int) string {
	if q.versions != nil {
		return q.versions[source]
	}
	return q.version
}

func (q *query) matchFor(source int) string {
	if q.versionFor(source) == "" {
		return ""
	}
	return q.match
}

// part lists a part of the collection, one source after another. The first part determines the position of the entire list.
func (c *Collection) part(ctx context.Context, q *query, f form, room *room) (*page, error) {
	p, at := &page{}, continuation{}
	var err error
	if q.token != "" {
		at, err = c.decodeContinue(q.token)
	} else {
		at.Versions, err = c.begin(ctx, q, room)
	}
	if err != nil {
		return nil, err
	}
	p.versions = at.Versions
	for range maxRequests {
		source := &c.Sources[at.Source]
		ask := []string{"continue", at.Continue}
		switch {
		case at.Continue != "":
		case at.Versions[at.Source] == "" || at.Versions[at.Source] == "0": // the source has no resource versions
		default:
			ask = []string{"resourceVersion", at.Versions[at.Source], "resourceVersionMatch", string(metav1.ResourceVersionMatchExact)}
		}
		if left := q.limit - int64(len(p.items)+len(p.rows)); q.limit > 0 {
			ask = append(ask, "limit", strconv.FormatInt(left, 10))
		}
		list, err := source.list(ctx, q, f, room, ask...)
		if err != nil {
			return nil, err
		}
		if err := p.add(source, list); err != nil {
			return nil, err
		}
		if at.Continue = list.Metadata.Continue; at.Continue == "" {
			if at.Source++; at.Source == len(c.Sources) {
				return p, nil
			}
		}
		if q.limit > 0 && int64(len(p.items)+len(p.rows)) >= q.limit {
			break
		}
	}
	p.token = c.encodeContinue(at)
	return p, nil
}

// begin returns the resource versions at which the sources are listed: the requested ones, or the current ones.
func (c *Collection) begin(ctx context.Context, q *query, room *room) ([]string, error) {
	if q.versions != nil && q.match == string(metav1.ResourceVersionMatchExact) {
		return q.versions, nil
	}
	versions := make([]string, len(c.Sources))
	for i := range c.Sources {
		list, err := c.Sources[i].list(ctx, q, form{accept: []string{respond.MediaJSON}}, room,
			"limit", "1", "resourceVersion", q.versionFor(i), "resourceVersionMatch", q.matchFor(i))
		if err != nil {
			return nil, err
		}
		versions[i] = list.Metadata.ResourceVersion
	}
	return versions, nil
}

// list reads a list of one source.
func (s *Source) list(ctx context.Context, q *query, f form, room *room, pairs ...string) (*document, error) {
	resp, err := s.get(ctx, false, f.accept, q.with(pairs...))
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // read errors have already been handled
	body, err := io.ReadAll(&bounded{resp.Body, room})
	switch {
	case errors.Is(err, errTooLarge):
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the list is larger than %d MiB: list it in parts, with limit", room.limit>>20))
	case apierrors.IsTooManyRequests(err):
		return nil, err
	case err != nil:
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("the list of backend %s, which stores some of the objects, broke off: %v", s.Name, err))
	}
	list, err := parse(body)
	if err != nil || list.Kind == "" || list.Kind == "Status" {
		return nil, apierrors.NewInternalError(fmt.Errorf("backend %s answered with JSON that is no list", s.Name))
	}
	if f.table && !list.isTable() {
		return nil, errMixed
	}
	return list, nil
}

var errTooLarge = errors.New("too large")

// bounded returns an error if the reader exceeds the room.
type bounded struct {
	io.Reader
	room *room
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if roomErr := b.room.read(int64(n)); roomErr != nil {
		return n, roomErr
	}
	return n, err
}

// add adds the items of a list that the source owns.
func (p *page) add(s *Source, list *document) error {
	if p.first == nil {
		p.first = list
	} else if p.first.Kind != list.Kind || p.first.APIVersion != list.APIVersion {
		return apierrors.NewInternalError(fmt.Errorf("the backends of the list answered with %s %s and %s %s", p.first.APIVersion, p.first.Kind, list.APIVersion, list.Kind))
	}
	foreign := fmt.Errorf("backend %s answered with an item that is no object", s.Name)
	if !list.isTable() {
		for _, item := range list.Items {
			about, err := metadataOf(item)
			if err != nil {
				return apierrors.NewInternalError(foreign)
			}
			if s.Owns(about.Namespace) {
				p.items = append(p.items, item)
			}
		}
		return nil
	}
	order := p.columns.adopt(list.Columns)
	for _, r := range list.Rows {
		about, err := metadataOf(r.Object)
		if err != nil {
			return apierrors.NewInternalError(foreign)
		}
		if s.Owns(about.Namespace) {
			r.Cells = reorder(r.Cells, order)
			p.rows = append(p.rows, r)
		}
	}
	return nil
}

type listMetadata struct {
	ResourceVersion string `json:"resourceVersion"`
	Continue        string `json:"continue,omitempty"`
}

func (p *page) encode(c *Collection) ([]byte, error) {
	about := listMetadata{c.position(p.versions), p.token}
	if p.first.isTable() {
		return encode(struct {
			Kind       string            `json:"kind"`
			APIVersion string            `json:"apiVersion"`
			Metadata   listMetadata      `json:"metadata"`
			Columns    []json.RawMessage `json:"columnDefinitions"`
			Rows       []row             `json:"rows"`
		}{p.first.Kind, p.first.APIVersion, about, p.columns.definitions, append([]row{}, p.rows...)})
	}
	return encode(struct {
		Kind       string            `json:"kind"`
		APIVersion string            `json:"apiVersion"`
		Metadata   listMetadata      `json:"metadata"`
		Items      []json.RawMessage `json:"items"`
	}{p.first.Kind, p.first.APIVersion, about, append([]json.RawMessage{}, p.items...)})
}
