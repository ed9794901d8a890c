package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
)

// The types are the subset of CycloneDX 1.6 that is used here.
type bom struct {
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	SerialNumber string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     bomMetadata  `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type bomMetadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type    string    `json:"type"`
	Ref     string    `json:"bom-ref"`
	Name    string    `json:"name"`
	Version string    `json:"version"`
	PURL    string    `json:"purl,omitempty"`
	Hashes  []bomHash `json:"hashes,omitempty"`
}

type bomHash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// modulesOf returns a program as a component, and the modules linked into it, from the program's build information.
func (r *release) modulesOf(t *target, path string, binary []byte) (component, []component, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return component{}, nil, fmt.Errorf("read the modules of %s: %w", t, err)
	}
	sum := sha256.Sum256(binary)
	main := component{Type: "application", Ref: t.String(), Name: t.program, Version: r.version, Hashes: []bomHash{{"SHA-256", hex.EncodeToString(sum[:])}}}
	modules := []component{module("std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		modules = append(modules, module(d.Path, d.Version))
	}
	return main, modules, nil
}

// billOfMaterials lists the modules of a program.
func (r *release) billOfMaterials(main component, modules []component, binary []byte) ([]byte, error) {
	needs := dependency{Ref: main.Ref}
	list := []dependency{}
	for _, m := range modules {
		needs.DependsOn = append(needs.DependsOn, m.Ref)
		list = append(list, dependency{Ref: m.Ref})
	}
	return r.encodeBOM(main, sha256.Sum256(binary), modules, append([]dependency{needs}, list...))
}

// encodeBOM encodes a bill of materials. sum is the digest of its subject.
func (r *release) encodeBOM(about component, sum [sha256.Size]byte, parts []component, needs []dependency) ([]byte, error) {
	out, err := json.MarshalIndent(bom{
		Format: "CycloneDX", SpecVersion: "1.6", SerialNumber: "urn:uuid:" + uuidOf(sum), Version: 1,
		Metadata:   bomMetadata{r.date.Format(time.RFC3339), about},
		Components: parts, Dependencies: needs,
	}, "", "  ")
	return append(out, '\n'), err
}

// rootsModule returns the module with the root certificates of images, in the version linked into this program.
func rootsModule() (component, error) {
	const path = "golang.org/x/crypto/x509roots/fallback"
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, d := range info.Deps {
			if d.Path == path {
				return module(d.Path, d.Version), nil
			}
		}
	}
	return component{}, fmt.Errorf("this program does not know which version of %s it was built with", path)
}

func module(path, version string) component {
	purl := "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
	return component{Type: "library", Ref: purl, Name: path, Version: version, PURL: purl}
}

// uuidOf derives a UUID (RFC 9562, version 8) from a digest.
func uuidOf(sum [sha256.Size]byte) string {
	b := sum[:16]
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
