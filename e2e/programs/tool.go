package programs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// tool is a program that a module below the root pins with a tool directive. The go command keeps such programs linked in its
// cache, so that building one again costs nothing; `go tool -n` builds it and prints where it is.
func tool(dir, pkg string) recipe {
	return func(root, to string) error {
		cmd := exec.Command("go", "tool", "-n", pkg)
		cmd.Dir, cmd.Env = filepath.Join(root, dir), append(os.Environ(), "GOWORK=off")
		var complaints strings.Builder
		cmd.Stderr = &complaints
		out, err := cmd.Output()
		if err != nil {
			return errors.Join(fmt.Errorf("go tool -n %s: %w", pkg, err), errors.New(complaints.String()))
		}
		built := strings.TrimSpace(string(out))
		if info, err := os.Stat(built); err != nil || info.IsDir() {
			return fmt.Errorf("go tool -n %s said %q, which is no program", pkg, built)
		}
		return os.Symlink(built, to)
	}
}
