package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The images are one static program each, on nothing, run by nobody, and nothing in the file says which registry the
// builder comes from.
func TestImagesAreBare(t *testing.T) {
	t.Parallel()
	stages := map[string]string{}
	name := ""
	from := regexp.MustCompile(`^FROM (\S+) AS (\w+)$`)
	for _, line := range strings.Split(readFile(t, "../../deploy/container/Containerfile"), "\n") {
		if strings.HasPrefix(line, "FROM ") {
			match := from.FindStringSubmatch(line)
			if match == nil {
				t.Fatalf("%q is not a stage with a name", line)
			}
			name = match[2]
			if want := map[string]string{"build": "${BUILDER}"}[name]; match[1] != want && match[1] != "scratch" {
				t.Errorf("stage %s begins with %s", name, match[1])
			}
		}
		if strings.HasPrefix(line, "ARG ") && strings.ContainsAny(line, "/@") {
			t.Errorf("%q names a registry or a digest; both are whose who builds", line)
		}
		stages[name] += line + "\n"
	}
	if !strings.Contains(stages["build"], "CGO_ENABLED=0 go build") {
		t.Error("the programs are not built without C")
	}
	for _, stage := range []string{"aggregator", "extserver"} {
		text := stages[stage]
		for _, want := range []string{"\nUSER 65532:65532\n", "/etc/ssl/certs/ca-certificates.crt", "\nENTRYPOINT [\"/" + stage + "\"]\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("image %s has no %q", stage, want)
			}
		}
		if strings.Contains(text, "\nRUN ") || strings.Contains(text, "\nADD ") {
			t.Errorf("image %s runs something while it is built: on scratch there is nothing to run", stage)
		}
	}
}

// What the builder makes without C is all there is: no package of ours or of others is written in it, so a build without C is
// whole, and needs no dynamic linker, which scratch has not.
func TestProgramsNeedNoC(t *testing.T) {
	t.Parallel()
	list := exec.Command("go", "list", "-deps", "-f", "{{if and .CgoFiles (not .Standard)}}{{.ImportPath}}{{end}}", "./cmd/...")
	list.Dir, list.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=1")
	out, err := list.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "" {
		t.Errorf("packages with C: %v: %s", err, out)
	}
}
