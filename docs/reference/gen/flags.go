package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// writeFlags lists the flags of every command of both programs as their help texts show them.
func writeFlags(p *page) error {
	p.heading(1, "Flags")
	p.text("Every command of both programs, with its flags. `--help` on a command shows the same.")
	dir, err := os.MkdirTemp("", "reference")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", dir, "./cmd/aggregator", "./cmd/extserver")
	build.Dir, build.Stderr = root, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the programs: %w", err)
	}
	for _, program := range []string{"aggregator", "extserver"} {
		w := flagWriter{page: p, dir: dir, flags: map[string][]flag{}}
		if err := w.write([]string{program}); err != nil {
			return err
		}
	}
	return nil
}

type flag struct{ name, kind, initial, usage string }

// long is the name without the one of a letter.
func (f flag) long() string { return f.name[strings.Index(f.name, "--"):] }

type flagWriter struct {
	*page
	dir   string
	flags map[string][]flag // by command, those with many
}

var (
	flagLine    = regexp.MustCompile(`^ +(?:(-\w), )?(--[\w-]+)(?: (\S+))? {2,}(\S.*)$`)
	defaultText = regexp.MustCompile(` \(default (.*)\)$`)
	commandLine = regexp.MustCompile(`^  ([\w-]+) +\S`)
)

// write lists command and those below it.
func (w *flagWriter) write(command []string) error {
	help := exec.Command(filepath.Join(w.dir, command[0]), append(command[1:len(command):len(command)], "--help")...)
	help.Env = []string{"HOME=/home/user"}
	out, err := help.Output()
	if err != nil {
		return fmt.Errorf("%s --help: %w", strings.Join(command, " "), err)
	}
	var (
		flags    []flag
		commands []string
		section  string
		usage    string
	)
	for line := range strings.Lines(string(out)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line != "" && line[0] != ' ' && strings.HasSuffix(line, ":"):
			section = line
		case section == "Usage:" && usage == "" && strings.TrimSpace(line) != "":
			usage = strings.TrimSpace(line)
		case section == "Flags:" || section == "Global Flags:" || strings.HasSuffix(section, " flags:"): // the last are groups
			m := flagLine.FindStringSubmatch(line)
			if m == nil || m[2] == "--help" {
				continue
			}
			f := flag{name: m[2], kind: m[3], usage: m[4]}
			if f.kind == "" {
				f.kind = "bool"
			}
			if m[1] != "" {
				f.name = m[1] + ", " + f.name
			}
			if d := defaultText.FindStringSubmatch(f.usage); d != nil {
				f.usage, f.initial = strings.TrimSuffix(f.usage, d[0]), d[1]
			}
			flags = append(flags, f)
		case usage != "" && section != "Usage:" && section != "Examples:": // a group of commands
			if m := commandLine.FindStringSubmatch(line); m != nil && m[1] != "help" && m[1] != "completion" {
				commands = append(commands, m[1])
			}
		}
	}
	slices.SortStableFunc(flags, func(a, b flag) int { return strings.Compare(a.long(), b.long()) })
	w.section(strings.Join(command, " "), usage, flags)
	slices.Sort(commands)
	for _, name := range commands {
		if err := w.write(append(command[:len(command):len(command)], name)); err != nil {
			return err
		}
	}
	return nil
}

func (w *flagWriter) section(command, usage string, flags []flag) {
	if len(flags) == 0 {
		if !strings.Contains(command, " ") {
			w.heading(2, command)
		}
		return
	}
	w.heading(2, command)
	w.text("    " + usage)
	const many = 20
	for other, theirs := range w.flags {
		rest := slices.DeleteFunc(slices.Clone(flags), func(f flag) bool { return slices.Contains(theirs, f) })
		if len(flags)-len(rest) >= many {
			w.text(fmt.Sprintf("It has the flags of `%s`, with the same defaults, and these:", other))
			flags = rest
			break
		}
	}
	if len(flags) >= many {
		w.flags[command] = flags
	}
	var rows [][]string
	for _, f := range flags {
		rows = append(rows, []string{code(f.name), f.kind, code(f.initial), prose(f.usage)})
	}
	w.table([]string{"flag", "type", "default", "description"}, rows)
}
