package docs

import (
	"strings"
	"testing"
)

func TestWhatVariesIsNotCompared(t *testing.T) {
	for _, c := range []struct {
		shown, printed string
		same           bool
	}{
		{"shop   True   3y6d", "shop True  12s", true},
		{"since 2026-11-20T21:37:18Z", "since 2027-01-02T03:04:05Z", true},
		{"at 127.0.0.1:6443: 31× 503", "at 127.0.0.1:40123: 7× 503", true},
		{"refuse passed 31× 503   6.27 s", "refuse passed 30× 503, 1× 200   6.31 s", true},
		{"a annotated", "Warning: APIService v1.b.example.com is stale (the backend has not answered yet): its resources are left out\na annotated", true},
		{"a annotated", "Warning: APIService v1.b.example.com is stale (connection refused): its resources are left out\na annotated", false},
		{"shop   True   3s", "shop False 3s", false},
		{"Running", "Pending", false},
		{"one\n...\nfour", "one\ntwo\nthree\nfour", true},
		{"one\n...\nfour", "one\ntwo", false},
		{"hash=2EFB83B61D6D946BC6CAA9C...", "hash=0123456789ABCDEF0123456789ABCDEF", true},
		{"one", "one\ntwo", false},
		{"one\ntwo", "one", false},
	} {
		if err := compare(strings.Split(c.shown, "\n"), c.printed+"\n"); (err == nil) != c.same {
			t.Errorf("compare(%q, %q) = %v, want equal: %v", c.shown, c.printed, err, c.same)
		}
	}
}

func TestBlocksOfAPage(t *testing.T) {
	blocks, err := readPage(`# Page

Text.

    $ kubectl get \
        pods
    No resources

<!-- setup: one
two -->

<!-- file: f.yaml -->

    a: b

    c: d

1. A list.

   <!-- output varies: in a list -->

       $ kubectl get nodes
         NAME

<!-- not run: reason -->
` + "```\nmake ci\n```\n```go\nkubectl := 1\n```\n")
	if err != nil || len(blocks) != 5 {
		t.Fatalf("%d blocks, %v; want 5", len(blocks), err)
	}
	steps := blocks[0].steps()
	if !blocks[0].hasCommands() || len(steps) != 1 || steps[0].command != "kubectl get \\\n    pods" || len(steps[0].output) != 1 || blocks[0].line != 5 {
		t.Errorf("first block = %+v, want one command with one line of output in line 5", blocks[0])
	}
	if b := blocks[1]; b.hasCommands() || b.file != "f.yaml" || len(b.setups) != 1 || b.setups[0] != "one\ntwo" || len(b.text) != 3 {
		t.Errorf("second block = %+v, want the file f.yaml with a setup", b)
	}
	if b := blocks[2]; b.varies != "in a list" || len(b.steps()) != 1 || b.steps()[0].command != "kubectl get nodes" || b.steps()[0].output[0] != "  NAME" {
		t.Errorf("third block = %+v, want a command that varies in a list", b)
	}
	if b := blocks[3]; !b.hasCommands() || b.notRun != "reason" || len(b.steps()) != 1 {
		t.Errorf("fourth block = %+v, want a command that is not run", b)
	}
	if blocks[4].hasCommands() {
		t.Errorf("fifth block = %+v, want no commands", blocks[4])
	}
	for _, bad := range []string{"<!-- not run: reason -->\n\ntext\n", "<!-- with: word -->\n\n    a\n", "<!-- file:\n", "<!-- setup: a -->\n"} {
		if _, err := readPage(bad); err == nil {
			t.Errorf("readPage(%q) returned no error, want one", bad)
		}
	}
}
