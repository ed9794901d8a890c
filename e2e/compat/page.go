package compat

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// render returns the chapter, from the begin marker to the end marker.
func (b *Book) render() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	var to strings.Builder
	fmt.Fprintf(&to, "%s\n## %s\n", begin(b.title), b.title)
	for _, p := range b.parties {
		version := p.Version
		if p.Module != "" {
			if version, err = moduleVersion(filepath.Join(root, p.In), p.Module); err != nil {
				return "", err
			}
		}
		fmt.Fprintf(&to, "\n### %s\n\n", strings.TrimSpace(p.Name+" "+version))
		if p.Is != "" {
			fmt.Fprintf(&to, "%s\n\n", p.Is)
		}
		to.WriteString("| step | result | known difference |\n|---|---|---|\n")
		for _, s := range p.Steps {
			result := "pass"
			if s.Differs != "" {
				result = "differs"
			}
			fmt.Fprintf(&to, "| %s | %s | %s |\n", cell(s.What), result, cell(s.Differs))
		}
	}
	to.WriteString(end(b.title))
	return to.String(), nil
}

// cell escapes text for a cell of a table.
func cell(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "|", `\|`), "\n", " ") }

func begin(title string) string { return "<!-- begin " + title + " -->" }
func end(title string) string   { return "<!-- end " + title + " -->" }

// compare compares the chapter with that on the page, or replaces it if update is set. It locks the page, because tests of
// several packages run concurrently.
func compare(name, title, chapter string, update bool) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", name, err)
	}
	page, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	before, rest, begun := strings.Cut(string(page), begin(title))
	found, after, ended := strings.Cut(rest, end(title))
	if !begun || !ended {
		return fmt.Errorf("%s has no lines %q and %q: put them where the chapter belongs", name, begin(title), end(title))
	}
	if begin(title)+found+end(title) == chapter {
		return nil
	}
	if !update {
		return fmt.Errorf("chapter %q of %s differs from the tested steps: %w", title, name, errStale)
	}
	return os.WriteFile(name, []byte(before+chapter+after), 0o644)
}

func moduleRoot() (string, error) { return list("", "portico.dev", "{{.Dir}}") }

func moduleVersion(dir, module string) (string, error) { return list(dir, module, "{{.Version}}") }

func list(dir, module, format string) (string, error) {
	cmd := exec.Command("go", "list", "-m", "-f", format, module)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	answer := strings.TrimSpace(string(out))
	if err != nil || answer == "" {
		return "", fmt.Errorf("go list -m %s in %q: %w, answer %q", module, dir, err, answer)
	}
	return answer, nil
}
