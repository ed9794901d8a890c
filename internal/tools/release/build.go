package main

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// release is the state of one run.
type release struct {
	version, out, dir, baseURL string
	targets                    []target
	dirty                      bool
	key                        ed25519.PrivateKey // nil: nothing is signed
	say                        func(string, ...any)

	commit string
	date   time.Time // of the commit; nothing in a release depends on the time of the build
	files  []file
	images map[string][]platformImage // by program, in the order of the targets
}

// file is a file of the release.
type file struct {
	name   string
	sha256 string
	target *target // nil unless it is an archive
}

// attachments lists additional files of the archives, by program.
var attachments = map[string][]string{"kubectl-portico": {"deploy/kubectl/kubectl_complete-portico"}}

const sumsName = "SHA256SUMS"

// make builds all files into an empty directory.
func (r *release) make(ctx context.Context) error {
	if err := r.lookAtCommit(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	if there, err := os.ReadDir(r.out); err != nil || len(there) > 0 {
		return errors.Join(err, fmt.Errorf("%s is not empty: name another directory, or empty it", r.out))
	}
	r.images = map[string][]platformImage{}
	for i := range r.targets {
		r.say("%d of %d: %s", i+1, len(r.targets), r.targets[i])
		if err := r.build(ctx, &r.targets[i]); err != nil {
			return fmt.Errorf("%s: %w", r.targets[i], err)
		}
	}
	if err := r.writeImages(); err != nil {
		return err
	}
	if err := r.writeChart(); err != nil {
		return err
	}
	if err := r.writeNotes(); err != nil {
		return err
	}
	if r.baseURL != "" {
		if err := r.writeKrew(); err != nil {
			return err
		}
	}
	var sums strings.Builder
	slices.SortFunc(r.files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	for _, f := range r.files {
		fmt.Fprintf(&sums, "%s  %s\n", f.sha256, f.name)
	}
	if err := r.add(sumsName, []byte(sums.String()), nil); err != nil {
		return err
	}
	if r.key == nil {
		return nil
	}
	return r.writeProvenance()
}

// lookAtCommit reads the commit and its date, and checks for uncommitted changes.
func (r *release) lookAtCommit(ctx context.Context) error {
	changed, err := r.git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" && !r.dirty {
		return fmt.Errorf("files differ from the commit, so the build is not reproducible; commit them, or set -dirty:\n%s", changed)
	}
	if r.commit, err = r.git(ctx, "rev-parse", "HEAD"); err != nil {
		return err
	}
	if changed != "" {
		r.commit += "-dirty"
	}
	text, err := r.git(ctx, "log", "-1", "--format=%cI")
	if err != nil {
		return err
	}
	if r.date, err = time.Parse(time.RFC3339, text); err != nil {
		return fmt.Errorf("date of the commit: %w", err)
	}
	r.date = r.date.UTC()
	return nil
}

func (r *release) git(ctx context.Context, args ...string) (string, error) {
	return output(ctx, r.dir, nil, "git", args...)
}

func output(ctx context.Context, dir string, env []string, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// build creates the archive of a program and its bill of materials.
func (r *release) build(ctx context.Context, t *target) error {
	work, err := os.MkdirTemp("", "portico-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // it contains only copies of the archived files
	name := t.program
	if t.os == "windows" {
		name += ".exe"
	}
	binary := filepath.Join(work, name)
	const pkg = "portico.dev/internal/version."
	flags := fmt.Sprintf("-s -w -buildid= -X %[1]sPortico=%[2]s -X %[1]sCommit=%[3]s -X %[1]sDate=%[4]s", pkg, r.version, r.commit, r.date.Format(time.RFC3339))
	// Fix the settings from the environment that would affect the program.
	env := []string{"CGO_ENABLED=0", "GOOS=" + t.os, "GOARCH=" + t.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off"}
	if _, err := output(ctx, r.dir, env, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", binary, "./cmd/"+t.program); err != nil {
		return err
	}
	members := []member{}
	for _, path := range append([]string{binary, filepath.Join(r.dir, "LICENSE")}, r.attached(t.program)...) {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		members = append(members, member{filepath.Base(path), info.Mode()&0o111 != 0, data})
	}
	base := strings.Join([]string{t.program, r.version, t.os, t.arch}, "_")
	program, modules, err := r.modulesOf(t, binary, members[0].data)
	if err != nil {
		return err
	}
	list, err := r.billOfMaterials(program, modules, members[0].data)
	if err != nil {
		return err
	}
	if err := r.add(base+".cdx.json", list, nil); err != nil {
		return err
	}
	if _, ok := images[t.program]; ok && t.os == "linux" {
		made, err := r.buildImage(*t, members[0].data, members[1].data)
		if err != nil {
			return fmt.Errorf("image: %w", err)
		}
		r.images[t.program] = append(r.images[t.program], platformImage{*t, made, program, modules})
	}
	if t.os == "windows" {
		packed, err := zipOf(members, r.date)
		if err != nil {
			return err
		}
		return r.add(base+".zip", packed, t)
	}
	packed, err := tarOf(members, r.date)
	if err != nil {
		return err
	}
	return r.add(base+".tar.gz", packed, t)
}

func (r *release) attached(program string) (paths []string) {
	for _, path := range attachments[program] {
		paths = append(paths, filepath.Join(r.dir, path))
	}
	return paths
}

// add writes a file of the release.
func (r *release) add(name string, data []byte, of *target) error {
	sum := sha256.Sum256(data)
	r.files = append(r.files, file{name, hex.EncodeToString(sum[:]), of})
	return os.WriteFile(filepath.Join(r.out, name), data, 0o644)
}

// writeNotes writes the changelog section of the version, or the section Unreleased if it does not exist.
func (r *release) writeNotes() error {
	f, err := os.Open(filepath.Join(r.dir, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // the file was only read
	text, err := io.ReadAll(io.LimitReader(f, 8<<20))
	if err != nil {
		return err
	}
	notes, ok := section(string(text), strings.TrimPrefix(r.version, "v"))
	if !ok {
		if notes, ok = section(string(text), "Unreleased"); !ok {
			return fmt.Errorf("CHANGELOG.md has no section %s, and none that is called Unreleased", r.version)
		}
	}
	return r.add("NOTES.md", []byte("# "+r.version+"\n\n"+notes), nil)
}

// section returns the text below the second-level heading that begins with a name, with or without brackets and a v.
func section(text, name string) (string, bool) {
	var out strings.Builder
	within := false
	for line := range strings.Lines(text) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			if within {
				break
			}
			first, _, _ := strings.Cut(strings.TrimSpace(heading), " ")
			within = strings.TrimPrefix(strings.Trim(first, "[]"), "v") == name
			continue
		}
		if within {
			out.WriteString(line)
		}
	}
	return strings.TrimSpace(out.String()) + "\n", within || out.Len() > 0
}
