package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// clone copies the last commit of this repository to a temporary directory.
func clone(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("git", "clone", "-q", "../../..", dir).CombinedOutput(); err != nil {
		t.Fatalf("git clone failed: %v: %s, want no error", err, out)
	}
	return dir
}

func newKey(t *testing.T) (private ed25519.PrivateKey, publicFile string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	publicFile = filepath.Join(t.TempDir(), "key.pub")
	if err := os.WriteFile(publicFile, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return private, publicFile
}

// contents are the files of a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(data)
	}
	return all
}

// Two users who build one commit in two directories with different settings get the same bytes. Verification needs only the
// key.
func TestBuildsOfOneCommitAreIdentical(t *testing.T) {
	skipUnlessBuilding(t)
	key, publicFile := newKey(t)
	here := target{"kubectl-portico", runtime.GOOS, runtime.GOARCH}
	var made [2]string
	for i := range made {
		if i == 1 {
			t.Setenv("GOFLAGS", "-buildvcs=true")
			t.Setenv("GOAMD64", "v3")
			t.Setenv("TZ", "Asia/Kathmandu")
		}
		made[i] = filepath.Join(t.TempDir(), "dist")
		r := release{version: "v9.8.7", out: made[i], dir: clone(t), baseURL: "https://example.com/releases/", targets: []target{here}, key: key, say: t.Logf}
		if err := r.make(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	first, second := contents(t, made[0]), contents(t, made[1])
	base := "kubectl-portico_v9.8.7_" + runtime.GOOS + "_" + runtime.GOARCH
	for _, name := range []string{base + ".tar.gz", base + ".cdx.json", "NOTES.md", "portico.yaml", "portico-9.8.7.tgz", sumsName, provenanceName} {
		if first[name] == "" || first[name] != second[name] {
			t.Errorf("%s has %d and %d bytes in two builds, want equal files", name, len(first[name]), len(second[name]))
		}
	}
	if len(first) != 7 {
		t.Errorf("%d files, want 7", len(first))
	}
	checkChart(t, first["portico-9.8.7.tgz"])

	program := unpack(t, first[base+".tar.gz"])
	commit, err := output(t.Context(), "../../..", nil, "git", "rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{"kubectl portico version v9.8.7": {"--version"}, `"gitCommit": "` + commit + `"`: {"version", "-o", "json"}} {
		if out, err := exec.Command(program, args...).Output(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("output of %q = %v: %s; want %q", args, err, out, want)
		}
	}
	var list bom
	if err := json.Unmarshal([]byte(first[base+".cdx.json"]), &list); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(first[base+".cdx.json"], `"pkg:golang/github.com/spf13/cobra@v`) || list.Components[0].Name != "std" || len(list.Components) < 30 || len(list.Dependencies) != len(list.Components)+1 {
		t.Errorf("SBOM = %s, want the modules and their dependencies", first[base+".cdx.json"])
	}
	if !strings.Contains(first["portico.yaml"], "uri: https://example.com/releases/"+base+".tar.gz\n") {
		t.Errorf("krew manifest = %s, want the URI of the archive", first["portico.yaml"])
	}

	public, err := readPublicKey(publicFile)
	if err != nil {
		t.Fatal(err)
	}
	if s, n, err := verify(made[0], public, nil); err != nil || n != 6 || s.Predicate.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"] != commit {
		t.Errorf("verify = %d files, %v: %+v; want 6 files and the commit", n, err, s)
	}
	if _, n, err := verify(made[0], public, []string{base + ".tar.gz"}); err != nil || n != 1 {
		t.Errorf("verify of one file = %d, %v; want 1 and no error", n, err)
	}
	refused := func(what, dir string, key ed25519.PublicKey) {
		t.Helper()
		_, _, err := verify(dir, key, nil)
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("verify error = %v, want %q", err, what)
		}
	}
	_, otherFile := newKey(t)
	other, err := readPublicKey(otherFile)
	if err != nil {
		t.Fatal(err)
	}
	refused("is not signed by this key", made[0], other)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(made[1], name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("virus.exe", "x")
	refused("virus.exe is no file of the release", made[1], public)
	write("NOTES.md", second["NOTES.md"]+"x")
	refused("NOTES.md is not as it was signed", made[1], public)
	if err := os.Remove(filepath.Join(made[1], sumsName)); err != nil {
		t.Fatal(err)
	}
	refused("no such file", made[1], public)
	write(provenanceName, strings.Replace(second[provenanceName], `"payload": "`, `"payload": "AAAA`, 1))
	refused("is not signed by this key", made[1], public)
}

// unpack returns the program in an archive.
func unpack(t *testing.T, archive string) string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	program := filepath.Join(t.TempDir(), "program")
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.FileInfo().Mode().String()+" "+h.Name)
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if len(names) == 1 {
			if err := os.WriteFile(program, data, 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, want := strings.Join(names, ", "), "-rwxr-xr-x kubectl-portico, -rw-r--r-- LICENSE, -rwxr-xr-x kubectl_complete-portico"; got != want {
		t.Errorf("the archive has %s, want %s", got, want)
	}
	return program
}

// checkChart looks into the package of the chart.
func checkChart(t *testing.T, archive string) {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	alerts, err := os.ReadFile("../../../deploy/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range untar(t, z) {
		files[f.Name] = string(f.data)
	}
	if c := files["portico/Chart.yaml"]; !strings.Contains(c, "\nversion: 9.8.7\nappVersion: v9.8.7\n") {
		t.Errorf("Chart.yaml = %s, want the version", c)
	}
	if files["portico/files/alerts.yaml"] != string(alerts) {
		t.Errorf("alerts.yaml of the packaged chart = %q, want the shipped rules", files["portico/files/alerts.yaml"])
	}
}

func TestUncleanTreeAndInvalidArgumentsAreRejected(t *testing.T) {
	dir := clone(t)
	if err := os.WriteFile(filepath.Join(dir, "new.go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := release{version: "v1.0.0", out: filepath.Join(t.TempDir(), "dist"), dir: dir, say: t.Logf}
	if err := r.make(t.Context()); err == nil || !strings.Contains(err.Error(), "new.go") {
		t.Errorf("make with an uncommitted file: error = %v, want one that names new.go", err)
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "something"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r = release{version: "v1.0.0", out: full, dir: dir, dirty: true, say: t.Logf}
	if err := r.make(t.Context()); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("make into a directory that is not empty: error = %v, want \"is not empty\"", err)
	}
	for want, args := range map[string][]string{
		`"1.0" is not a version`: {"-version", "1.0"}, `there is no "extserver/windows/amd64"`: {"-version", "v1.0.0", "-only", "extserver/windows/amd64"},
		"usage: release verify": {"verify", "dist"}, "has no PEM block": {"-version", "v1.0.0", "-sign-key", "main.go"},
	} {
		if err := run(context.Background(), args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("release %q: error = %v, want %q", args, err, want)
		}
	}
}

func TestChangelogSectionBecomesReleaseNotes(t *testing.T) {
	const log = "# Changelog\n\n## Unreleased\n\n- new\n\n## [1.2.0] - 2026-01-02\n\n### Added\n- a\n\n## 1.1.0\n- b\n"
	for name, want := range map[string]string{"1.2.0": "### Added\n- a\n", "1.1.0": "- b\n", "Unreleased": "- new\n"} {
		if got, ok := section(log, name); !ok || got != want {
			t.Errorf("section(%s) = %q, %t; want %q", name, got, ok, want)
		}
	}
	if got, ok := section(log, "1.0.0"); ok {
		t.Errorf("section of a version that does not exist = %q, want none", got)
	}
}

func TestZip(t *testing.T) {
	members := []member{{"a.exe", true, []byte("program")}, {"LICENSE", false, []byte("text")}}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	packed, err := zipOf(members, at)
	if err != nil {
		t.Fatal(err)
	}
	r, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil || len(r.File) != 2 || r.File[0].Name != "a.exe" || !r.File[1].Modified.Equal(at) {
		t.Errorf("zip = %v, %+v; want 2 files, the first a.exe, with the commit's time", err, r)
	}
}
