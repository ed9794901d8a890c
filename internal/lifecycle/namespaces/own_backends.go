package namespaces

import (
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
)

// neededByOthers lists the resources that other terminating namespaces still have to delete at backends in this one. Each
// namespace deletes its urgent resources first, so that two namespaces with each other's backends do not deadlock.
func (w *contentDeleter) neededByOthers(ns *corev1.Namespace, doomed []GroupVersion, others []*corev1.Namespace) *deletionResult {
	f := &deletionResult{}
	for _, gv := range doomed {
		if gv.Service.Namespace != ns.Name {
			continue
		}
		for _, other := range others {
			if w.emptyVersions.covers(other, []GroupVersion{gv}) {
				continue
			}
			for _, r := range gv.Resources {
				f.needed = append(f.needed, fmt.Sprintf("%s.%s of namespace %s", r.Name, gv.Group, other.Name))
			}
		}
	}
	return f
}

// terminatingNamespaces returns the namespaces that are being deleted and not finalized yet.
func terminatingNamespaces(namespaces coreinformers.NamespaceInformer) []*corev1.Namespace {
	all, err := namespaces.Lister().List(labels.Everything())
	if err != nil {
		return nil // reading a cache does not fail
	}
	return slices.DeleteFunc(all, func(ns *corev1.Namespace) bool {
		return ns.DeletionTimestamp == nil || !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
	})
}

// emptyVersions records the group-versions of ending backends that were found empty for a terminating namespace. The namespace
// does not wait for them after the backend has disappeared with its own namespace. After a restart it waits for them.
type emptyVersions struct {
	mu      sync.Mutex // guards records
	records map[string]emptyRecord
}

type emptyRecord struct {
	uid   types.UID
	empty []registration
}

// registration is a group-version and the UID of its APIService, because another APIService may refer to another backend.
type registration struct {
	versionAt
	registration types.UID
}

func registrationOf(gv GroupVersion) registration {
	return registration{versionAt{gv.GroupVersion, gv.backend()}, gv.UID}
}

// record replaces the state of the group-versions that are ending now.
func (c *emptyVersions) record(ns *corev1.Namespace, doomed []GroupVersion, empty bool) {
	c.forgetVersions(ns, doomed)
	if !empty || len(doomed) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.records[ns.Name]
	if known.uid != ns.UID {
		known = emptyRecord{uid: ns.UID}
	}
	for _, gv := range doomed {
		known.empty = append(known.empty, registrationOf(gv))
	}
	if c.records == nil {
		c.records = map[string]emptyRecord{}
	}
	c.records[ns.Name] = known
}

// forgetVersions forgets group-versions. A backend that is no longer ending may get new objects, and is waited for if it
// becomes unavailable again.
func (c *emptyVersions) forgetVersions(ns *corev1.Namespace, alive []GroupVersion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.records[ns.Name]
	if !ok {
		return
	}
	known.empty = slices.DeleteFunc(slices.Clone(known.empty), func(o registration) bool {
		return slices.ContainsFunc(alive, func(gv GroupVersion) bool { return registrationOf(gv) == o })
	})
	c.records[ns.Name] = known
}

// removeEmpty returns blocked without the group-versions that are known to be empty for a namespace.
func (c *emptyVersions) removeEmpty(ns *corev1.Namespace, blocked []GroupVersion) []GroupVersion {
	return slices.DeleteFunc(slices.Clone(blocked), func(gv GroupVersion) bool { return c.covers(ns, []GroupVersion{gv}) })
}

// covers reports whether all the group-versions are known to be empty for a namespace.
func (c *emptyVersions) covers(ns *corev1.Namespace, gvs []GroupVersion) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.records[ns.Name]
	return !slices.ContainsFunc(gvs, func(gv GroupVersion) bool {
		return known.uid != ns.UID || !slices.Contains(known.empty, registrationOf(gv))
	})
}

func (c *emptyVersions) forget(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.records, namespace)
}
