package extension

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// update serves an update.
func (s *served) update(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo) error {
	wr, err := s.begin(r, info)
	if err != nil {
		return err
	}
	wanted, err := wr.readObject(r)
	if err != nil {
		return err
	}
	if wanted.GetName() != info.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("metadata.name is %q, and the request is about %q", wanted.GetName(), info.Name))
	}
	ctx := r.Context()
	done, err := s.turns.take(ctx, key{info.Namespace, info.Name})
	if err != nil {
		return err
	}
	defer done()
	before := s.issued.last.Load()
	now, err := wr.current(ctx, info.Name)
	if err != nil {
		return err
	}
	made, err := wr.replace(ctx, now, wanted)
	if err != nil {
		return err
	}
	return s.answer(w, r, http.StatusOK, wr.rep, wr.include, wr.settled(ctx, made, before))
}

// replace makes what is there now look as wanted. What clients may not change stays as it is.
func (wr *writing) replace(ctx context.Context, now held, wanted object) (object, error) {
	uid, version := string(wanted.GetUID()), wanted.GetResourceVersion()
	if err := wr.checkPreconditions(now.object, &uid, &version); err != nil {
		return nil, err
	}
	wanted.SetUID(now.object.GetUID())
	wanted.SetCreationTimestamp(now.object.GetCreationTimestamp())
	wanted.SetDeletionTimestamp(now.object.GetDeletionTimestamp())
	wanted.SetDeletionGracePeriodSeconds(now.object.GetDeletionGracePeriodSeconds())
	return wr.source.update(ctx, wr.query(ctx, wr.info.Name), wr.source.stamped(wanted, now.theirs))
}
