package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestStatesAreColoured(t *testing.T) {
	for line, want := range map[string]string{
		"v1.x   shop/a:443   ok\n":                                  "v1.x   shop/a:443   " + green + "ok" + noColour + "\n",
		"v1.x   shop/a:443   broken at tcp   it refuses\n":          "v1.x   shop/a:443   " + red + "broken" + noColour + " at tcp   it refuses\n",
		"  tcp      failed   192.0.2.1 refuses, it is broken\n":     "  tcp      " + red + "failed" + noColour + "   192.0.2.1 refuses, it is broken\n",
		"yes: alice get pods in the whole cluster\n":                green + "yes" + noColour + ": alice get pods in the whole cluster\n",
		"no: bob get pods\n":                                        red + "no" + noColour + ": bob get pods\n",
		"no such thing is there\n":                                  "no such thing is there\n",
		"what is ok here is prose\n":                                "what is ok here is prose\n",
		"    ok, as far as it can be seen\n":                        "    " + green + "ok" + noColour + ", as far as it can be seen\n",
		"refuse   passed    0.32 s     0.86 s      36× 503   7 s\n": "refuse   " + green + "passed" + noColour + "    0.32 s     0.86 s      36× 503   7 s\n",
	} {
		if got := paint(line); got != want {
			t.Errorf("paint(%q) = %q, want %q", line, got, want)
		}
	}
}

// Text in pieces, as from a tabwriter, is coloured when the line is complete.
func TestSplitLineIsColoured(t *testing.T) {
	var out bytes.Buffer
	p := &painter{out: &out}
	for _, piece := range []string{"a   fai", "led\nb   o", "k"} {
		if n, err := p.Write([]byte(piece)); err != nil || n != len(piece) {
			t.Fatalf("Write(%q) = %d, %v; want %d and no error", piece, n, err, len(piece))
		}
	}
	p.flush()
	if want := "a   " + red + "failed" + noColour + "\nb   " + green + "ok" + noColour; out.String() != want {
		t.Errorf("painted output = %q, want %q", out.String(), want)
	}
}

// A file gets no colours, regardless of the environment.
func TestFileOutputHasNoColours(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	if w, _ := Colours(f); w != f {
		t.Errorf("Colours of a file = %T, want the file", w)
	}
}
