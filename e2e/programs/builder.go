package programs

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// builder runs the go command for one program.
type builder struct {
	root     string    // of our module
	program  string    // its name
	progress io.Writer // may be nil
	compiled int
}

// build runs `go build` in a directory, with additional environment variables. The last argument is the package.
func (b *builder) build(dir string, env []string, args ...string) error {
	command := func(args ...string) *exec.Cmd {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "GOWORK=off"), env...)
		return cmd
	}
	// With -v, the go command prints each package that it compiles. Other output concerns a failure.
	cmd := command(append([]string{"build", "-v", "-buildvcs=false"}, args...)...)
	var complaints bytes.Buffer
	all := 0
	if b.progress != nil {
		deps, err := command("list", "-deps", args[len(args)-1]).Output()
		if err != nil {
			return fmt.Errorf("list what %s is made of: %w", b.program, err)
		}
		all = bytes.Count(deps, []byte("\n"))
		b.show("")
	}
	out, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if line := lines.Text(); strings.ContainsAny(line, " :#") || line == "" {
			complaints.WriteString(line + "\n")
			continue
		}
		b.compiled++
		if b.progress != nil {
			b.show(fmt.Sprintf(": %d of %d packages compiled", b.compiled, all))
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("go build %s in %s: %w\n%s", strings.Join(args, " "), dir, err, complaints.String())
	}
	return nil
}

// show replaces the text after the name of the program.
func (b *builder) show(what string) {
	fmt.Fprintf(b.progress, "\r%s%s", b.program, what)
}

// end completes the line.
func (b *builder) end(err error) {
	switch {
	case b.progress == nil:
	case err != nil:
		b.show(": failed\x1b[K\n")
	default:
		b.show(": built\x1b[K\n")
	}
}
