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

// BuildAt builds a package of the module in root, as of a commit, into a file.
//
// The go command recompiles a package if its directory changes. Therefore BuildAt builds in root, with an overlay
// that replaces the files that differ from the commit. Only packages that differ, or import one that does, are
// compiled.
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

// overlayOf writes the files of a commit that are missing or different in root to dir, and returns the go command's
// description of the replacements. Files that the commit does not contain are replaced with nothing.
func overlayOf(root, commit, dir string) (string, error) {
	// git writes to a file and not to a pipe, so that each error belongs to one command.
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

// CommitBefore returns the commit of the previous release: the newest release tag before HEAD. Without a tag it is
// the newest merge before HEAD, and otherwise the parent of HEAD.
func CommitBefore(root string) (string, error) {
	if _, err := git(root, "rev-parse", "--quiet", "--verify", "HEAD^"); err != nil {
		return "", fmt.Errorf("this clone has no commit before its HEAD: %w", err)
	}
	// describe fails without a tag.
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
