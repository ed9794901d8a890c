package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each image contains one static program without a base image and runs as a numeric user, and the file does not name the
// registry of the builder image.
func TestImagesAreBare(t *testing.T) {
	t.Parallel()
	stages := map[string]string{}
	name := ""
	from := regexp.MustCompile(`^FROM (\S+) AS (\w+)$`)
	for _, line := range strings.Split(readFile(t, "../../deploy/container/Containerfile"), "\n") {
		if strings.HasPrefix(line, "FROM ") {
			match := from.FindStringSubmatch(line)
			if match == nil {
				t.Fatalf("line %q is not a stage with a name, want one", line)
			}
			name = match[2]
			if want := map[string]string{"build": "${BUILDER}"}[name]; match[1] != want && match[1] != "scratch" {
				t.Errorf("base image of the stage %s = %s, want the builder or scratch", name, match[1])
			}
		}
		if strings.HasPrefix(line, "ARG ") && strings.ContainsAny(line, "/@") {
			t.Errorf("argument %q contains a registry or a digest, want neither: the builder sets both", line)
		}
		stages[name] += line + "\n"
	}
	if !strings.Contains(stages["build"], "CGO_ENABLED=0 go build") {
		t.Error("the stage build has no CGO_ENABLED=0, want a build without C")
	}
	for _, stage := range []string{"aggregator", "extserver"} {
		text := stages[stage]
		for _, want := range []string{"\nUSER 65532:65532\n", "/etc/ssl/certs/ca-certificates.crt", "\nENTRYPOINT [\"/" + stage + "\"]\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("image %s has no %q, want it", stage, want)
			}
		}
		if strings.Contains(text, "\nRUN ") || strings.Contains(text, "\nADD ") {
			t.Errorf("image %s has RUN or ADD, want neither on scratch", stage)
		}
	}
}

// No package of this module or of its dependencies uses cgo. A build without C is therefore complete, and needs no dynamic
// linker, which scratch does not have.
func TestProgramsNeedNoC(t *testing.T) {
	t.Parallel()
	list := exec.Command("go", "list", "-deps", "-f", "{{if and .CgoFiles (not .Standard)}}{{.ImportPath}}{{end}}", "./cmd/...")
	list.Dir, list.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=1")
	out, err := list.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "" {
		t.Errorf("packages with C = %v: %s, want none", err, out)
	}
}
