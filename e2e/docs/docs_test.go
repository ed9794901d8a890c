package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"portico.dev/e2e/programs"
	"portico.dev/internal/run/freeport"
)

var binaries string

func TestMain(m *testing.M) {
	os.Exit(programs.Main(m, &binaries, "aggregator", "extserver", "kubectl-portico", "kubectl", "etcdctl"))
}

const root = "../.."

// pages are the pages with commands, relative to root: those at the root, those below docs except for the generated reference, and
// those beside the code.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"README.md", "CONTRIBUTING.md"}
	for _, pattern := range []string{"docs/*.md", "internal/*/README.md", "e2e/*/README.md"} {
		found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil || len(found) == 0 {
			t.Fatalf("pages %s: error %v, want at least one page", pattern, err)
		}
		for _, file := range found {
			name, err := filepath.Rel(root, file)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, name)
		}
	}
	return all
}

func TestEveryCommandOfThePages(t *testing.T) {
	for _, name := range pages(t) {
		t.Run(strings.TrimSuffix(name, ".md"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join(root, name))
			if err != nil {
				t.Fatal(err)
			}
			blocks, err := readPage(string(text))
			if err != nil {
				t.Fatalf("page %s:%v, want a valid page", name, err)
			}
			runPage(t, name, blocks)
		})
	}
}

