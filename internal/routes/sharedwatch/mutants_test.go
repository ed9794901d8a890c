package sharedwatch

import (
	"testing"

	"portico.dev/internal/run/mutants"
)

// defects are defects by which a client would lose an event, receive one twice, or receive a forbidden one.
var defects = []mutants.Mutant{
	mutants.New("an event is dropped when the ring is full", "history.go", "\th.frames = append(h.frames, e.frame)\n", "\tif len(h.frames) < h.maxFrames || e.bookmark {\n\t\th.frames = append(h.frames, e.frame)\n\t}\n"),
	mutants.New("who was left behind goes on with what there is", "history.go", "\t\treturn lines, errLeftBehind\n", "\t\tc.place = h.first\n"),
	mutants.New("a client continues with the event that it has", "history.go", "return cursor{place: h.first + int64(i) + 1}, nil", "return cursor{place: h.first + int64(i)}, nil"),
	mutants.New("a client continues after the event that comes next", "history.go", "\t\t\treturn cursor{place: h.first + int64(i)}, nil\n\t\t}\n\t}\n\t// It", "\t\t\treturn cursor{place: h.first + int64(i) + 1}, nil\n\t\t}\n\t}\n\t// It"),
	mutants.New("a client that is ahead gets what it has", "history.go", "return cursor{place: h.end(), has: version}, nil", "return cursor{place: h.end()}, nil"),
	mutants.New("a version from before the stream counts as its first", "history.go", "err != nil || order < 0 {", "err != nil || order < -9 {"),
	mutants.New("a deleted object stays among the objects", "history.go", "\tif e.kind != watch.Deleted {\n", "\tif true {\n"),
	mutants.New("objects that are ahead of the events go back", "history.go", "h.objects == nil || h.ahead != \"\" && hasReceived(e.version, h.ahead)", "h.objects == nil"),
	mutants.New("events that came before the objects were listed are not applied", "history.go", "for i := at.place - h.first; i < int64(len(h.frames)); i++ {", "for i := int64(len(h.frames)); i < int64(len(h.frames)); i++ {"),
	mutants.New("the end of the initial events has the version of the last event", "history.go", "o.Metadata.ResourceVersion, o.Metadata.Annotations = h.version,", "o.Metadata.ResourceVersion, o.Metadata.Annotations = h.latest(),"),
	mutants.New("who watches again begins where the stream began", "stream.go", "\t\tversion = t.latest()\n", ""),
	mutants.New("a server that has forgotten the version is watched on", "stream.go", "\t\tif e.status.Code == http.StatusGone {\n\t\t\treturn &expiredError{e.status.Message}\n\t\t}\n", ""),
	mutants.New("objects that may be older than a client asks for are sent", "watch.go", "!hasReceived(q.Version, t.history.version)", "false"),
	mutants.New("lists and objects have no bound", "budget.go", "\tcase alone > share(s.config.MaxBytes), s.bytes+n > s.config.MaxBytes:\n", "\tcase true:\n\t\treturn nil\n\tcase false:\n"),
	mutants.New("one user takes all of the memory", "budget.go", "s.users[user].bytes+n > share(s.config.MaxBytes)", "false"),
	mutants.New("one user has all of the streams", "watches.go", "s.users[q.User].streams >= share(s.config.MaxStreams)", "false"),
	mutants.New("one user has all of the lists", "budget.go", "slots.users[user] < share(s.config.MaxLists)", "true"),
	mutants.New("the stream that grows is cut", "budget.go", "\t\t\tuser = s.largestUser()\n", ""),
	mutants.New("what one user must not share is refused to all", "watches.go", "\t\t\tof.user = t.collection.User\n", "\t\t\tof.user = \"\"\n"),
	mutants.New("the first client's version is that of the stream", "stream.go", "\treturn t.history.base, err\n", "\tif t.collection.Version != \"\" {\n\t\tt.history.base = t.collection.Version\n\t}\n\treturn t.history.base, err\n"),
	mutants.New("a version of the future is shared", "watches.go", "!q.isInitial() && !t.hasReached(ctx, q.User, q.Version)", "false"),
	mutants.New("a stream goes on for nobody", "watches.go", "return t.clients == 0 && time.Since(t.abandoned) >= lingers", "return false"),
	mutants.New("clients stay when the APIRoute has changed", "stream.go", "t.watches.unwanted(t) || !t.collection.Current()", "t.watches.unwanted(t)"),
}

func TestMutants(t *testing.T) { mutants.Test(t, defects) }
