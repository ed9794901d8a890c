package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nonroot is the user ID of programs in images. It is numeric, so that Kubernetes can verify that it is not root.
const nonroot = 65532

const imagesName = "IMAGES"

// image contains the program-specific parts of an image.
type image struct {
	title   string
	command []string // default arguments
	port    string
	data    string // directory owned by the program, for a volume
}

var images = map[string]image{
	"aggregator": {
		title:   "Portico front door and gateway",
		command: []string{"serve", "--data-dir=/data", "--bind-address=0.0.0.0", "--logging-format=json"},
		port:    "6443/tcp", data: "/data",
	},
	"extserver": {
		title:   "Portico extension server",
		command: []string{"serve", "--kubeconfig=/etc/portico/kubeconfig"},
		port:    "4443/tcp",
	},
}

// platformImage is the image of a program for one platform.
type platformImage struct {
	target target
	image  v1.Image
	binary component
	needs  []component // modules of the program
}

// buildImage creates the image of one platform. It does not use a base image. The image contains the program, its license, the
// root certificates, and the names of the users.
func (r *release) buildImage(t target, binary, license []byte) (v1.Image, error) {
	roots, err := rootCertificates()
	if err != nil {
		return nil, err
	}
	is := images[t.program]
	files := []entry{
		{name: "etc/", mode: 0o755}, {name: "etc/ssl/", mode: 0o755}, {name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: roots},
		{name: "etc/passwd", mode: 0o644, data: fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:%[1]d:%[1]d:nonroot:/tmp:/sbin/nologin\n", nonroot)},
		{name: "etc/group", mode: 0o644, data: fmt.Appendf(nil, "root:x:0:\nnonroot:x:%d:\n", nonroot)},
		{name: "tmp/", mode: 0o1777},
		{name: "LICENSE", mode: 0o644, data: license},
		{name: t.program, mode: 0o755, data: binary},
	}
	config := v1.Config{
		User: fmt.Sprintf("%[1]d:%[1]d", nonroot), WorkingDir: "/", Entrypoint: []string{"/" + t.program}, Cmd: is.command,
		ExposedPorts: map[string]struct{}{is.port: {}}, Labels: r.imageLabels(t.program),
	}
	if is.data != "" {
		files = append(files, entry{name: strings.TrimPrefix(is.data, "/") + "/", mode: 0o700, owner: nonroot})
		config.Volumes = map[string]struct{}{is.data: {}}
	}
	packed, err := layerOf(files, r.date)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	created := v1.Time{Time: r.date}
	made, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "go run ./internal/tools/release -version " + r.version}})
	if err != nil {
		return nil, err
	}
	file, err := made.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Architecture, file.OS, file.Created, file.Config = t.arch, t.os, created, config
	return mutate.ConfigFile(made, file)
}

// imageLabels returns the labels defined by the OCI image specification.
func (r *release) imageLabels(program string) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title": program, prefix + "description": images[program].title, prefix + "version": r.version, prefix + "revision": r.commit,
		prefix + "created": r.date.Format(time.RFC3339), prefix + "licenses": "Apache-2.0", prefix + "vendor": "Portico",
	}
}

// entry is a file in a layer, or a directory if its name ends in a slash.
type entry struct {
	name  string
	mode  int64
	owner int
	data  []byte
}

func layerOf(files []entry, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	err = writeTar(z, files, at)
	if err == nil {
		err = z.Close()
	}
	return out.Bytes(), err
}

func writeTar(to io.Writer, files []entry, at time.Time) error {
	t := tar.NewWriter(to)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Typeflag: tar.TypeReg, Mode: f.mode, Uid: f.owner, Gid: f.owner, Size: int64(len(f.data)), ModTime: at, Format: tar.FormatUSTAR}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("pack %s: %w", f.name, err)
		}
		if _, err := t.Write(f.data); err != nil {
			return fmt.Errorf("pack %s: %w", f.name, err)
		}
	}
	return t.Close()
}

