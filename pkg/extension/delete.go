package extension

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/json"

	"portico.dev/internal/respond"
)

// delete serves a delete request for one object.
func (s *resourceHandler) delete(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo) error {
	wr, err := s.begin(r, info)
	if err != nil {
		return err
	}
	options, err := wr.readDeleteOptions(r)
	if err != nil {
		return err
	}
	gone, err := wr.deleteOne(r.Context(), info.Name, options)
	if err != nil {
		return err
	}
	wr.forget(r.Context())
	if gone.GetDeletionTimestamp() != nil {
		return s.answer(w, r, http.StatusOK, wr.rep, wr.include, gone)
	}
	respond.Object(w, r, http.StatusOK, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: info.Name, Group: s.gvr.Group, Kind: s.gvr.Resource, UID: gone.GetUID()},
	})
	return nil
}

func (wr *writeRequest) deleteOne(ctx context.Context, name string, options *metav1.DeleteOptions) (object, error) {
	done, err := wr.writes.Lock(ctx, key{wr.info.Namespace, name})
	if err != nil {
		return nil, err
	}
	defer done()
	if p := options.Preconditions; p != nil && (p.UID != nil || p.ResourceVersion != nil) {
		now, err := wr.current(ctx, name)
		if err != nil {
			return nil, err
		}
		if err := wr.checkPreconditions(now.object, (*string)(p.UID), p.ResourceVersion); err != nil {
			return nil, err
		}
	}
	q := wr.query(ctx, name)
	q.Deletion = options
	return wr.source.delete(ctx, q)
}

// forget refreshes the caller's view after a deletion, so that watches see it at once.
func (wr *writeRequest) forget(ctx context.Context) {
	if wr.keeps() && !wr.options.dryRun {
		_, _ = wr.views.viewFor(caller(ctx)).refresh(ctx, time.Now()) // if the source fails, the next read reports it
	}
}

// deleteCollection serves a deletecollection request. It deletes the selected objects one after the other.
func (s *resourceHandler) deleteCollection(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo) error {
	wr, err := s.begin(r, info)
	if err != nil {
		return err
	}
	options, err := wr.readDeleteOptions(r)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	sel, err := parseSelection(s.Resource, info.Namespace, query.Get("labelSelector"), query.Get("fieldSelector"))
	if err != nil {
		return err
	}
	ctx := r.Context()
	l, err := s.gather(ctx, sel, metav1.ListOptions{})
	if err != nil {
		return err
	}
	deleted := &listing{selection: sel, meta: l.meta}
	for _, o := range l.items {
		one := *wr
		one.info = &apirequest.RequestInfo{Namespace: o.GetNamespace(), Name: o.GetName()}
		gone, err := one.deleteOne(ctx, o.GetName(), options)
		switch {
		case apierrors.IsNotFound(err): // deleted concurrently
		case err != nil:
			return err
		default:
			deleted.items = append(deleted.items, gone)
		}
	}
	wr.forget(ctx)
	doc, err := s.listDocument(deleted, wr.rep, wr.include)
	if err != nil {
		return err
	}
	return s.write(w, r, http.StatusOK, wr.rep, doc)
}

// readDeleteOptions reads DeleteOptions from the body, or from the query if the body is empty.
func (wr *writeRequest) readDeleteOptions(r *http.Request) (*metav1.DeleteOptions, error) {
	options := &metav1.DeleteOptions{}
	data, err := readBody(r)
	if err != nil {
		return nil, err
	}
	if len(data) == 0 {
		query := r.URL.Query()
		if err := metav1.Convert_url_Values_To_v1_DeleteOptions(&query, options, nil); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	} else if err := decodeDeleteOptions(r, data, options); err != nil {
		return nil, err
	}
	if err := invalidOptions(dryRunProblems(options.DryRun)); err != nil {
		return nil, err
	}
	wr.options.dryRun = wr.options.dryRun || len(options.DryRun) > 0
	return options, wr.checkDryRun()
}

// decodeDeleteOptions decodes DeleteOptions in any encoding. Typed and metadata clients send protobuf even if the resource
// has no protobuf encoding.
func decodeDeleteOptions(r *http.Request, data []byte, into *metav1.DeleteOptions) error {
	media, err := contentType(r, respond.MediaJSON, respond.MediaYAML, respond.MediaProtobuf)
	if err != nil {
		return err
	}
	var kind schema.GroupVersionKind
	if media == respond.MediaProtobuf {
		var raw []byte
		if kind, raw, err = openEnvelope(data); err == nil {
			err = into.Unmarshal(raw)
		}
	} else if data, _, err = toJSON(data, media); err == nil {
		err = json.UnmarshalCaseSensitivePreserveInts(data, into)
		kind = into.GroupVersionKind()
	}
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("the body is not DeleteOptions: %v", err))
	}
	if kind.Kind != "" && kind.Kind != "DeleteOptions" {
		return apierrors.NewBadRequest(fmt.Sprintf("the body is a %s and not DeleteOptions", kind.Kind))
	}
	return nil
}
