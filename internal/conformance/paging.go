package conformance

import (
	"context"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func pagingChecks() []check {
	return []check{
		{id: "paging/pages", expected: "limit and continue give the whole list in pages, nothing twice, all of one resourceVersion",
			why: "client-go lists in pages of 500", run: moving("list", some(pages))},
		{id: "paging/token", expected: "a continue token that the server did not give, or keeps no longer, is answered 400 or 410",
			why: "the client starts again then; a list that begins anew in the middle would be taken for the rest", run: each("list", some(foreignToken))},
	}
}

// firstPage asks for a third of the list, and says whether the server pages.
func (x *examination) firstPage(ctx context.Context, r metav1.APIResource, all objectList) (page objectList, limit int, v verdict) {
	limit = (len(all.Items) + 2) / 3
	if len(all.Items) < 2 {
		return page, limit, without("there are not two objects")
	}
	page, err := x.list(ctx, x.path(r, ""), "limit", strconv.Itoa(limit))
	switch {
	case err != nil:
		return page, limit, failed("%v", err)
	case page.Metadata.Continue == "" && len(page.Items) == len(all.Items):
		return page, limit, without("limit is ignored, as it may be")
	case page.Metadata.Continue == "":
		return page, limit, failed("limit=%d cuts the list, and there is no continue token for the rest", limit)
	case len(page.Items) > limit:
		return page, limit, failed("limit=%d is answered with %d objects", limit, len(page.Items))
	}
	return page, limit, ok
}

func pages(ctx context.Context, x *examination, r metav1.APIResource, all objectList) verdict {
	page, limit, v := x.firstPage(ctx, r, all)
	if v.outcome != Pass {
		return v
	}
	whole := page
	// A page may be shorter than was asked for, but a token that leads in circles must not keep us.
	for range len(all.Items) {
		if page.Metadata.Continue == "" {
			break
		}
		version := page.Metadata.ResourceVersion
		var err error
		page, err = x.list(ctx, x.path(r, ""), "limit", strconv.Itoa(limit), "continue", page.Metadata.Continue)
		if err != nil {
			return failed("%v", err)
		}
		if page.Metadata.ResourceVersion != version {
			return failed("pages are of resourceVersions %q and %q", version, page.Metadata.ResourceVersion)
		}
		whole.Items = append(whole.Items, page.Items...)
	}
	if different := difference(whole.keys(), all.keys()); different != "" {
		return failed("of all pages together, %s", different)
	}
	return ok
}

func foreignToken(ctx context.Context, x *examination, r metav1.APIResource, all objectList) verdict {
	page, limit, v := x.firstPage(ctx, r, all)
	if v.outcome != Pass {
		return without("there are no pages")
	}
	for _, token := range []string{nothing, "!" + page.Metadata.Continue} {
		a := x.ask.get(ctx, x.path(r, ""), "limit", strconv.Itoa(limit), "continue", token)
		if v := a.refusal(http.StatusBadRequest, http.StatusGone); v.outcome != Pass {
			return v
		}
	}
	return ok
}
