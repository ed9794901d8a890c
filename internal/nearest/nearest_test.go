package nearest

import "testing"

func TestWordIsTheMostSimilarOne(t *testing.T) {
	known := []string{"serve", "dev", "kubeconfig", "context", "config"}
	for _, c := range []struct{ situation, word, want string }{
		{"letters transposed", "sevre", "serve"},
		{"letter missing", "kubeconfg", "kubeconfig"},
		{"letter too many", "contextt", "context"},
		{"letter replaced", "sarve", "serve"},
		{"upper case", "Serve", "serve"},
		{"two mistakes in a long word", "kubconfing", "kubeconfig"},
		{"two mistakes in a short word", "dog", ""},
		{"unrelated word", "colour", ""},
		{"empty word", "", ""},
	} {
		if got := Word(c.word, known); got != c.want {
			t.Errorf("%s: Word(%q) = %q, want %q", c.situation, c.word, got, c.want)
		}
	}
}