// rootCertificates returns Mozilla's root certificates, in the version in go.mod. It omits roots with constraints, because a
// certificate file cannot express them.
func rootCertificates() ([]byte, error) {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// writeImages writes, for each program with images, one archive with all its platforms, and its bill of materials.
func (r *release) writeImages() error {
	var digests strings.Builder
	for _, program := range slices.Sorted(maps.Keys(r.images)) {
		name := program + "_" + r.version + "_image"
		index, err := r.indexOf(program)
		if err != nil {
			return fmt.Errorf("image of %s: %w", program, err)
		}
		packed, err := r.packLayout(index)
		if err != nil {
			return fmt.Errorf("image of %s: %w", program, err)
		}
		if err := r.add(name+".tar", packed, nil); err != nil {
			return err
		}
		digest, err := index.Digest()
		if err != nil {
			return err
		}
		fmt.Fprintf(&digests, "%s  %s.tar\n", digest, name)
		list, err := r.imageMaterials(program, digest)
		if err != nil {
			return err
		}
		if err := r.add(name+".cdx.json", list, nil); err != nil {
			return err
		}
	}
	if digests.Len() == 0 {
		return nil
	}
	return r.add(imagesName, []byte(digests.String()), nil)
}

// indexOf returns the image index with all platforms of a program.
func (r *release) indexOf(program string) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range r.images[program] {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: p.image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.target.os, Architecture: p.target.arch}}})
	}
	annotated, ok := mutate.Annotations(index, r.imageLabels(program)).(v1.ImageIndex)
	if !ok {
		return nil, fmt.Errorf("annotations of an index are those of something else: %T", index)
	}
	return annotated, nil
}

// packLayout packs an OCI layout with one image, named by the version.
func (r *release) packLayout(index v1.ImageIndex) ([]byte, error) {
	dir, err := os.MkdirTemp("", "portico-image-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it contains only copies of the packed files
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return nil, err
	}
	if err := to.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version})); err != nil {
		return nil, err
	}
	var files []entry
	err = filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || at == dir {
			return err
		}
		name, err := filepath.Rel(dir, at)
		if err != nil {
			return err
		}
		if name = filepath.ToSlash(name); d.IsDir() {
			files = append(files, entry{name: name + "/", mode: 0o755})
			return nil
		}
		data, err := os.ReadFile(at)
		files = append(files, entry{name: path.Clean(name), mode: 0o644, data: data})
		return err
	})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = writeTar(&out, files, r.date)
	return out.Bytes(), err
}

// imageMaterials lists the contents of an image: the program of each platform, the modules of all of them, and the root
// certificates.
func (r *release) imageMaterials(program string, digest v1.Hash) ([]byte, error) {
	sum, err := hex.DecodeString(digest.Hex)
	if err != nil {
		return nil, err
	}
	is := component{
		Type: "container", Ref: "image:" + program, Name: program, Version: r.version,
		PURL: "pkg:oci/" + program + "@" + strings.ReplaceAll(digest.String(), ":", "%3A"), Hashes: []bomHash{{"SHA-256", digest.Hex}},
	}
	roots, err := rootsModule()
	if err != nil {
		return nil, err
	}
	all := map[string]component{roots.Ref: roots}
	contains := dependency{Ref: is.Ref, DependsOn: []string{roots.Ref}}
	list := []dependency{}
	for _, p := range r.images[program] {
		all[p.binary.Ref] = p.binary
		contains.DependsOn = append(contains.DependsOn, p.binary.Ref)
		of := dependency{Ref: p.binary.Ref}
		for _, m := range p.needs {
			all[m.Ref] = m
			of.DependsOn = append(of.DependsOn, m.Ref)
		}
		list = append(list, of)
	}
	parts := slices.SortedFunc(maps.Values(all), func(a, b component) int { return strings.Compare(a.Ref, b.Ref) })
	return r.encodeBOM(is, [32]byte(sum), parts, append([]dependency{contains}, list...))
}
