package conformance

import (
	"context"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func initialChecks() []check {
	return []check{
		{id: "initial/events", expected: "sendInitialEvents begins with what exists, and a BOOKMARK marked k8s.io/initial-events-end; or it is refused",
			reason: "KEP-3157: informers of client-go 0.35 begin so. A server that takes no notice of it hangs them for ever (kubernetes/kubernetes#140890)", run: moving("watch", initialEvents)},
		{id: "initial/resume", expected: "a watch goes on from the version of that bookmark",
			reason: "an informer reconnects from there", run: each("watch", resume)},
		{id: "initial/selector", expected: "the initial events are those that the selectors pick",
			reason: "informers of one object ask so; an unfiltered stream may show what the caller must not see", run: moving("watch", some(initialSelected))},
		{id: "initial/validation", expected: "sendInitialEvents without resourceVersionMatch=NotOlderThan is refused",
			reason: "what it should mean is undefined; kube-apiserver answers 422", run: each("watch", initialInvalid)},
	}
}

// end reports whether an event is the bookmark after the initial events.
func end(e event) bool {
	return e.Type == "BOOKMARK" && e.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true"
}

// initial starts a watch like an informer. ended is the bookmark after the initial events, or nil.
func (x *examination) initial(ctx context.Context, r metav1.APIResource, pairs ...string) (s stream, ended *event) {
	s = x.ask.watch(ctx, x.path(r, ""), end, "", append(pairs, "sendInitialEvents", "true",
		"resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan), "allowWatchBookmarks", "true")...)
	if n := len(s.events); n > 0 && end(s.events[n-1]) {
		ended = &s.events[n-1]
	}
	return s, ended
}

func initialEvents(ctx context.Context, x *examination, r metav1.APIResource) verdict {
	s, ended := x.initial(ctx, r)
	switch {
	case s.refused.is(http.StatusTooManyRequests) || !s.opened && s.refused.err != nil:
		return failed("%s: clients try that again and again", s.refused)
	case !s.opened && s.refused.code >= 500:
		return failed("%s", s.refused)
	case !s.opened:
		return warned("refused with %d: every informer asks twice", s.refused.code)
	}
	if err := s.problem(); err != nil {
		return failed("%v", err)
	}
	if ended == nil {
		return failed("the marked bookmark did not come: informers wait for it for ever")
	}
	if v := bookmark(x, r, *ended); v.outcome != Pass {
		return v
	}
	l, err := x.list(ctx, x.path(r, ""))
	if err != nil {
		return notApplicable("there is no list to compare with: %v", err)
	}
	if different := difference(addedKeys(s), l.keys()); different != "" {
		return failed("of the list, %s", different)
	}
	return ok
}

// addedKeys returns the keys of the objects that a stream added.
func addedKeys(s stream) []string {
	var out []string
	for _, e := range s.events {
		if e.Type == "ADDED" {
			out = append(out, e.key())
		}
	}
	slices.Sort(out)
	return out
}

func resume(ctx context.Context, x *examination, r metav1.APIResource) verdict {
	_, ended := x.initial(ctx, r)
	if ended == nil {
		return notApplicable("there are no initial events")
	}
	s := x.ask.watch(ctx, x.path(r, ""), nil, "", "resourceVersion", ended.Metadata.ResourceVersion)
	if err := s.problem(); err != nil {
		return failed("from %s: %v", ended.Metadata.ResourceVersion, err)
	}
	return ok
}

func initialSelected(ctx context.Context, x *examination, r metav1.APIResource, l objectList) verdict {
	if _, ended := x.initial(ctx, r); ended == nil {
		return notApplicable("there are no initial events")
	}
	name := l.Items[0].Metadata.Name
	s, ended := x.initial(ctx, r, "fieldSelector", "metadata.name="+name)
	if err := s.problem(); err != nil {
		return failed("%v", err)
	}
	if ended == nil {
		return failed("with a selector the marked bookmark does not come")
	}
	want := l.only(func(o object) bool { return o.Metadata.Name == name })
	if different := difference(addedKeys(s), want.keys()); different != "" {
		return failed("with fieldSelector=metadata.name=%s, %s", name, different)
	}
	return ok
}

func initialInvalid(ctx context.Context, x *examination, r metav1.APIResource) verdict {
	if _, ended := x.initial(ctx, r); ended == nil {
		return notApplicable("there are no initial events")
	}
	s := x.ask.watch(ctx, x.path(r, ""), nil, "", "sendInitialEvents", "true", "allowWatchBookmarks", "true")
	if s.opened {
		return failed("it is answered 200")
	}
	return s.refused.refusal(http.StatusUnprocessableEntity, http.StatusBadRequest)
}
