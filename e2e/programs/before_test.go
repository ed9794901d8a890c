package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository is a module in a temporary repository.
type repository struct {
	t   *testing.T
	dir string
}

func newRepository(t *testing.T) *repository {
	t.Helper()
	r := &repository{t, t.TempDir()}
	r.git("init", "-q", "-b", "main")
	return r
}

func (r *repository) git(args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"}, args...)...)
	cmd.Dir = r.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v = %v: %s; want no error", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit writes files, of which empty ones are removed, commits them and returns the commit.
func (r *repository) commit(files map[string]string) string {
	r.t.Helper()
	for name, text := range files {
		r.write(name, text)
	}
	r.git("add", "--all")
	r.git("commit", "-q", "--allow-empty", "-m", "change")
	return r.git("rev-parse", "HEAD")
}

func (r *repository) write(name, text string) {
	r.t.Helper()
	file := filepath.Join(r.dir, name)
	err := os.Remove(file)
	if text != "" {
		if err = os.MkdirAll(filepath.Dir(file), 0o755); err == nil {
			err = os.WriteFile(file, []byte(text), 0o600)
		}
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func TestAProgramIsBuiltAsItWasAtACommit(t *testing.T) {
	r := newRepository(t)
	old := r.commit(map[string]string{
		"go.mod":           "module example.com/m\n\ngo 1.26\n",
		"main.go":          "package main\n\nimport \"example.com/m/changed\"\n\nfunc main() { print(changed.Text + \" \" + changed.More()) }\n",
		"changed/text.go":  "package changed\n\nimport _ \"embed\"\n\n//go:embed text\nvar Text string\n",
		"changed/text":     "as it was",
		"changed/gone.go":  "package changed\n\nimport \"example.com/m/dropped\"\n\nfunc More() string { return dropped.Word }\n",
		"dropped/word.go":  "package dropped\n\nconst Word = \"here\"\n",
		"same/same.go":     "package same\n",
		"testdata/x y.txt": "1",
	})
	r.commit(map[string]string{
		"changed/text":     "as it is",
		"changed/gone.go":  "",
		"changed/new.go":   "package changed\n\nfunc More() string { return \"new\" }\n",
		"dropped/word.go":  "",
		"testdata/x y.txt": "2",
	})
	r.write("changed/uncommitted.go", "package changed\n\nconst Uncommitted = Gone\n") // does not compile
	program := filepath.Join(t.TempDir(), "program")
	if err := BuildAt(r.dir, old, program, "."); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(program).CombinedOutput(); err != nil || string(out) != "as it was here" {
		t.Errorf("program of the old commit = %v, %q; want \"as it was here\"", err, out)
	}
	r.write("changed/uncommitted.go", "")
	if err := BuildAt(r.dir, "HEAD", program, "."); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(program).CombinedOutput(); err != nil || string(out) != "as it is new" {
		t.Errorf("program of HEAD = %v, %q; want \"as it is new\"", err, out)
	}
	if left, err := os.ReadDir(filepath.Dir(program)); err != nil || len(left) != 1 {
		t.Errorf("files in the program's directory = %v, %v; want only the program", left, err)
	}
}

func TestTheReleaseBefore(t *testing.T) {
	r := newRepository(t)
	is := func(want string) {
		t.Helper()
		got, err := CommitBefore(r.dir)
		if err != nil {
			t.Fatal(err)
		}
		if got = r.git("rev-parse", got+"^{commit}"); got != want {
			t.Errorf("the release before is %s, want %s", got, want)
		}
	}
	first := r.commit(nil)
	if got, err := CommitBefore(r.dir); err == nil || !strings.Contains(err.Error(), "no commit before") {
		t.Errorf("CommitBefore the first commit = %q, %v; want an error", got, err)
	}
	r.commit(nil)
	is(first)
	r.git("switch", "-q", "-c", "topic", "HEAD^")
	r.commit(nil)
	r.git("switch", "-q", "main")
	r.git("merge", "-q", "--no-ff", "-m", "merge", "topic")
	merge := r.git("rev-parse", "HEAD")
	is(r.git("rev-parse", "HEAD^")) // HEAD itself is the only merge
	r.commit(nil)
	is(merge)
	r.git("tag", "v0.1.0", first)
	is(first)
	r.git("tag", "v0.2.0") // the release in progress is not the release before
	is(first)
}
