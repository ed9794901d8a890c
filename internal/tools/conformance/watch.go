package conformance

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func watchChecks() []check {
	return []check{
		{id: "watch/refused", expected: "a watch of a resource without that verb is answered 405",
			reason: "a list that is answered instead is taken for a stream that ended", run: watchRefused},
		{id: "watch/begins", expected: "a watch from the resourceVersion of a list is a stream of JSON events of that kind",
			reason: "what every informer does after its list", run: each("watch", watchBegins)},
		{id: "watch/ends", expected: "a watch ends, and cleanly, after timeoutSeconds",
			reason: "clients choose it to spread reconnections; one that never ends hangs after a front door is gone", run: each("watch", watchEnds)},
		{id: "watch/bookmarks", expected: "a BOOKMARK is of the kind, has a resourceVersion, and comes only to who asked",
			reason: "KEP-956: idle watches go on from there instead of listing again", run: each("watch", bookmarks)},
		{id: "watch/expired", expected: "a watch from long ago is served, or told 410, by status or ERROR event",
			reason: "the client lists again on 410, and on nothing else", run: each("watch", watchExpired)},
		{id: "watch/malformed", expected: "a resourceVersion that is none is answered 400",
			reason: "a client that mixes servers up would miss changes without a word", run: each("watch", watchMalformed)},
		{id: "watch/table", expected: "a watch can be had as Table",
			reason: "kubectl get -w", run: each("watch", some(watchTable))},
	}
}

func watchRefused(ctx context.Context, x *examination) verdict {
	v := x.worst("list", func(r metav1.APIResource) verdict {
		if can(r, "watch") {
			return notApplicable("it can be watched")
		}
		s := x.ask.watch(ctx, x.path(r, ""), nil, "")
		if s.opened {
			return failed("the watch is answered 200")
		}
		return s.refused.refusal(http.StatusMethodNotAllowed)
	})
	if v.outcome == NotApplicable {
		return notApplicable("there is no resource without a watch")
	}
	return v
}

// from returns the resource version at which a watch after a list begins, or a verdict if that is not possible.
func (x *examination) from(ctx context.Context, r metav1.APIResource) (string, *verdict) {
	l, err := x.list(ctx, x.path(r, ""))
	switch {
	case err != nil:
		v := notApplicable("there is no list: %v", err)
		return "", &v
	case l.Metadata.ResourceVersion == "":
		v := notApplicable("the list has no resourceVersion")
		return "", &v
	}
	return l.Metadata.ResourceVersion, nil
}

func watchBegins(ctx context.Context, x *examination, r metav1.APIResource) verdict {
	version, none := x.from(ctx, r)
	if none != nil {
		return *none
	}
	s := x.ask.watch(ctx, x.path(r, ""), nil, "", "resourceVersion", version)
	if err := s.problem(); err != nil {
		return failed("%v", err)
	}
	if media := (answer{headers: s.headers}).media(); media != "application/json" {
		return failed("the Content-Type is %q", media)
	}
	for _, e := range s.events {
		if e.Kind != r.Kind || e.APIVersion != x.gv.String() || e.Metadata.ResourceVersion == "" {
			return failed("an event of %s %s at resourceVersion %q", e.APIVersion, e.Kind, e.Metadata.ResourceVersion)
		}
	}
	return ok
}

func watchEnds(ctx context.Context, x *examination, r metav1.APIResource) verdict {
	version, none := x.from(ctx, r)
	if none != nil {
		return *none
	}
	s := x.ask.watch(ctx, x.path(r, ""), nil, "", "resourceVersion", version)
	switch {
	case !s.opened:
		return notApplicable("there is no watch: %s", s.refused)
	case s.late:
		return failed("%s after timeoutSeconds=%d it goes on", x.ask.timeout, watchSeconds)
	case s.err != nil:
		return failed("it is cut off: %v", s.err)
	}
	return ok
}

func bookmarks(ctx context.Context, x *examination, r metav1.APIResource) verdict {
	version, none := x.from(ctx, r)
	if none != nil {
		return *none
	}
	unasked := x.ask.watch(ctx, x.path(r, ""), nil, "", "resourceVersion", version)
	for _, e := range unasked.events {
		if e.Type == "BOOKMARK" {
			return failed("one comes to who has not asked")
		}
	}
	s := x.ask.watch(ctx, x.path(r, ""), nil, "", "resourceVersion", version, "allowWatchBookmarks", "true")
	if !s.opened {
		return failed("%s", s.refused)
	}
	for _, e := range s.events {
		if e.Type == "BOOKMARK" {
			return bookmark(x, r, e)
		}
	}
	return notApplicable("none came within a second")
}

// bookmark checks that clients can decode a bookmark.
func bookmark(x *examination, r metav1.APIResource, e event) verdict {
	switch {
	case e.Kind != r.Kind || e.APIVersion != x.gv.String():
		// Clients check the type of every event first, and end the watch on an unexpected type.
		return failed("the BOOKMARK is of %s %s", e.APIVersion, e.Kind)
	case e.Metadata.ResourceVersion == "" || e.Metadata.ResourceVersion == "0":
		return failed("the BOOKMARK has the resourceVersion %q", e.Metadata.ResourceVersion)
	}
	return ok
}

func watchExpired(ctx context.Context, x *examination, r metav1.APIResource) verdict {
	s := x.ask.watch(ctx, x.path(r, ""), nil, "", "resourceVersion", "1")
	if !s.opened {
		return s.refused.refusal(http.StatusGone)
	}
	if s.late || s.err != nil {
		return notApplicable("the watch does not end as it should")
	}
	for _, e := range s.events {
		if e.Type == "ERROR" && e.status.Code != http.StatusGone {
			return failed("an ERROR event: %d %s", e.status.Code, e.status.Message)
		}
	}
	return ok
}

func watchMalformed(ctx context.Context, x *examination, r metav1.APIResource) verdict {
	s := x.ask.watch(ctx, x.path(r, ""), nil, "", "resourceVersion", nothing)
	if s.opened {
		return failed("the watch is answered 200")
	}
	if s.refused.code >= http.StatusInternalServerError && s.refused.statusShape() == nil {
		// Like k8s.io/apiserver.
		return warned("refused with %d, which reads as a failure of the server: clients try again", s.refused.code)
	}
	return s.refused.refusal(http.StatusBadRequest)
}

func watchTable(ctx context.Context, x *examination, r metav1.APIResource, _ objectList) verdict {
	first := func(event) bool { return true }
	s := x.ask.watch(ctx, x.path(r, ""), first, mediaTable)
	if err := s.problem(); err != nil {
		return failed("%v", err)
	}
	if len(s.events) == 0 {
		return notApplicable("no event came within a second")
	}
	if e := s.events[0]; e.Kind != "Table" {
		return failed("an event of kind %q", e.Kind)
	}
	return ok
}
