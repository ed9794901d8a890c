package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestInit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "boxes")
	out, err := execute(t, "init", dir, "--group=mail.example.com", "--kind=Mailbox")
	if err != nil || !strings.Contains(out, "go mod tidy") {
		t.Fatalf("init = %q, %v; want the next steps", out, err)
	}
	for file, want := range map[string]string{
		"go.mod": "module example.com/boxes\n\ngo 1.26.0\n\nrequire portico.dev v0.0.0\n\nreplace portico.dev => " + buildDirectory() + "\n", "mailbox.go": "newMailboxResource", "main.go": `ServiceName: "mailboxes-mail-example-com"`,
		"main_test.go": `Resources: []string{"mailboxes"}`, "deployment.yaml": "name: mailboxes-mail-example-com", "Containerfile": "COPY mailboxes-mail-example-com",
		"README.md": "`mailbox.go`",
	} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("generated %s has no %s, want it: %v\n%s", file, want, err, text)
		}
		for _, word := range []string{"KIND", "PLURAL", "GROUP", "MODULE", "NAME"} {
			if strings.Contains(string(text), word) {
				t.Errorf("generated %s has the placeholder %s, want none", file, word)
			}
		}
	}
	if _, err := execute(t, "init", dir, "--group=mail.example.com", "--kind=Mailbox"); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("second init: error = %v, want \"not empty\"", err)
	}
}

func TestInitRejectsInvalidArguments(t *testing.T) {
	for want, args := range map[string][]string{
		"--group": {"--group=mail", "--kind=Mailbox"}, "--kind": {"--group=mail.example.com", "--kind=mailbox"},
		"--version": {"--group=mail.example.com", "--kind=Mailbox", "--version=1"}, "--plural": {"--group=mail.example.com", "--kind=Mailbox", "--plural=Boxes"},
	} {
		dir := filepath.Join(t.TempDir(), "x")
		if _, err := execute(t, append([]string{"init", dir}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("init %v: error = %v, want %q", args, err, want)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("init %v wrote a directory, want none", args)
		}
	}
}

func TestInitWithModuleSourceReplacesTheModule(t *testing.T) {
	source := filepath.Join(t.TempDir(), "a checkout")
	if err := os.MkdirAll(source, 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "boxes")
	initModule := func() error {
		_, err := execute(t, "init", dir, "--group=mail.example.com", "--kind=Mailbox", "--module-source="+source)
		return err
	}
	if err := initModule(); err == nil || !strings.Contains(err.Error(), "--module-source") {
		t.Errorf("with a directory without go.mod: %v, want an error that names --module-source", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s was written, want nothing", dir)
	}
	if err := os.WriteFile(filepath.Join(source, "go.mod"), []byte("module portico.dev\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := initModule(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if want := `replace portico.dev => "` + source + `"`; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("go.mod is %q, %v, want it to contain %q", text, err, want)
	}
}
