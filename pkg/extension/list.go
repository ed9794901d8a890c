package extension

import (
	"context"
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/respond"
)

// listing is a list while it is being served.
type listing struct {
	selection selection
	items     []object
	meta      metav1.ListMeta
	// view and version identify the complete list. view is nil if the list does not come from a view.
	view    *view
	version uint64
}

// list serves a list request. A complete list of a view is encoded once and cached until it changes.
func (s *resourceHandler) list(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo) error {
	o := offer{verb: "list", protobuf: s.protobuf}
	rep, ok := o.negotiate(r.Header.Get("Accept"))
	if !ok {
		return respond.NotAcceptable(o.acceptable()...)
	}
	options, err := parseOptions(r, false)
	if err != nil {
		return err
	}
	sel, err := parseSelection(s.Resource, info.Namespace, options.LabelSelector, options.FieldSelector)
	if err != nil {
		return err
	}
	include, err := includePolicy(r)
	if err != nil {
		return err
	}
	l, err := s.collect(r.Context(), sel, options)
	if err != nil {
		return err
	}
	if l.view == nil || !sel.selectsAll() || l.meta.Continue != "" {
		doc, err := s.listDocument(l, rep, include)
		if err != nil {
			return err
		}
		return s.write(w, r, http.StatusOK, rep, doc)
	}
	return s.writeKept(w, r, l, rep, include)
}

// writeKept writes a list that other callers of the same audience may request too. The encoded list is cached.
func (s *resourceHandler) writeKept(w http.ResponseWriter, r *http.Request, l *listing, rep representation, include metav1.IncludeObjectPolicy) error {
	k := bodyKey{view: l.view.id, namespace: l.selection.namespace, rep: rep, include: include}
	plain := func() ([]byte, error) {
		doc, err := s.listDocument(l, rep, include)
		if err != nil {
			return nil, err
		}
		raw := s.scratch.buffer()
		defer s.scratch.release(raw)
		if err := doc.encode(raw, rep.media); err != nil {
			return nil, err
		}
		if !k.gzip || raw.Len() < gzipThreshold {
			return slices.Clone(raw.Bytes()), nil
		}
		small := s.scratch.buffer()
		defer s.scratch.release(small)
		err = s.scratch.compress(small, raw.Bytes())
		return slices.Clone(small.Bytes()), err
	}
	k.gzip = respond.AcceptsGzip(r)
	made, err := s.bodies.get(k, l.version, plain)
	if err != nil {
		return err
	}
	coding := ""
	if k.gzip && isGzip(made) {
		coding = codingGzip
	}
	writeBody(w, r, http.StatusOK, rep.contentType(), coding, made)
	return nil
}

func (s *resourceHandler) listDocument(l *listing, rep representation, include metav1.IncludeObjectPolicy) (document, error) {
	switch rep.form {
	case tableForm:
		return tableDocument(s.Resource, rep.version, l.meta, l.items, include)
	case metadataForm:
		return metadataListDocument(rep.version, l.meta, l.items), nil
	}
	return listDocument(s.kind, l.meta, l.items), nil
}

// collect returns the objects of a list.
func (s *resourceHandler) collect(ctx context.Context, sel selection, options metav1.ListOptions) (*listing, error) {
	who := s.audience(ctx)
	var start token
	var l *listing
	var err error
	if options.Continue != "" {
		l, start, err = s.resume(options.Continue, sel, who)
	} else {
		l, err = s.gather(ctx, sel, options)
	}
	if err != nil {
		return nil, err
	}
	s.cut(l, int(min(options.Limit, maxPageItems)), start, who)
	return l, nil
}

// gather lists the objects, from the view if possible and from the source otherwise.
func (s *resourceHandler) gather(ctx context.Context, sel selection, options metav1.ListOptions) (*listing, error) {
	if whole := sel.selectsAll() && sel.namespace == ""; s.views == nil || !s.keeps() && !whole {
		q := sel.query()
		q.User = s.shown(ctx)
		items, err := s.source.list(ctx, q)
		if err != nil {
			return nil, err
		}
		items = sel.filter(items)
		slices.SortFunc(items, byNamespaceAndName)
		return &listing{selection: sel, items: items}, nil
	}
	v := s.views.viewFor(caller(ctx))
	now, err := v.refresh(ctx, s.freshEnough())
	if err != nil {
		return nil, err
	}
	l := &listing{selection: sel, items: sel.filter(now.items), view: v, version: now.version}
	if !s.watchable() {
		return l, nil
	}
	l.meta.ResourceVersion = formatVersion(now.version)
	return l, checkListVersion(options, now.version)
}

// audience identifies the callers that share a response: all callers, or for a PerCaller resource the callers with the same
// identity.
func (s *resourceHandler) audience(ctx context.Context) [sha256.Size]byte {
	if !s.perCaller {
		return [sha256.Size]byte{}
	}
	return audience(caller(ctx))
}

func byNamespaceAndName(a, b object) int {
	if c := strings.Compare(a.GetNamespace(), b.GetNamespace()); c != 0 {
		return c
	}
	return strings.Compare(a.GetName(), b.GetName())
}
