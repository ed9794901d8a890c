//go:build incumbent

package behind

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"portico.dev/e2e/behind/cluster"
)

// The front door does not affect an examination: the card of sample-apiserver behind kube-apiserver is the same as the one that
// was recorded behind Portico.
func TestConformance(t *testing.T) {
	k := control(t, false)
	port := sample(t, k)
	examine := func(args ...string) outcome {
		return runProgram(t, k.Kubeconfig, "", "aggregator", append([]string{"conformance"}, args...)...)
	}
	out := examine("url", fmt.Sprintf("https://127.0.0.1:%d", port), "--insecure-skip-tls-verify", "--kubeconfig", k.Kubeconfig, "--write", "--rotate",
		"--client-certificate", k.Keys().Path("front-proxy-client.crt"), "--client-key", k.Keys().Path("front-proxy-client.key"))
	recorded, err := os.ReadFile(filepath.Join("..", "..", "internal", "tools", "conformance", "scores", "sample-apiserver-v0.37.2.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := marks(out.stdout), marks(string(recorded)); got != want || got == "" {
		t.Errorf("card =\n%s\nwant the marks of\n%s", out, recorded)
	}
	for _, name := range []string{"v1alpha1." + wardle, "v1beta1." + wardle} {
		out := examine("apiservice", name, "--write")
		t.Log(out)
		m := score.FindStringSubmatch(out.stdout)
		if m == nil {
			t.Errorf("conformance of %s = %s, want a score", name, out)
			continue
		}
		book.scored("sample-apiserver v0.37.2", name, m[1]+"/"+m[2])
	}
}

// sample starts sample-apiserver with its defaults behind a kube-apiserver, and returns where it listens.
func sample(t *testing.T, k *cluster.Cluster) int {
	t.Helper()
	port, _ := sampleAt(t, k.Kubeconfig, "localhost")
	return port
}

// marks returns a card's mark for each check.
func marks(card string) string {
	var b strings.Builder
	for _, m := range markLine.FindAllStringSubmatch(card, -1) {
		b.WriteString(m[1] + " " + m[2] + "\n")
	}
	return b.String()
}

var markLine = regexp.MustCompile(`(?m)^  (pass|warn|FAIL|-)\s+([a-z0-9-]+) `)
