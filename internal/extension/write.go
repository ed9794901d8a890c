package extension

import (
	"context"
	"fmt"
	"hash/maphash"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/respond"
)

// writing is one write being served.
type writing struct {
	*served
	info    *apirequest.RequestInfo
	options writeOptions
	rep     representation
	include metav1.IncludeObjectPolicy
}

// begin reads what all writes have in common.
func (s *served) begin(r *http.Request, info *apirequest.RequestInfo) (*writing, error) {
	o := offer{verb: info.Verb, protobuf: s.protobuf}
	if info.Verb == "deletecollection" {
		o.verb = "list" // that is what it answers with
	}
	rep, ok := o.negotiate(r.Header.Get("Accept"))
	if !ok {
		return nil, respond.NotAcceptable(o.acceptable()...)
	}
	include, err := includePolicy(r)
	if err != nil {
		return nil, err
	}
	options, err := parseWriteOptions(r)
	if err != nil {
		return nil, err
	}
	wr := &writing{served: s, info: info, options: options, rep: rep, include: include}
	return wr, wr.checkDryRun()
}

func (wr *writing) checkDryRun() error {
	if wr.options.dryRun && !wr.dryRun {
		return apierrors.NewBadRequest("this resource cannot do a dry run, so nothing was done")
	}
	return nil
}

// query is the write in the words of a provider.
func (wr *writing) query(ctx context.Context, name string) Query {
	q := everything()
	q.Namespace, q.Name, q.User = wr.info.Namespace, name, caller(ctx)
	q.DryRun, q.FieldManager = wr.options.dryRun, wr.options.fieldManager
	return q
}

// current is the object as clients see it now, with the provider's own resourceVersion.
func (wr *writing) current(ctx context.Context, name string) (held, error) {
	k := key{wr.info.Namespace, name}
	if !wr.keeps() {
		q := everything()
		q.Namespace, q.Name, q.User = k.namespace, k.name, wr.shown(ctx)
		o, err := wr.source.get(ctx, q)
		if err != nil {
			return held{}, err
		}
		return held{object: o, theirs: o.GetResourceVersion()}, nil
	}
	v := wr.views.of(caller(ctx))
	if _, err := v.refresh(ctx, time.Now()); err != nil {
		return held{}, err
	}
	if h, ok := v.lookup(k); ok {
		return h, nil
	}
	return held{}, apierrors.NewNotFound(wr.gvr.GroupResource(), name)
}

// settled is what a write answers with: the object as the view has it now, with the resourceVersion of that. When the
// source does not show yet what was written, or somebody else has written since, it is what the provider returned, with
// a version from before: whoever goes on from there is told of a conflict and overwrites nothing.
func (wr *writing) settled(ctx context.Context, made object, before uint64) object {
	if !wr.keeps() {
		return made
	}
	if !wr.watchable() {
		_, _ = wr.views.of(caller(ctx)).refresh(ctx, time.Now()) // a source that fails now says so at the next read
		return made
	}
	made.SetResourceVersion("")
	after := wr.source.stamped(made, formatVersion(before))
	if wr.options.dryRun {
		return after
	}
	v := wr.views.of(caller(ctx))
	if _, err := v.refresh(ctx, time.Now()); err != nil {
		return after
	}
	shown, ok := v.lookup(key{made.GetNamespace(), made.GetName()})
	if !ok {
		return after
	}
	written, err := digest([]object{made}, true)
	if err != nil || written[key{made.GetNamespace(), made.GetName()}].digest != shown.digest {
		return after
	}
	return shown.object
}

// checkPreconditions compares what a client believes of an object with what it is.
func (wr *writing) checkPreconditions(now object, uid *string, version *string) error {
	conflict := func(what, want, have string) error {
		return apierrors.NewConflict(wr.gvr.GroupResource(), wr.info.Name,
			fmt.Errorf("%s is %q and not %q; read it again and repeat the change", what, have, want))
	}
	if uid != nil && *uid != "" && now.GetUID() != "" && string(now.GetUID()) != *uid {
		return conflict("uid", *uid, string(now.GetUID()))
	}
	if have := now.GetResourceVersion(); version != nil && *version != "" && have != "" && *version != have {
		return conflict("resourceVersion", *version, have)
	}
	return nil
}

// turns lets one write of an object follow the other. Objects share them by chance, which only makes some wait.
type turns struct {
	seed  maphash.Seed
	slots [64]chan struct{}
}

func newTurns() *turns {
	t := &turns{seed: maphash.MakeSeed()}
	for i := range t.slots {
		t.slots[i] = make(chan struct{}, 1)
	}
	return t
}

// take waits for the turn to write k. The caller calls the function that it returns when it has.
func (t *turns) take(ctx context.Context, k key) (func(), error) {
	slot := t.slots[maphash.Comparable(t.seed, k)%uint64(len(t.slots))]
	select {
	case slot <- struct{}{}:
		return func() { <-slot }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
