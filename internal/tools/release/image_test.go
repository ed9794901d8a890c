package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// An image has all platforms of its program, in an archive that is an OCI layout and is identical for every build. It contains
// the program and no operating system.
func TestImagesHaveAllPlatformsAndAreReproducible(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var outs [2]string
	for i := range outs {
		outs[i] = t.TempDir()
		r := release{version: "v1.2.3", out: outs[i], commit: "abc", date: at, images: map[string][]platformImage{}}
		for _, arch := range []string{"amd64", "arm64"} {
			for _, program := range []string{"aggregator", "extserver"} {
				is := target{program, "linux", arch}
				made, err := r.buildImage(is, []byte("program for "+arch), []byte("license"))
				if err != nil {
					t.Fatal(err)
				}
				binary := component{Type: "application", Ref: is.String(), Name: program}
				r.images[program] = append(r.images[program], platformImage{is, made, binary, []component{module("std", "1.26.0")}})
			}
		}
		if err := r.writeImages(); err != nil {
			t.Fatal(err)
		}
	}
	first, second := contents(t, outs[0]), contents(t, outs[1])
	for _, program := range []string{"aggregator", "extserver"} {
		for _, name := range []string{program + "_v1.2.3_image.tar", program + "_v1.2.3_image.cdx.json", imagesName} {
			if first[name] == "" || first[name] != second[name] {
				t.Errorf("%s has %d and %d bytes in two builds, want equal files", name, len(first[name]), len(second[name]))
			}
		}
		index, digest := openImage(t, first[program+"_v1.2.3_image.tar"], "v1.2.3")
		if want := fmt.Sprintf("%s  %s_v1.2.3_image.tar\n", digest, program); !strings.Contains(first[imagesName], want) {
			t.Errorf("file %s = %q, want %q", imagesName, first[imagesName], want)
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		if manifest.MediaType != types.OCIImageIndex || len(manifest.Manifests) != 2 || manifest.Annotations["org.opencontainers.image.version"] != "v1.2.3" {
			t.Errorf("index of the image = %+v, want an OCI index of two platforms and the version", manifest)
		}
		for i, arch := range []string{"amd64", "arm64"} {
			d := manifest.Manifests[i]
			if d.Platform.String() != "linux/"+arch || d.MediaType != types.OCIManifestSchema1 {
				t.Errorf("manifest %d = %+v, want linux on amd64 or arm64", i, d)
			}
			made, err := index.Image(d.Digest)
			if err != nil {
				t.Fatal(err)
			}
			checkImage(t, made, program, arch, at)
		}
		var list bom
		if err := json.Unmarshal([]byte(first[program+"_v1.2.3_image.cdx.json"]), &list); err != nil {
			t.Fatal(err)
		}
		about := list.Metadata.Component
		if about.Type != "container" || about.PURL != "pkg:oci/"+program+"@sha256%3A"+digest.Hex || about.Hashes[0].Content != digest.Hex {
			t.Errorf("component of the SBOM = %+v, want the image and its digest", about)
		}
		var refs []string
		for _, c := range list.Components {
			ref, _, _ := strings.Cut(c.Ref, "@")
			refs = append(refs, ref)
		}
		if want := []string{program + "/linux/amd64", program + "/linux/arm64", "pkg:golang/golang.org/x/crypto/x509roots/fallback", "pkg:golang/std"}; !slices.Equal(refs, want) {
			t.Errorf("the list has %q, want %q", refs, want)
		}
	}
}

// checkImage checks one platform of an image.
func checkImage(t *testing.T, made v1.Image, program, arch string, at time.Time) {
	t.Helper()
	file, err := made.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := file.Config
	if file.OS != "linux" || file.Architecture != arch || !file.Created.Equal(at) || c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/" + program}) ||
		c.Cmd[0] != "serve" || len(c.ExposedPorts) != 1 || c.Labels["org.opencontainers.image.revision"] != "abc" || c.Labels["org.opencontainers.image.title"] != program {
		t.Errorf("configuration of the image = %+v, want the user, the entrypoint and the labels", file)
	}
	files := filesOf(t, made)
	var names []string
	for _, f := range files {
		names = append(names, fmt.Sprintf("%s %d %s", f.FileInfo().Mode(), f.Uid, f.Name))
		if !f.ModTime.Equal(at) {
			t.Errorf("modification time of %s = %s, want the commit's", f.Name, f.ModTime)
		}
	}
	want := []string{"drwxr-xr-x 0 etc/", "drwxr-xr-x 0 etc/ssl/", "drwxr-xr-x 0 etc/ssl/certs/", "-rw-r--r-- 0 etc/ssl/certs/ca-certificates.crt", "-rw-r--r-- 0 etc/passwd",
		"-rw-r--r-- 0 etc/group", "dtrwxrwxrwx 0 tmp/", "-rw-r--r-- 0 LICENSE", "-rwxr-xr-x 0 " + program}
	if program == "aggregator" {
		want = append(want, "drwx------ 65532 data/")
	}
	if !slices.Equal(names, want) {
		t.Errorf("files of the image = %q\nwant %q", names, want)
	}
	if got := files[len(want)-1]; program != "aggregator" && string(got.data) != "program for "+arch {
		t.Errorf("program in the image = %q, want the one for %s", got.data, arch)
	}
	for _, f := range files {
		if f.Name == "etc/passwd" && !strings.Contains(string(f.data), "nonroot:x:65532:65532:") {
			t.Errorf("/etc/passwd of the image = %q, want nonroot", f.data)
		}
		if f.Name == "etc/ssl/certs/ca-certificates.crt" && (!x509.NewCertPool().AppendCertsFromPEM(f.data) || bytes.Count(f.data, []byte("BEGIN CERTIFICATE")) < 80) {
			t.Errorf("%d bytes of root certificates, want at least 80 certificates", len(f.data))
		}
	}
}

// Images of a release start as the images of the Containerfile do.
func TestImagesMatchTheContainerfile(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/container/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	stages := regexp.MustCompile(`(?m)^USER (\S+)\nEXPOSE (\d+)\n(?:#.*\n)*ENTRYPOINT \["/(\w+)"\]\nCMD (\[.*\])$`).FindAllStringSubmatch(string(text), -1)
	if len(stages) != len(images) {
		t.Fatalf("%d images in the Containerfile, want %d", len(stages), len(images))
	}
	for _, s := range stages {
		var command []string
		if err := json.Unmarshal([]byte(s[4]), &command); err != nil {
			t.Fatal(err)
		}
		is, ok := images[s[3]]
		if !ok || s[1] != "65532:65532" || is.port != s[2]+"/tcp" || !slices.Equal(is.command, command) {
			t.Errorf("image %s = %+v, want the Containerfile's %q", s[3], is, s[0])
		}
	}
}

// The program in an image is the one of the release, and runs.
func TestProgramInImageRuns(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("images are for Linux")
	}
	skipUnlessBuilding(t)
	r := release{version: "v9.8.7", out: filepath.Join(t.TempDir(), "dist"), dir: clone(t), targets: []target{{"extserver", "linux", runtime.GOARCH}}, say: t.Logf}
	if err := r.make(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := contents(t, r.out)
	sums := all[sumsName]
	for _, name := range []string{"extserver_v9.8.7_image.tar", "extserver_v9.8.7_image.cdx.json", imagesName, "portico-9.8.7.tgz"} {
		if all[name] == "" || !strings.Contains(sums, "  "+name+"\n") {
			t.Errorf("%s is missing or not in %s, want it in both", name, sumsName)
		}
	}
	index, _ := openImage(t, all["extserver_v9.8.7_image.tar"], "v9.8.7")
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	made, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "extserver")
	for _, f := range filesOf(t, made) {
		if f.Name == "extserver" {
			if err := os.WriteFile(program, f.data, 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd := exec.Command(program, "version")
	cmd.Env = []string{}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "v9.8.7") {
		t.Errorf("version of the program in the image = %v: %s; want v9.8.7", err, out)
	}
	if !strings.Contains(all["extserver_v9.8.7_image.cdx.json"], "pkg:golang/k8s.io/apiserver@v") {
		t.Errorf("SBOM of the image = %.500s, want its modules", all["extserver_v9.8.7_image.cdx.json"])
	}
}

// openImage unpacks an archive, checks the layout in it by its digests, and returns the only image that it has.
func openImage(t *testing.T, archive, version string) (v1.ImageIndex, v1.Hash) {
	t.Helper()
	dir := t.TempDir()
	for _, f := range untar(t, strings.NewReader(archive)) {
		at := filepath.Join(dir, filepath.FromSlash(f.Name))
		var err error
		if f.Typeflag == tar.TypeDir {
			err = os.MkdirAll(at, 0o700)
		} else {
			err = os.WriteFile(at, f.data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(all); err != nil {
		t.Fatal(err)
	}
	manifest, err := all.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != version {
		t.Fatalf("index of the images = %v: %+v; want one image of the version", err, manifest)
	}
	index, err := all.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return index, manifest.Manifests[0].Digest
}

type packed struct {
	*tar.Header
	data []byte
}

func filesOf(t *testing.T, made v1.Image) []packed {
	t.Helper()
	layers, err := made.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v; want 1", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	return untar(t, content)
}

func untar(t *testing.T, from io.Reader) (all []packed) {
	t.Helper()
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, packed{h, data})
	}
}
