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

// Informers are informers for the four kinds of RBAC objects.
type Informers struct {
	ClusterRoles        rbacv1informers.ClusterRoleInformer
	ClusterRoleBindings rbacv1informers.ClusterRoleBindingInformer
	Roles               rbacv1informers.RoleInformer
	RoleBindings        rbacv1informers.RoleBindingInformer
}

// Run compiles the rules in the informers until ctx ends. A changed role recompiles all rules; a changed binding
// recompiles the rules of its subjects. The caller starts the informers.
//
// The informers may use TransformBinding as their transform, and should if there are many bindings.
//
// Changes during a compilation are processed together in the next round, so a burst costs two rounds. The first round
// after a quiet period starts without delay, so that a revoked right is removed with its event (attack row B12).
// Under continuous changes, such as the creation of tens of thousands of bindings, each round is followed by a pause
// of twice its length. Otherwise compiling would keep a core busy.
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
	// A partial rule set would refuse requests that the complete one allows.
	if !cache.WaitFor(ctx, "", synced...) {
		return nil
	}
	for first := true; ; first = false {
		began := time.Now()
		// Take the changes before reading the objects: a concurrent change is then processed twice rather than
		// missed.
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
	// restFactor is the pause after a round as a multiple of its length.
	restFactor = 2
	// maxRest limits the pause, and so the age of a decision.
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
