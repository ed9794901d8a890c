package locks

import (
	"math"
	"strings"
	"testing"
	"time"
)

// profile has entries of 3 addresses: one lock that 40 requests took through two of our functions, and a lock of each
// of two connections.
const profile = `--- mutex:
cycles/second=2095078563
sampling period=0
824635031552 30 @ 0x4a1b2c 0x4a1b3d 0x9c
#	0x4a1b2b	internal/sync.(*Mutex).Lock+0x2b	/go/src/internal/sync/mutex.go:63
#	0x4a1b3c	sync.(*Mutex).Lock+0x1c			/go/src/sync/mutex.go:46
#	0x9b	portico.dev/internal/audit.(*queue).enqueue+0x3b	/src/queue.go:76
#	0x9d	portico.dev/internal/server.(*requestAudit).end+0x3b	/src/audit.go:76

824635031552 10 @ 0x4a1b2c 0x4a1b3d 0x9c
#	0x4a1b2b	internal/sync.(*Mutex).Lock+0x2b	/go/src/internal/sync/mutex.go:63
#	0x4a1b3c	sync.(*Mutex).Lock+0x1c			/go/src/sync/mutex.go:46
#	0x9b	portico.dev/internal/audit.(*queue).enqueue+0x3b	/src/queue.go:76
#	0x9d	portico.dev/internal/server.other+0x3b	/src/audit.go:76

1 30 @ 0x1
#	0x4a1b2b	sync/atomic.(*Pointer[...]).Store+0x2b	/go/src/sync/atomic/type.go:63
#	0x4a1b3c	context.(*cancelCtx).propagateCancel+0x1c			/go/src/context/context.go:46
#	0x9b	portico.dev/internal/transport.(*Backend).RoundTrip+0x3b	/src/queue.go:76

2 10 @ 0x1
#	0x4a1b2b	sync/atomic.(*Pointer[...]).Store+0x2b	/go/src/sync/atomic/type.go:63
#	0x4a1b3c	context.(*cancelCtx).propagateCancel+0x1c			/go/src/context/context.go:46
#	0x9b	portico.dev/internal/transport.(*Backend).RoundTrip+0x3b	/src/queue.go:76
`

func TestWritesAreCountedByAddress(t *testing.T) {
	after, err := parse([]byte(profile))
	if err != nil {
		t.Fatal(err)
	}
	before, err := parse([]byte(strings.Replace(profile, "824635031552 30 @", "824635031552 20 @", 1)[:strings.Index(profile, "\n1 30")]))
	if err != nil {
		t.Fatal(err)
	}
	got := summarize("GET", 10, before, after)
	want := []Site{
		{Does: "atomic.(*Pointer).Store", At: "context.(*cancelCtx).propagateCancel", For: "transport.(*Backend).RoundTrip", Writes: 4, Busiest: 3, Addresses: 2},
		{Does: "sync.(*Mutex).Lock", At: "audit.(*queue).enqueue", For: "audit.(*queue).enqueue", Writes: 1, Busiest: 1, Addresses: 1},
	}
	if len(got.Sites) != len(want) || got.Sites[0] != want[0] || got.Sites[1] != want[1] || got.Shared != 4 {
		t.Errorf("got %+v, want %+v", got, want)
	}
	page, err := (&Report{Operations: []Operation{got}}).Markdown()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"10 times; 4.00 writes to shared addresses for each.",
		"| context.(*cancelCtx).propagateCancel | atomic.(*Pointer).Store | transport.(*Backend).RoundTrip | 4.00 | 3.00 | 2 |",
		"| audit.(*queue).enqueue | sync.(*Mutex).Lock |  | 1.00 | 1.00 | 1 |",
	} {
		if !strings.Contains(string(page), line+"\n") {
			t.Errorf("the page has no line %q:\n%s", line, page)
		}
	}
}

func TestRareWritesAreNotReported(t *testing.T) {
	of := write{place{does: "sync.(*Mutex).Lock", at: "apiservice.(*monitor).probe"}, 1}
	if got := summarize("GET", 100, nil, map[write]int{of: 4}); len(got.Sites) != 0 {
		t.Errorf("four writes in a hundred requests are reported: %+v", got.Sites)
	}
}

func TestWaitsAreDividedByCPU(t *testing.T) {
	after, err := parseWaits([]byte(strings.Replace(profile, "sync/atomic.(*Pointer[...]).Store", "runtime.selectgo", 2)))
	if err != nil {
		t.Fatal(err)
	}
	cycles := 2 * 824635031552.0 / 2095078563 // seconds
	got := summarizeWaits("GET", 10, time.Duration(4*cycles*float64(time.Second)), nil, after)
	if len(got.Sites) != 1 || got.Sites[0].At != "audit.(*queue).enqueue" || math.Abs(got.Sites[0].Part-0.25) > 0.001 || got.Part != got.Sites[0].Part {
		t.Errorf("waits = %+v, want a quarter of the CPU time for the audit queue", got)
	}
	if _, err := parseWaits([]byte("nothing")); err == nil {
		t.Error("a page without cycles/second is no error")
	}
}
