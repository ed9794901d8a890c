package main

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// objectVersions is what one informer has told of each object. An informer tells of one event after the other.
type objectVersions struct {
	what string
	told map[string]string // version by namespace and name: not every server gives uids
}

func (l *objectVersions) add(object any) {
	if o := l.read(object); o != nil {
		if version, ok := l.told[key(o)]; ok {
			l.wrong(o, "came again, and was there at "+version)
		}
		l.tell("add", o)
	}
}

func (l *objectVersions) update(before, object any) {
	old, o := l.read(before), l.read(object)
	if old == nil || o == nil {
		return
	}
	if old.GetUID() != o.GetUID() { // deleted and made anew while the informer was not connected
		l.remove(before)
		l.add(object)
		return
	}
	version, ok := l.told[key(o)]
	if old.GetResourceVersion() == o.GetResourceVersion() && version == o.GetResourceVersion() {
		say("%s again %s at %s", l.what, key(o), version) // a list of what was known is told as updates to the same
		return
	}
	switch {
	case !ok:
		l.wrong(o, "changed, and was never told of")
	case old.GetResourceVersion() != version:
		l.wrong(o, "changed from "+old.GetResourceVersion()+", and was told of at "+version)
	}
	if newer, err := resourceversion.CompareResourceVersion(o.GetResourceVersion(), version); err != nil || newer <= 0 {
		l.wrong(o, "changed to what is not newer than "+version)
	}
	l.tell("update", o)
}

func (l *objectVersions) remove(object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	o := l.read(object)
	if o == nil {
		return
	}
	if _, ok := l.told[key(o)]; !ok {
		l.wrong(o, "went, and was not there")
	}
	delete(l.told, key(o))
	say("%s delete %s at the end", l.what, key(o))
}

func (l *objectVersions) tell(event string, o metav1.Object) {
	l.told[key(o)] = o.GetResourceVersion()
	say("%s %s %s at %s", l.what, event, key(o), o.GetResourceVersion())
}

func (l *objectVersions) wrong(o metav1.Object, what string) {
	say("WRONG %s: %s at %s %s", l.what, key(o), o.GetResourceVersion(), what)
}

// read is nil, and told of, for what is no object.
func (l *objectVersions) read(object any) metav1.Object {
	o, err := meta.Accessor(object)
	if err != nil {
		say("WRONG %s: %v", l.what, err)
		return nil
	}
	return o
}

func key(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }
