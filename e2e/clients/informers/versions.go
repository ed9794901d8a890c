package main

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// objectVersions records the reported version of each object. An informer reports events sequentially.
type objectVersions struct {
	what string
	told map[string]string // version by namespace and name, because not every server sets UIDs
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
	if old.GetUID() != o.GetUID() { // deleted and recreated while the informer was disconnected
		l.remove(before)
		l.add(object)
		return
	}
	version, ok := l.told[key(o)]
	if old.GetResourceVersion() == o.GetResourceVersion() && version == o.GetResourceVersion() {
		say("%s again %s at %s", l.what, key(o), version) // a list of known objects is reported as updates to the same version
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

// read returns the object's metadata. For other values it prints an error and returns nil.
func (l *objectVersions) read(object any) metav1.Object {
	o, err := meta.Accessor(object)
	if err != nil {
		say("WRONG %s: %v", l.what, err)
		return nil
	}
	return o
}

func key(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }
