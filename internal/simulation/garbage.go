package simulation

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// policies are the ways in which a step deletes an owner. "" stands for an owner that is not deleted.
var policies = []metav1.DeletionPropagation{
	"", metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
}

// sharedNamespace is the namespace of owners and dependents. No history deletes it.
const sharedNamespace = "default"

// deleteOwner creates an owner with dependents, and deletes the owner with a policy that the step selects. An owner that is not
// deleted lives through failures of its server: none of them may delete its dependents.
func deleteOwner(h *history, s step) {
	o := h.newOperation(s)
	local := func(role string) thing {
		return thing{namespace: sharedNamespace, name: fmt.Sprintf("%s-%x", role, s.choice)}
	}
	at := func(role string, b *backend) thing {
		t := local(role)
		t.backend = b
		return t
	}
	policy, described := policies[s.choice>>8%4], local("owner")
	if o.bit(0) {
		described = at("owner", h.storing(s.other))
		if policy != "" {
			policy = metav1.DeletePropagationBackground // the backends have no other
		}
	}
	owner := o.create(described)
	if owner == nil {
		return
	}
	if o.bit(2) {
		o.pause() // the server of the owner may fail before the dependents exist
	}
	only := []*thing{o.create(local("dependent"), owner), o.create(at("dependent", h.storing(s.other+1)), owner)}
	only = slices.DeleteFunc(only, func(t *thing) bool { return t == nil })
	all := slices.Clone(only)
	if o.bit(1) {
		if other := o.create(local("other")); other != nil {
			if shared := o.create(local("shared"), owner, other); shared != nil {
				all = append(all, shared)
			}
		}
	}
	o.pause()
	o.checkPresent(all)
	if policy == "" {
		return
	}
	certain := o.delete(owner.path(), owner.name, owner.uid, policy)
	owner.deleted(certain)
	switch {
	case policy != metav1.DeletePropagationOrphan:
		for _, t := range only {
			t.deleted(certain)
		}
	case certain:
		for _, t := range all {
			t.orphanOf = owner.uid
		}
	}
}

// hideTime is how long an owner is hidden. The garbage collector trusts a list of a backend after 5 s, and a response that an owner does
// not exist after two of them within 5 s. So it must not act in this time, and would act if one of the checks was missing.
const hideTime = 9 * time.Second

// hideOwner hides an owner for some time from the clients of its server, like a server with an empty cache after a restart. Its
// dependent must survive that.
func hideOwner(h *history, s step) {
	o, b := h.newOperation(s), h.storing(s.other)
	owner := o.create(thing{backend: b, namespace: sharedNamespace, name: fmt.Sprintf("hidden-%x", s.choice)})
	if owner == nil {
		return
	}
	dependent := o.create(thing{namespace: sharedNamespace, name: fmt.Sprintf("of-hidden-%x", s.choice)}, owner)
	h.log.addf("%s hides %s", b.name, owner.name)
	b.server.SetHidden(sharedNamespace, owner.name, true)
	time.Sleep(hideTime)
	b.server.SetHidden(sharedNamespace, owner.name, false)
	h.log.addf("%s shows %s", b.name, owner.name)
	if dependent != nil {
		o.checkPresent([]*thing{dependent})
	}
}

// deleted records that t is deleted, or that its deletion may have failed.
func (t *thing) deleted(certain bool) {
	if t.fate = open; certain {
		t.fate = collected
	}
}

// checkKept returns an error while an object of the model is missing.
func (h *history) checkKept(ctx context.Context) error {
	return h.eachThing(kept, func(c *client, t *thing) error {
		var got metav1.PartialObjectMetadata
		if err := c.do(ctx, http.MethodGet, t.path(), nil).decode(&got); err != nil {
			return err
		}
		if got.UID != t.uid {
			return fmt.Errorf("%s has UID %s, want %s", t.path(), got.UID, t.uid)
		}
		for _, reference := range got.OwnerReferences {
			if reference.UID == t.orphanOf {
				return fmt.Errorf("%s has a reference to %s, which was deleted and left it as an orphan", t.path(), reference.Name)
			}
		}
		return nil
	})
}

// checkCollected returns an error while an object exists that has no owner any more.
func (h *history) checkCollected(ctx context.Context) error {
	return h.eachThing(collected, func(c *client, t *thing) error {
		a := c.do(ctx, http.MethodGet, t.path(), nil)
		if !a.absent(t.name) {
			return fmt.Errorf("%s: got %d %.400s, want 404: it or its owner was deleted", a.request, a.status, a.body)
		}
		return nil
	})
}

// eachThing calls check with each object of a fate, until it succeeds once.
func (h *history) eachThing(f fate, check func(*client, *thing) error) error {
	for i, t := range h.deletions.things {
		if t.fate != f || t.settled {
			continue
		}
		if err := check(h.client(admin, h.front(i)), t); err != nil {
			return err
		}
		t.settled = true
	}
	return nil
}

// deleteThings deletes the remaining objects. Objects that may exist are included, since an unknown request may have created them.
func (h *history) deleteThings(ctx context.Context) error {
	for i, t := range h.deletions.things {
		if t.fate == collected || t.namespace != sharedNamespace {
			continue
		}
		a := h.client(admin, h.front(i)).do(ctx, http.MethodDelete, t.path(), deleteOptions("", ""))
		if a.absent(t.name) {
			t.fate = collected
			continue
		}
		return fmt.Errorf("%s: got %d %.400s, want 404 after the deletion", a.request, a.status, a.body)
	}
	return nil
}