func runPage(t *testing.T, name string, blocks []block) {
	var p *page // started when there is something to run
	ran, left := 0, 0
	for i := range blocks {
		b := &blocks[i]
		switch {
		case b.notRun != "" && (b.file != "" || len(b.setups) > 0 || b.varies != ""):
			t.Errorf("%s:%d: the block that is not run has other comments, want none", name, b.line)
		case b.notRun != "" && !b.hasCommands():
			t.Errorf("%s:%d: the block has no commands, want no comment that it is not run", name, b.line)
		case b.notRun != "":
			left += len(b.steps())
		case b.file == "" && !b.hasCommands() && len(b.setups) == 0:
		default:
			if p == nil {
				p = startPage(t, name)
			}
			ran += p.run(t, b)
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d commands were run, %d are marked as not run", ran, left)
}

// page is a page with the state of its commands.
type page struct {
	name  string
	dir   string
	shell *shell
	// words are the placeholders that the page's comments have defined so far.
	words [][2]string
}

// ports are for pages that name a port.
var ports freeport.Ports

// freePort is the placeholder value for a free port.
const freePort = "free-port"

func (p *page) replace(text string) string {
	for _, w := range p.words {
		text = strings.ReplaceAll(text, w[0], w[1])
	}
	return text
}

// wrapper gives a server a free port, unless the page names one.
const wrapper = `#!/bin/sh
case "$1:$*" in
*--secure-port*) ;;
serve:* | dev:*) first=$1; shift; set -- "$first" --secure-port 0 "$@" ;;
esac
exec "%s" "$@"
`

func startPage(t *testing.T, name string) *page {
	t.Helper()
	dir, tools := t.TempDir(), t.TempDir()
	for _, program := range []string{"aggregator", "extserver"} {
		if err := os.WriteFile(filepath.Join(tools, program), fmt.Appendf(nil, wrapper, filepath.Join(binaries, program)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	_, kubeconfig := programs.Dev(t, binaries, tools)
	admin, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "admin.kubeconfig"), admin, 0o600); err != nil {
		t.Fatal(err)
	}
	repository, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	path := strings.Join([]string{tools, binaries, filepath.Join(repository, "deploy", "kubectl"), os.Getenv("PATH")}, string(os.PathListSeparator))
	env := []string{
		"PATH=" + path, "HOME=" + dir, "KUBECONFIG=" + filepath.Join(dir, "admin.kubeconfig"), "LC_ALL=C",
		"REPOSITORY=" + repository, "DATA=" + filepath.Dir(kubeconfig),
	}
	// The compiler's cache and the module cache are below another home directory.
	out, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatalf("go env failed: %v, want no error", err)
	}
	if dirs := strings.Fields(string(out)); len(dirs) == 2 {
		env = append(env, "GOCACHE="+dirs[0], "GOMODCACHE="+dirs[1])
	}
	return &page{name: name, dir: dir, shell: startShell(t, dir, env)}
}

func (p *page) run(t *testing.T, b *block) (ran int) {
	t.Helper()
	for _, w := range b.words {
		if w[1] == freePort {
			port, err := ports.Free()
			if err != nil {
				t.Fatal(err)
			}
			w[1] = strconv.Itoa(port)
		}
		w[1] = strings.ReplaceAll(w[1], "$PWD", p.dir)
		p.words = append(p.words, w)
	}
	for _, setup := range b.setups {
		setup = p.replace(setup)
		if err := p.setUp(setup); err != nil {
			t.Fatalf("%s:%d: setup %s failed: %v, want no error", p.name, b.line, setup, err)
		}
	}
	if b.file != "" {
		name := b.file
		if !filepath.IsAbs(name) {
			name = filepath.Join(p.dir, name)
		}
		if err := os.WriteFile(name, []byte(p.replace(strings.Join(b.text, "\n")+"\n")), 0o600); err != nil {
			t.Fatalf("%s:%d: writing the file failed: %v, want no error", p.name, b.line, err)
		}
		return 0
	}
	if !b.hasCommands() {
		t.Fatalf("%s:%d: the block has no commands, want some", p.name, b.line)
	}
	for _, s := range b.steps() {
		command, output := p.replace(s.command), s.output
		for i := range output {
			output[i] = p.replace(output[i])
		}
		if b.varies != "" {
			output = nil
		}
		var err error
		if serves(command) && output == nil {
			err = p.shell.serve(command)
		} else {
			err = p.compare(command, output, fails(s.output))
		}
		if err != nil {
			t.Fatalf("page %s:%d: command %s: %v, want the output of the page", p.name, s.line, command, err)
		}
		ran++
	}
	return ran
}

// setUp runs commands that the page does not show. Servers stay in the background. "stop" stops the server that was started
// last, or the last one whose command has the given prefix. Commands that begin with "until" are repeated.
func (p *page) setUp(commands string) error {
	switch {
	case serves(commands):
		return p.shell.serve(commands)
	case commands == "stop":
		return p.shell.stop("")
	}
	if rest, ok := strings.CutPrefix(commands, "stop "); ok {
		return p.shell.stop(rest)
	}
	if rest, ok := strings.CutPrefix(commands, "until "); ok {
		return eventually(func() error { return p.compare(rest, nil, false) })
	}
	return p.compare(commands, nil, false)
}

// endless begins a command that runs until it is stopped.
var endless = regexp.MustCompile(`^(aggregator (serve|dev)|extserver serve)\b|^(aggregator|kubectl portico) console$|^aggregator front( --[a-z-]+ \S+)*$`)

func serves(command string) bool {
	return endless.MatchString(command) && !strings.Contains(command, " -- ")
}

// reads matches commands that change nothing, and may be repeated until their output matches.
var reads = regexp.MustCompile(`^(kubectl (-\S+ \S+ )*(get|describe|top|api-resources|explain|wait|auth|portico (doctor|why|route))|aggregator (doctor|why|route|debts|member list|token list)|curl|ask|grep|ls)\b`)

func (p *page) compare(command string, output []string, fail bool) error {
	once := func() error {
		printed, status, err := p.shell.run(command)
		switch {
		case err != nil:
			return fmt.Errorf("%w: %s", err, printed)
		case (status != 0) != fail:
			return fmt.Errorf("exit status %d: %s", status, printed)
		case output == nil:
			return nil
		}
		return compare(output, printed)
	}
	if !reads.MatchString(command) {
		return once()
	}
	return eventually(once)
}
