package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
	"k8s.io/apimachinery/pkg/util/validation"

	"portico.dev/internal/version"
)

// scaffold contains the files of a new module. Words in capital letters in them are replaced.
//
//go:embed scaffold
var scaffold embed.FS

// newModule describes a new module.
type newModule struct {
	dir, module, group, version, kind, plural string
	// source is the directory of a checkout of portico.dev. If it is empty, the module requires the release of this
	// program.
	source string
}

func initCommand() *cobra.Command {
	var m newModule
	c := &cobra.Command{
		Use:   "init DIR --group GROUP --kind KIND",
		Short: "Write a Go module with an extension server for one kind, its manifests and its tests",
		Long: `Write a Go module into DIR, which must be empty or not exist: a server that serves one kind, a deployment, a Containerfile, and
tests that run it behind a front door in the process of the test. The module requires portico.dev and nothing else of this
repository.

The module of a released program requires that release. The module of a program that was built in a checkout replaces portico.dev
by the checkout; --module-source names another one.`,
		Example: "  extserver init mailboxes --group mail.example.com --kind Mailbox",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			m.dir = args[0]
			if err := m.complete(); err != nil {
				return err
			}
			if err := m.write(); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "Wrote %s. Next:\n\n  cd %s\n  go mod tidy\n  go test ./...\n", m.dir, m.dir)
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&m.group, "group", "", "API group, a DNS subdomain that you own; required")
	f.StringVar(&m.kind, "kind", "", "kind, in CamelCase; required")
	f.StringVar(&m.version, "version", "v1alpha1", "version of the API")
	f.StringVar(&m.plural, "plural", "", "plural of the kind in URLs (default: derived from the kind)")
	f.StringVar(&m.module, "module", "", "path of the module (default: example.com/ followed by the name of DIR)")
	f.StringVar(&m.source, "module-source", "", "checkout of portico.dev that the module uses (default: the checkout in which this program was built; none for a release)")
	return c
}

var (
	kindPattern    = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	versionPattern = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)
)

func (m *newModule) complete() error {
	if m.plural == "" && m.kind != "" {
		m.plural = pluralOf(strings.ToLower(m.kind))
	}
	if m.module == "" {
		absolute, err := filepath.Abs(m.dir)
		if err != nil {
			return err
		}
		m.module = "example.com/" + strings.ToLower(filepath.Base(absolute))
	}
	switch {
	case len(validation.IsDNS1123Subdomain(m.group)) > 0 || !strings.Contains(m.group, "."):
		return fmt.Errorf("--group %q: it must be a DNS name with a dot, such as mail.example.com", m.group)
	case !kindPattern.MatchString(m.kind):
		return fmt.Errorf("--kind %q: it must be CamelCase, such as Mailbox", m.kind)
	case !versionPattern.MatchString(m.version):
		return fmt.Errorf("--version %q: it must be like v1, v1beta1 or v1alpha1", m.version)
	case len(validation.IsDNS1123Label(m.plural)) > 0:
		return fmt.Errorf("--plural %q: it must be in lower case, such as mailboxes", m.plural)
	}
	return m.completeSource()
}

// completeSource finds the checkout that the module uses.
func (m *newModule) completeSource() error {
	switch built := buildDirectory(); {
	case m.source != "":
		absolute, err := filepath.Abs(m.source)
		if err != nil {
			return err
		}
		if !isCheckout(absolute) {
			return fmt.Errorf("--module-source %q: it has no go.mod of the module portico.dev", m.source)
		}
		m.source = absolute
	case built != "":
		m.source = built
	case !semver.IsValid(version.Portico) || semver.Prerelease(version.Portico) != "":
		return fmt.Errorf("this program is not a release (%s), and the checkout in which it was built is unknown: name one with --module-source DIR", version.Portico)
	}
	return nil
}

// buildDirectory returns the checkout in which this program was built. It returns an empty string if there is none,
// or if the program was built with -trimpath.
func buildDirectory() string {
	_, file, _, ok := runtime.Caller(0)
	if dir := filepath.Join(filepath.Dir(file), "..", ".."); ok && filepath.IsAbs(file) && isCheckout(dir) {
		return dir
	}
	return ""
}

func isCheckout(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && modfile.ModulePath(text) == "portico.dev"
}

var (
	sibilantEnding = regexp.MustCompile(`(s|x|z|ch|sh)$`)
	yEnding        = regexp.MustCompile(`[^aeiou]y$`)
)

// pluralOf applies the rules of English that hold for most kinds.
func pluralOf(word string) string {
	switch {
	case sibilantEnding.MatchString(word):
		return word + "es"
	case yEnding.MatchString(word):
		return strings.TrimSuffix(word, "y") + "ies"
	}
	return word + "s"
}

// write creates the files. It fails without creating any if the directory is not empty.
func (m *newModule) write() error {
	entries, err := os.ReadDir(m.dir)
	if err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty; name a directory that is new", m.dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return err
	}
	name := strings.ReplaceAll(m.plural+"-"+m.group, ".", "-")
	words := strings.NewReplacer(
		"PORTICOVERSION", version.Portico, "MODULE", m.module, "GROUP", m.group, "VERSION", m.version, "KIND", m.kind,
		"newPLURAL", "new"+m.kind, "PLURAL", m.plural, "SINGULAR", strings.ToLower(m.kind), "NAME", name)
	files, err := scaffold.ReadDir("scaffold")
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := scaffold.ReadFile("scaffold/" + file.Name())
		if err != nil {
			return err
		}
		content := string(text)
		if m.source != "" {
			content = strings.Replace(content, "portico.dev PORTICOVERSION\n", "portico.dev v0.0.0\n\nreplace portico.dev => "+modfile.AutoQuote(m.source)+"\n", 1)
		}
		to := strings.TrimSuffix(file.Name(), ".txt")
		if to == "kind.go" {
			to = strings.ToLower(m.kind) + ".go"
		}
		if err := os.WriteFile(filepath.Join(m.dir, to), []byte(words.Replace(content)), 0o644); err != nil {
			return err
		}
	}
	return nil
}
