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
	"portico.dev/internal/run"
)

// resourceHandler serves one resource.
type resourceHandler struct {
	Resource
	number   uint64 // unique, unlike the name, among all resources that the host has served
	views    *views // nil if responses may be neither shared nor cached
	protobuf bool

	bodies  *bodies
	pages   *pages
	scratch *scratch
	writes  *run.KeyedMutex[key]
	issued  *versions

	// gone is canceled when the resource is no longer hosted.
	gone context.Context
	end  context.CancelFunc
}

func newResourceHandler(s Resource, h *Host) *resourceHandler {
	out := &resourceHandler{
		Resource: s, number: h.issued.next(), protobuf: speaksProtobuf(s.source.goType()),
		bodies: h.bodies, pages: h.pages, scratch: &h.scratch, writes: run.NewKeyedMutex[key](), issued: h.issued,
	}
	out.gone, out.end = context.WithCancel(context.Background())
	if out.keeps() || !s.perCaller {
		out.views = newViews(s, h.issued)
	}
	return out
}

// keeps reports whether a view serves all reads. Otherwise the view only merges concurrent requests for the complete list,
// and the provider serves all other requests, which it may do more cheaply.
func (s *resourceHandler) keeps() bool { return s.watchable() || s.maxAge > 0 }

// get serves a get request.
func (s *resourceHandler) get(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo) error {
	o := offer{verb: "get", protobuf: s.protobuf}
	rep, ok := o.negotiate(r.Header.Get("Accept"))
	if !ok {
		return respond.NotAcceptable(o.acceptable()...)
	}
	include, err := includePolicy(r)
	if err != nil {
		return err
	}
	item, err := s.find(r.Context(), info, r.URL.Query().Get("resourceVersion"))
	if err != nil {
		return err
	}
	return s.answer(w, r, http.StatusOK, rep, include, item)
}

// answer writes one object.
func (s *resourceHandler) answer(w http.ResponseWriter, r *http.Request, code int, rep representation, include metav1.IncludeObjectPolicy, item object) error {
	doc := objectDocument(item)
	switch rep.form {
	case tableForm:
		var err error
		meta := metav1.ListMeta{ResourceVersion: item.GetResourceVersion()}
		if doc, err = tableDocument(s.Resource, rep.version, meta, []object{item}, include); err != nil {
			return err
		}
	case metadataForm:
		doc = metadataDocument(item, rep.version)
	}
	return s.write(w, r, code, rep, doc)
}

// write encodes doc into a pooled buffer and writes it.
func (s *resourceHandler) write(w http.ResponseWriter, r *http.Request, code int, rep representation, doc document) error {
	raw := s.scratch.buffer()
	defer s.scratch.release(raw)
	if err := doc.encode(raw, rep.media); err != nil {
		return err
	}
	if !compresses(r, raw.Len()) {
		writeBody(w, r, code, rep.contentType(), "", raw.Bytes())
		return nil
	}
	small := s.scratch.buffer()
	defer s.scratch.release(small)
	if err := s.scratch.compress(small, raw.Bytes()); err != nil {
		return err
	}
	writeBody(w, r, code, rep.contentType(), codingGzip, small.Bytes())
	return nil
}

// find returns one object. If the resource has a view, the object comes from the view, so that its resourceVersion matches
// the one in lists and watches.
func (s *resourceHandler) find(ctx context.Context, info *apirequest.RequestInfo, atLeast string) (object, error) {
	want, err := parseVersion(atLeast)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if !s.keeps() {
		q := everything()
		q.Namespace, q.Name, q.User = info.Namespace, info.Name, s.shown(ctx)
		return s.source.get(ctx, q)
	}
	v := s.views.viewFor(caller(ctx))
	now, err := v.refresh(ctx, s.freshEnough())
	if err != nil {
		return nil, err
	}
	if s.watchable() && want > now.version {
		return nil, tooLarge(want, now.version)
	}
	if h, ok := v.lookup(key{info.Namespace, info.Name}); ok {
		return h.object, nil
	}
	return nil, apierrors.NewNotFound(s.gvr.GroupResource(), info.Name)
}

// shown returns the user that a read passes to the provider: nil unless the resource is PerCaller.
func (s *resourceHandler) shown(ctx context.Context) user.Info {
	if !s.perCaller {
		return nil
	}
	return caller(ctx)
}

// freshEnough returns the earliest time of a poll that may serve a request now.
func (s *resourceHandler) freshEnough() time.Time { return time.Now().Add(-s.maxAge) }

// checkListVersion checks the resourceVersion of a list. A list is always current. It satisfies every request except for an
// exact older version or a version that the host has not issued.
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

// tooLarge returns the 504 that makes a client wait or relist. Clients check its cause.
func tooLarge(want, have uint64) error {
	err := apierrors.NewTimeoutError("Too large resource version: "+formatVersion(want)+", current: "+formatVersion(have), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}

// caller returns the user of the request. Every resource request has one, because the chain authenticates it.
func caller(ctx context.Context) user.Info {
	u, _ := apirequest.UserFrom(ctx)
	return u
}
