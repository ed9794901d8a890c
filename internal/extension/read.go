package extension

import (
	"context"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/respond"
)

// served is a resource as the host serves it.
type served struct {
	Resource
	views    *views // nil unless the resource is watchable
	protobuf bool
}

func newServed(s Resource, v *versions) *served {
	out := &served{Resource: s, protobuf: speaksProtobuf(s.source.goType())}
	if s.watchable() {
		out.views = newViews(s, v)
	}
	return out
}

// read serves get and list.
func (s *served) read(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo) error {
	o := offer{verb: info.Verb, protobuf: s.protobuf}
	rep, ok := o.negotiate(r.Header.Get("Accept"))
	if !ok {
		return respond.NotAcceptable(o.acceptable()...)
	}
	answer := s.list
	if info.Verb == "get" {
		answer = s.get
	}
	doc, err := answer(r, info, rep)
	if err != nil {
		return err
	}
	body, err := doc.encode(rep.media)
	if err != nil {
		return err
	}
	writeBody(w, r, rep.contentType(), body)
	return nil
}

func (s *served) get(r *http.Request, info *apirequest.RequestInfo, rep representation) (document, error) {
	include, err := includePolicy(r)
	if err != nil {
		return document{}, err
	}
	item, err := s.find(r.Context(), info)
	if err != nil {
		return document{}, err
	}
	switch rep.form {
	case tableForm:
		meta := metav1.ListMeta{ResourceVersion: item.GetResourceVersion()}
		return tableDocument(s.Resource, rep.version, meta, []object{item}, include)
	case metadataForm:
		return metadataDocument(item, rep.version), nil
	}
	return objectDocument(item), nil
}

// find is one object, from the view when there is one, so that its resourceVersion is the one that lists and watches
// give it.
func (s *served) find(ctx context.Context, info *apirequest.RequestInfo) (object, error) {
	q := everything()
	q.Namespace, q.Name = info.Namespace, info.Name
	if s.views == nil {
		if s.perCaller {
			q.User = caller(ctx)
		}
		return s.source.get(ctx, q)
	}
	v := s.views.of(caller(ctx))
	if err := v.refresh(ctx, time.Now()); err != nil {
		return nil, err
	}
	if o, ok := v.lookup(key{info.Namespace, info.Name}); ok {
		return o, nil
	}
	return nil, apierrors.NewNotFound(s.gvr.GroupResource(), info.Name)
}

func (s *served) list(r *http.Request, info *apirequest.RequestInfo, rep representation) (document, error) {
	options, err := parseOptions(r, false)
	if err != nil {
		return document{}, err
	}
	sel, err := parseSelection(s.Resource, info.Namespace, options.LabelSelector, options.FieldSelector)
	if err != nil {
		return document{}, err
	}
	include, err := includePolicy(r)
	if err != nil {
		return document{}, err
	}
	items, meta, err := s.collect(r.Context(), sel, options)
	if err != nil {
		return document{}, err
	}
	items = sel.filter(items)
	switch rep.form {
	case tableForm:
		return tableDocument(s.Resource, rep.version, meta, items, include)
	case metadataForm:
		return metadataListDocument(rep.version, meta, items), nil
	}
	return listDocument(s.kind, meta, items), nil
}

func (s *served) collect(ctx context.Context, sel selection, options metav1.ListOptions) ([]object, metav1.ListMeta, error) {
	if s.views == nil {
		q := sel.query()
		if s.perCaller {
			q.User = caller(ctx)
		}
		items, err := s.source.list(ctx, q)
		return items, metav1.ListMeta{}, err
	}
	v := s.views.of(caller(ctx))
	if err := v.refresh(ctx, time.Now()); err != nil {
		return nil, metav1.ListMeta{}, err
	}
	items, version := v.content()
	if err := checkListVersion(options, version); err != nil {
		return nil, metav1.ListMeta{}, err
	}
	return items, metav1.ListMeta{ResourceVersion: formatVersion(version)}, nil
}

// checkListVersion: a list is always of now. That satisfies every wish but an exact version that has passed, and a
// version that we have not issued.
func checkListVersion(options metav1.ListOptions, version uint64) error {
	want, err := parseVersion(options.ResourceVersion)
	if err != nil {
		return err
	}
	if want > version {
		return tooLarge(want, version)
	}
	if options.ResourceVersionMatch == metav1.ResourceVersionMatchExact && want != version {
		return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	}
	return nil
}

// tooLarge is the 504 that tells a client to wait or to start afresh. The cause is what clients look for.
func tooLarge(want, have uint64) error {
	err := apierrors.NewTimeoutError("Too large resource version: "+formatVersion(want)+", current: "+formatVersion(have), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}

// caller is who asks. The chain lets no resource request pass without one.
func caller(ctx context.Context) user.Info {
	u, _ := apirequest.UserFrom(ctx)
	return u
}
