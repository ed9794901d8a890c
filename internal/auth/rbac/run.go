package rbac

import (
	"context"
	"errors"
	"fmt"
	"time"

	rbacv1informers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/tools/cache"

	"k8s.io/apimachinery/pkg/labels"
)

// Informers are those of the four kinds of RBAC.
type Informers struct {
	ClusterRoles        rbacv1informers.ClusterRoleInformer
	ClusterRoleBindings rbacv1informers.ClusterRoleBindingInformer
	Roles               rbacv1informers.RoleInformer
	RoleBindings        rbacv1informers.RoleBindingInformer
}

// Run compiles the rules that the informers hold, until ctx ends: all of them again whenever a role changes, and those of the
// subjects of a binding that changes. The informers are started by the owner of their factory.
//
// The informers may have TransformBinding as their transform; where there are many bindings, they should.
//
// Changes that come while it compiles are taken together in the next round, so a burst costs two rounds. There is no
// delay before a round that follows a quiet time: a right that was revoked should be gone with the event that says so
// (attack row B12). While changes never end, as when tens of thousands of bindings are made, a round is followed by a rest
// of twice its length, or compiling would take a core for itself.
func (r *RBAC) Run(ctx context.Context, informers Informers) error {
	changed := newPending()
	var synced []cache.DoneChecker
	for _, informer := range []cache.SharedIndexInformer{
		informers.ClusterRoles.Informer(),
		informers.ClusterRoleBindings.Informer(),
		informers.Roles.Informer(),
		informers.RoleBindings.Informer(),
	} {
		registration, err := informer.AddEventHandler(changed.handler())
		if err != nil {
			return fmt.Errorf("follow roles and bindings: %w", err)
		}
		defer func() { _ = informer.RemoveEventHandler(registration) }() // fails only for a stopped informer
		synced = append(synced, registration.HasSyncedChecker())
	}
	// Half of the rules would refuse what the whole allows.
	if !cache.WaitFor(ctx, "", synced...) {
		return nil
	}
	for first := true; ; first = false {
		began := time.Now()
		// Taken before what they announce is read: a change in between is seen again rather than missed.
		if roles, bindings := changed.take(); roles || first {
			policy, err := list(informers)
			if err != nil {
				return err
			}
			began = time.Now()
			r.Load(policy)
		} else if len(bindings) > 0 {
			r.current.Store(r.current.Load().update(changesOf(informers, bindings)))
		}
		rested := time.After(min(restFactor*time.Since(began), maxRest))
		select {
		case <-ctx.Done():
			return nil
		case <-rested:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed.signal:
		}
	}
}

const (
	// restFactor is how many times the length of a round the next one waits.
	restFactor = 2
	// maxRest bounds how old a decision can be.
	maxRest = 500 * time.Millisecond
)

func list(informers Informers) (Policy, error) {
	var p Policy
	var errs [2]error
	p.ClusterRoles, errs[0] = informers.ClusterRoles.Lister().List(labels.Everything())
	p.Roles, errs[1] = informers.Roles.Lister().List(labels.Everything())
	for _, bindings := range []cache.SharedIndexInformer{informers.ClusterRoleBindings.Informer(), informers.RoleBindings.Informer()} {
		for _, obj := range bindings.GetStore().List() {
			if b, ok := TransformBinding(obj).(*Binding); ok {
				p.Bindings = append(p.Bindings, b)
			}
		}
	}
	if err := errors.Join(errs[:]...); err != nil {
		return Policy{}, fmt.Errorf("list roles and bindings: %w", err)
	}
	return p, nil
}
