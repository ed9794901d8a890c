package programs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// BuildAt builds a package of the module in root as it was at a commit into a file.
//
// The go command compiles a package again when its directory is another one. So this is built in root, with an overlay that has the files of
// the commit in place of those that differ: only packages that differ, or import one that does, are compiled.
func BuildAt(root, commit, to, pkg string) error {
	dir, err := os.MkdirTemp(filepath.Dir(to), "before-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := overlayOf(root, commit, dir)
	if err != nil {
		return fmt.Errorf("the files of commit %s: %w", commit, err)
	}
	return (&builder{root: root, program: filepath.Base(to)}).build(root, nil, "-overlay", overlay, "-o", to, pkg)
}

// overlayOf writes the files of a commit that the tree in root has not, or has otherwise, into dir, and returns the go command's description
// of what they replace. Files that the commit has not are replaced by nothing.
func overlayOf(root, commit, dir string) (string, error) {
	// git writes to a file and not to a pipe: an error of either program is then that of one command.
	archive, tree := filepath.Join(dir, "tree.tar"), filepath.Join(dir, "tree")
	if err := os.Mkdir(tree, 0o700); err != nil {
		return "", err
	}
	for _, command := range [][]string{{"git", "-C", root, "archive", "--output", archive, commit}, {"tar", "-xf", archive, "-C", tree}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", command[0], err, out)
		}
	}
	replace := map[string]string{}
	for _, args := range [][]string{{"diff", "--name-only", "-z", "--no-renames", "--relative", commit}, {"ls-files", "-z", "--others", "--exclude-standard"}} {
		out, err := git(root, args...)
		if err != nil {
			return "", err
		}
		for name := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
			if name == "" {
				continue
			}
			old := filepath.Join(tree, name)
			if _, err := os.Lstat(old); errors.Is(err, fs.ErrNotExist) {
				old = ""
			} else if err != nil {
				return "", err
			}
			replace[filepath.Join(root, name)] = old
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// CommitBefore is the release before what is in root: the newest tag of a release before its commit, without one the newest merge before it,
// and without either its parent.
func CommitBefore(root string) (string, error) {
	if _, err := git(root, "rev-parse", "--quiet", "--verify", "HEAD^"); err != nil {
		return "", fmt.Errorf("this clone has no commit before its HEAD: %w", err)
	}
	// Without a tag, describe fails.
	if tag, err := git(root, "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^"); err == nil {
		return strings.TrimSpace(tag), nil
	}
	merge, err := git(root, "rev-list", "--first-parent", "--merges", "--max-count=1", "HEAD^")
	if err != nil {
		return "", err
	}
	if merge = strings.TrimSpace(merge); merge != "" {
		return merge, nil
	}
	return "HEAD^", nil
}

func git(root string, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-C", root}, args...)...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, complaints.String())
	}
	return string(out), nil
}
