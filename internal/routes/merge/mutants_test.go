package merge

import (
	"testing"

	"portico.dev/internal/run/mutants"
)

// defects contains mutants that make a client miss an event, get it twice, or get data that the source does not own.
var defects = []mutants.Mutant{
	mutants.New("an event is dropped behind one of another source", "watch.go", "\t\ts.take(e)\n", "\t\tif e.source == 0 || !moved || s.out.Len() == 0 {\n\t\t\ts.take(e)\n\t\t}\n"),
	mutants.New("a position from before the objects moved is taken", "position.go", "\treturn fmt.Sprintf(\"1%0*d%s\", epochDigits, c.Epoch, c.sources())\n", "\treturn fmt.Sprintf(\"1%0*d%s\", epochDigits, 0, c.sources())\n"),
	mutants.New("a position has the resource version of the wrong source", "watch.go", "\t\ts.versions[e.source] = e.version\n", "\t\ts.versions[0] = e.version\n"),
	mutants.New("a position does not move on with events", "watch.go", "\t\ts.versions[e.source] = e.version\n", ""),
	mutants.New("a position has the resource versions in the wrong order", "position.go", "\tfor _, v := range versions {\n\t\tif !isNumber(v)", "\tfor i := range versions {\n\t\tv := versions[len(versions)-1-i]\n\t\tif !isNumber(v)"),
	mutants.New("the events of others are sent", "watch.go", "e.owned = w.Type != watch.Bookmark && from.Owns(about.Namespace)", "e.owned = w.Type != watch.Bookmark"),
	mutants.New("the objects of others are listed", "list.go", "\t\t\tif s.Owns(about.Namespace) {\n\t\t\t\tp.items", "\t\t\tif s.Owns(about.Namespace) || true {\n\t\t\t\tp.items"),
	mutants.New("a client gets no bookmarks", "watch.go", "\tif moved && s.query.bookmarks && s.kind != \"\" {\n", "\tif false {\n"),
	mutants.New("a watch that broke off begins where it began", "watch.go", "\t\t\tversion, more, err = s.readOnce(", "\t\t\t_, more, err = s.readOnce("),
	mutants.New("a source that has forgotten is watched from now on", "watch.go", "\t\tresp, err = s.open(ctx, source, version)\n", "\t\tif resp, err = s.open(ctx, source, version); err != nil {\n\t\t\tresp, err = s.open(ctx, source, \"\")\n\t\t}\n"),
	mutants.New("a source is listed at another version than the first part says", "list.go", "string(metav1.ResourceVersionMatchExact)}\n", "string(metav1.ResourceVersionMatchNotOlderThan)}\n"),
	mutants.New("a part of a list begins at the next source too early", "list.go", "if at.Continue = list.Metadata.Continue; at.Continue == \"\" {", "if at.Continue = list.Metadata.Continue; at.Continue == \"\" || q.limit == 1 {"),
	mutants.New("a part of a list begins again", "list.go", "ask := []string{\"continue\", at.Continue}\n", "ask := []string{\"continue\", \"\"}\n"),
	mutants.New("the watch begins from now on, and not at the list", "watch.go", "\t\ts.versions, s.apiVersion = p.versions, p.first.APIVersion\n", "\t\ts.versions, s.apiVersion = make([]string, len(p.versions)), p.first.APIVersion\n"),
	mutants.New("the initial events end before the last part", "watch.go", "\t\tif q.token = p.token; q.token == \"\" {\n\t\t\tbreak\n", "\t\tif q.token = p.token; true {\n\t\t\tbreak\n"),
	mutants.New("a resource version of a source counts as a position", "position.go", "\tif !ok || len(digits) != versionDigits*len(c.Sources) || !IsPosition(position) {\n\t\treturn nil, expired", "\tif isNumber(position) {\n\t\treturn []string{position, position}, nil\n\t}\n\tif !ok || len(digits) != versionDigits*len(c.Sources) || !IsPosition(position) {\n\t\treturn nil, expired"),
	mutants.New("an error of a source is left out", "watch.go", "\tcase watch.Error:\n\t\treturn e, &refusedError{source: from.Name, contentType: respond.MediaJSON, body: w.Object}\n", "\tcase watch.Error:\n\t\te.kind, e.version = watch.Bookmark, s.versions[source]\n\t\treturn e, nil\n"),
	mutants.New("a bookmark of a source is passed on", "watch.go", "\tcase !e.owned:\n\t\treturn\n", "\tcase !e.owned && e.kind != watch.Bookmark:\n\t\treturn\n"),
	mutants.New("lists and events have no bound", "budget.go", "b.bytes+n > b.max || b.users[user]+n > b.max/2", "false"),
	mutants.New("a list is not charged while it is read", "budget.go", "\treturn r.take(byteFactor * n)\n", "\treturn nil\n"),
	mutants.New("one user has all of the lists of a collection", "merge.go", "id+\"\\x00\"+user", "id+\"\\x00\""),
}

func TestMutants(t *testing.T) { mutants.Test(t, defects) }
