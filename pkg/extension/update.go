package extension

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/respond"
)

// update serves an update request.
func (s *resourceHandler) update(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo) error {
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
	done, err := s.writes.Lock(ctx, key{info.Namespace, info.Name})
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

// replace updates now to wanted. Fields that clients cannot change keep their values.
func (wr *writeRequest) replace(ctx context.Context, now entry, wanted object) (object, error) {
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

// The supported patch types. A strategic merge patch requires generated types, and server-side apply requires managed fields
// in a store. The host has neither.
const (
	mediaJSONPatch  = "application/json-patch+json"
	mediaMergePatch = "application/merge-patch+json"
)

const (
	// maxOperations limits the operations of a JSON patch, as in kube-apiserver.
	maxOperations = 10_000
	// maxCopies limits the copy operations of a JSON patch, each of which may double the document.
	maxCopies = 100
	// patchAttempts is the number of attempts to apply a patch that does not set a resourceVersion, if the provider reports
	// conflicts.
	patchAttempts = 5
)

// patch serves a patch request as a read and an update.
func (s *resourceHandler) patch(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo, limit int64) error {
	wr, err := s.begin(r, info)
	if err != nil {
		return err
	}
	media, err := contentType(r, mediaJSONPatch, mediaMergePatch)
	if err != nil {
		return err
	}
	data, err := readBody(r)
	if err != nil {
		return err
	}
	apply, err := newPatch(media, data, limit)
	if err != nil {
		return err
	}
	ctx := r.Context()
	done, err := s.writes.Lock(ctx, key{info.Namespace, info.Name})
	if err != nil {
		return err
	}
	defer done()
	before := s.issued.last.Load()
	made, err := wr.patched(ctx, apply)
	if err != nil {
		return err
	}
	return s.answer(w, r, http.StatusOK, wr.rep, wr.include, wr.settled(ctx, made, before))
}

// patched applies a patch to the current object, and retries if the provider reports a conflict.
func (wr *writeRequest) patched(ctx context.Context, apply patch) (object, error) {
	for attempt := 1; ; attempt++ {
		now, err := wr.current(ctx, wr.info.Name)
		if err != nil {
			return nil, err
		}
		wanted, err := wr.applied(ctx, apply, now.object)
		if err != nil {
			return nil, err
		}
		insists := wanted.GetResourceVersion() != now.object.GetResourceVersion()
		made, err := wr.replace(ctx, now, wanted)
		if !apierrors.IsConflict(err) || insists || attempt == patchAttempts {
			return made, err
		}
	}
}

// applied returns the result of applying the patch to now.
func (wr *writeRequest) applied(ctx context.Context, apply patch, now object) (object, error) {
	var before bytes.Buffer
	if err := objectDocument(now).encode(&before, respond.MediaJSON); err != nil {
		return nil, err
	}
	after, err := apply(before.Bytes())
	if err != nil {
		return nil, err
	}
	wanted, err := wr.decodeObject(ctx, after, respond.MediaJSON, nil)
	if err != nil {
		return nil, err
	}
	if wanted.GetName() != now.GetName() {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the patch changes metadata.name from %q to %q", now.GetName(), wanted.GetName()))
	}
	return wanted, nil
}

// patch transforms a document. Errors carry a Status.
type patch func(document []byte) ([]byte, error)

func newPatch(media string, data []byte, limit int64) (patch, error) {
	if media == mediaMergePatch {
		return func(document []byte) ([]byte, error) {
			after, err := jsonpatch.MergePatch(document, data)
			if err != nil {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("merge patch: %v", err))
			}
			return after, nil
		}, nil
	}
	operations, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("JSON patch: %v", err))
	}
	if len(operations) > maxOperations {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("a JSON patch may have %d operations and not %d", maxOperations, len(operations)))
	}
	steps, err := stepsOf(operations)
	if err != nil {
		return nil, err
	}
	return func(document []byte) ([]byte, error) {
		for _, step := range steps {
			var err error
			if document, err = step.Apply(document); err != nil {
				return nil, unprocessable(fmt.Sprintf("JSON patch: %v", err))
			}
			if int64(len(document)) > limit {
				return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d, and the patched object is larger", limit))
			}
		}
		return document, nil
	}, nil
}

// stepsOf splits a patch after each copy operation, so that the caller can check the size of the result: a few dozen copies
// of the entire document would exhaust the memory. The limit in jsonpatch is a variable for the entire process.
func stepsOf(operations jsonpatch.Patch) ([]jsonpatch.Patch, error) {
	var steps []jsonpatch.Patch
	begin, copies := 0, 0
	for i, operation := range operations {
		if operation.Kind() != "copy" {
			continue
		}
		if copies++; copies > maxCopies {
			return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("a JSON patch may have %d copy operations", maxCopies))
		}
		steps = append(steps, operations[begin:i+1])
		begin = i + 1
	}
	if begin < len(operations) || len(operations) == 0 {
		steps = append(steps, operations[begin:])
	}
	return steps, nil
}

func unprocessable(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: message,
	}}
}
