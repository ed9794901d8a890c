package conformance

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func pagingChecks() []check {
	return []check{
		{id: "paging/pages", expected: "limit and continue give the whole list in pages, nothing twice, all of one resourceVersion",
			reason: "client-go lists in pages of 500", run: moving("list", some(pages))},
		{id: "paging/token", expected: "a continue token that the server did not give, or keeps no longer, is answered 400 or 410",
			reason: "the client starts again then; a list that begins anew in the middle would be taken for the rest", run: each("list", some(foreignToken))},
	}
}

// firstPage requests a third of the list. v is not-applicable if the server does not page.
func (x *examination) firstPage(ctx context.Context, r metav1.APIResource, all objectList) (page objectList, limit int, v verdict) {
	limit = (len(all.Items) + 2) / 3
	if len(all.Items) < 2 {
		return page, limit, notApplicable("there are not two objects")
	}
	page, err := x.list(ctx, x.path(r, ""), "limit", strconv.Itoa(limit))
	switch {
	case err != nil:
		return page, limit, failed("%v", err)
	case page.Metadata.Continue == "" && len(page.Items) == len(all.Items):
		return page, limit, notApplicable("limit is ignored, as it may be")
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
	// A page may be shorter than the limit. The bound ends the loop if the tokens form a cycle.
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
		return notApplicable("there are no pages")
	}
	for _, token := range []string{nothing, "!" + page.Metadata.Continue} {
		a := x.ask.get(ctx, x.path(r, ""), "limit", strconv.Itoa(limit), "continue", token)
		if v := a.refusal(http.StatusBadRequest, http.StatusGone); v.outcome != Pass {
			return v
		}
	}
	return ok
}

// nothing is a label, field, name and namespace that does not exist.
const nothing = "portico-conformance-nothing"

func selectorChecks() []check {
	return []check{
		{id: "selectors/labels", expected: "labelSelector picks by label",
			reason: "kubectl -l, and every controller that looks after what is labelled", run: moving("list", byLabel)},
		{id: "selectors/name", expected: "fieldSelector=metadata.name=NAME picks one",
			reason: "informers of one object ask so, and may be allowed no more", run: moving("list", some(byName))},
		{id: "selectors/malformed", expected: "a labelSelector that cannot be read is answered 400",
			reason: "a selector that is ignored selects everything, and whoever deletes by it deletes everything",
			run:    each("list", refusedQuery("labelSelector", "a in (b"))},
		{id: "selectors/unknown-field", expected: "a fieldSelector of a field that cannot be selected by is answered 400",
			reason: "as above", run: each("list", refusedQuery("fieldSelector", "spec."+nothing+"=x"))},
	}
}

func byLabel(ctx context.Context, x *examination, r metav1.APIResource) verdict {
	all, err := x.list(ctx, x.path(r, ""))
	if err != nil {
		return notApplicable("there is no list: %v", err)
	}
	cases := map[string]func(object) bool{
		nothing + "=x":  func(object) bool { return false },
		"!" + nothing:   func(object) bool { return true },
		nothing + "!=x": func(object) bool { return true },
	}
	for _, o := range all.Items {
		if len(o.Metadata.Labels) > 0 {
			key := slices.Sorted(maps.Keys(o.Metadata.Labels))[0]
			value := o.Metadata.Labels[key]
			cases[key+"="+value] = func(o object) bool { got, has := o.Metadata.Labels[key]; return has && got == value }
			cases[key+" notin ("+value+")"] = func(o object) bool { got, has := o.Metadata.Labels[key]; return !has || got != value }
			break
		}
	}
	for _, selector := range slices.Sorted(maps.Keys(cases)) {
		if v := x.selects(ctx, r, all, cases[selector], "labelSelector", selector); v.outcome != Pass {
			return v
		}
	}
	return ok
}

// selects compares the objects that a query selects with the objects for which should returns true.
func (x *examination) selects(ctx context.Context, r metav1.APIResource, all objectList, should func(object) bool, pairs ...string) verdict {
	got, err := x.list(ctx, x.path(r, ""), pairs...)
	if err != nil {
		return failed("%v", err)
	}
	if different := difference(got.keys(), all.only(should).keys()); different != "" {
		return failed("with %s=%s, %s", pairs[0], pairs[1], different)
	}
	return ok
}

func byName(ctx context.Context, x *examination, r metav1.APIResource, l objectList) verdict {
	name := l.Items[0].Metadata.Name
	v := x.selects(ctx, r, l, func(o object) bool { return o.Metadata.Name == name }, "fieldSelector", "metadata.name="+name)
	if v.outcome != Pass {
		return v
	}
	return x.selects(ctx, r, l, func(object) bool { return false }, "fieldSelector", "metadata.name="+nothing)
}

// refusedQuery returns a check that a query parameter is refused.
func refusedQuery(name, value string) func(context.Context, *examination, metav1.APIResource) verdict {
	return func(ctx context.Context, x *examination, r metav1.APIResource) verdict {
		return x.ask.get(ctx, x.path(r, ""), name, value).refusal(http.StatusBadRequest)
	}
}
