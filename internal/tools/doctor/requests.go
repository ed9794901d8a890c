package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/routetable"
)

// first returns the first resource that supports a verb. Resources that can be watched can be listed.
func (x *exam) first(verb string) (resource, bool) {
	i := slices.IndexFunc(x.resources, func(r resource) bool { return slices.Contains(r.verbs, verb) })
	if i < 0 {
		return resource{}, false
	}
	return x.resources[i], true
}

// review checks with the API server that the caller may list, to distinguish a refused list from a fault.
func (x *exam) review(ctx context.Context) finding {
	r, any := x.first("list")
	if !any {
		return skipped("nothing can be listed")
	}
	var review authorizationv1.SelfSubjectAccessReview
	err := x.api.create(ctx, reviewPath, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Group: x.gv.Group, Version: x.gv.Version, Resource: r.name},
	}}, &review)
	switch {
	case err != nil:
		return unknown("the API server cannot be asked: " + reading(err))
	case !review.Status.Allowed:
		x.denied = true
		return unknown(fmt.Sprintf("the API server does not let you list %s", r.name))
	}
	return ok("you may list " + r.name)
}

// list reads one object of the first resource that can be listed.
func (x *exam) list(ctx context.Context) finding {
	r, any := x.first("list")
	switch {
	case !any:
		return skipped("nothing can be listed")
	case x.denied:
		return skipped("you may not")
	}
	path := x.path(r) + "?limit=1"
	a := x.api.send(ctx, http.MethodGet, path, mediaJSON, nil)
	x.passedOn(a)
	if f, found := x.delegation(ctx, a); found {
		f.cause = ""
		return f
	}
	var list metav1.PartialObjectMetadataList
	switch {
	case a.err == nil && a.code == http.StatusForbidden:
		return flawed("the API server lets you list "+r.name+", the extension server does not: "+strings.TrimSpace(a.text()),
			Kubectl("auth", "can-i", "list", r.name+"."+x.gv.Group, "--all-namespaces"), x.lookAtServer())
	case !a.passed():
		return flawed(fmt.Sprintf("a list of %s fails: %s", r.name, answered(a)), Kubectl("get", "--raw", path), x.lookAtServer())
	case json.Unmarshal(a.body, &list) != nil || !strings.HasSuffix(list.Kind, "List"):
		return flawed(fmt.Sprintf("the answer to a list of %s is no list", r.name), Kubectl("get", "--raw", path), x.lookAtServer())
	}
	return ok("a list of " + r.name + " is of kind " + list.Kind)
}

func (x *exam) path(r resource) string {
	return apiservice.DiscoveryPath(x.gv) + "/" + url.PathEscape(r.name)
}

// watch starts a watch like an informer, with the existing objects followed by a bookmark.
func (x *exam) watch(ctx context.Context) finding {
	r, any := x.first("watch")
	switch {
	case !any:
		return skipped("discovery offers no watch")
	case x.denied:
		return skipped("you may not")
	}
	ctx, cancel := context.WithTimeout(ctx, x.cfg.WatchTimeout)
	defer cancel()
	query := url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "sendInitialEvents": {"true"},
		"resourceVersionMatch": {string(metav1.ResourceVersionMatchNotOlderThan)},
		"timeoutSeconds":       {strconv.Itoa(int(x.cfg.WatchTimeout.Seconds()) + 1)},
	}
	resp, err := x.api.open(ctx, http.MethodGet, x.path(r)+"?"+query.Encode(), mediaJSON, nil)
	if err != nil {
		return flawed(fmt.Sprintf("a watch of %s does not begin: %v", r.name, err), x.lookAtServer())
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
		return x.awaitBookmark(r, resp.Body)
	case http.StatusUnprocessableEntity:
		return ok("it refuses to begin a watch with the objects that exist (422); clients list first, then watch")
	case http.StatusMethodNotAllowed:
		return flawed("discovery offers a watch of "+r.name+", and the extension server answers 405: informers try again for ever", x.lookAtServer())
	}
	return flawed(fmt.Sprintf("a watch of %s fails: %s", r.name, answered(read(resp))), x.lookAtServer())
}

// awaitBookmark reads events up to the bookmark that marks the end of the existing objects.
func (x *exam) awaitBookmark(r resource, body io.Reader) finding {
	decoder := json.NewDecoder(io.LimitReader(body, maxBody))
	events := 0
	for {
		var event struct {
			Type   string                       `json:"type"`
			Object metav1.PartialObjectMetadata `json:"object"`
		}
		if err := decoder.Decode(&event); err != nil {
			return x.noBookmark(r, events, err)
		}
		switch {
		case event.Type == "ERROR":
			return flawed(fmt.Sprintf("a watch of %s ends in an error event", r.name), x.lookAtServer())
		case event.Type == "BOOKMARK" && event.Object.Annotations[metav1.InitialEventsAnnotationKey] == "true":
			return ok(fmt.Sprintf("a watch of %s brings %s and its bookmark", r.name, some(events, "object")))
		case event.Type == "BOOKMARK":
		default:
			events++
		}
	}
}

// noBookmark handles a watch without that bookmark. An informer that starts with such a watch never syncs.
func (x *exam) noBookmark(r resource, events int, err error) finding {
	how := "ended"
	if errors.Is(err, context.DeadlineExceeded) {
		how = fmt.Sprintf("went on for %s", x.cfg.WatchTimeout)
	}
	found := fmt.Sprintf("a watch of %s %s with %s and without the bookmark that ends the initial ones: informers that begin with a watch never sync", r.name, how, some(events, "event"))
	if x.portico {
		return flawed(found, Kubectl("annotate", "apiservice", x.object.Name, routetable.InitialEventsAnnotation+"=reject"))
	}
	return flawed(found, "# this API server cannot shield clients from it; in the environment of each client built on client-go:",
		"export KUBE_FEATURE_WatchListClient=false")
}
