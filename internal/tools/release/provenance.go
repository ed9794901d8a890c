package main

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	provenanceName = "provenance.dsse.json"
	payloadType    = "application/vnd.in-toto+json"
	statementType  = "https://in-toto.io/Statement/v1"
	predicateType  = "https://slsa.dev/provenance/v1"
	buildType      = "https://portico.dev/release/v1"
)

// envelope is a DSSE envelope.
type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     []byte      `json:"payload"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid"`
	Sig   []byte `json:"sig"`
}

// statement is an in-toto statement about the files of a release.
type statement struct {
	Type          string    `json:"_type"`
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     predicate `json:"predicate"`
}

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// predicate is SLSA provenance, version 1.
type predicate struct {
	BuildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		ResolvedDependencies []subject         `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

// writeProvenance writes the signed provenance of the files.
func (r *release) writeProvenance() error {
	s := statement{Type: statementType, PredicateType: predicateType}
	for _, f := range r.files {
		s.Subject = append(s.Subject, subject{f.name, map[string]string{"sha256": f.sha256}})
	}
	d := &s.Predicate.BuildDefinition
	d.BuildType, d.ExternalParameters = buildType, map[string]string{"version": r.version}
	d.ResolvedDependencies = []subject{{"source", map[string]string{"gitCommit": r.commit}}}
	s.Predicate.RunDetails.Builder.ID = buildType
	payload, err := json.Marshal(s)
	if err != nil {
		return err
	}
	public := r.key.Public().(ed25519.PublicKey)
	signed, err := json.MarshalIndent(envelope{payloadType, payload, []signature{{keyID(public), ed25519.Sign(r.key, preAuthentication(payload))}}}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, provenanceName), append(signed, '\n'), 0o644)
}

// preAuthentication returns the DSSE pre-authentication encoding, which is the signed data.
func preAuthentication(payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
}

func keyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:])
}

func readPrivateKey(path string) (ed25519.PrivateKey, error) {
	block, err := readPEM(path)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: it is not an Ed25519 key; make one with `openssl genpkey -algorithm ed25519`", path)
	}
	return key, nil
}

func readPublicKey(path string) (ed25519.PublicKey, error) {
	block, err := readPEM(path)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("%s: it is not an Ed25519 key", path)
	}
	return key, nil
}

func readPEM(path string) (*pem.Block, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s has no PEM block", path)
	}
	return block, nil
}

func runVerify(args []string) error {
	fs := flag.NewFlagSet("release verify", flag.ContinueOnError)
	keyFile := fs.String("key", "", "public key (PEM) that verifies the signature of the provenance")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *keyFile == "" || fs.NArg() < 1 {
		return errors.New("usage: release verify -key KEY DIRECTORY [FILE... to check, instead of all]")
	}
	key, err := readPublicKey(*keyFile)
	if err != nil {
		return err
	}
	made, checked, err := verify(fs.Arg(0), key, fs.Args()[1:])
	if err != nil {
		return err
	}
	d := made.Predicate.BuildDefinition
	fmt.Printf("%s of commit %s: %d files are as they were signed\n", d.ExternalParameters["version"], d.ResolvedDependencies[0].Digest["gitCommit"], checked)
	return nil
}

// verify checks the signature and the named files of a directory. Without names, it checks that the directory contains exactly
// the files of the release.
func verify(dir string, key ed25519.PublicKey, names []string) (made *statement, checked int, err error) {
	if made, err = readProvenance(dir, key); err != nil {
		return nil, 0, err
	}
	digests := map[string]string{}
	for _, s := range made.Subject {
		digests[s.Name] = s.Digest["sha256"]
	}
	var problems []error
	if len(names) == 0 {
		there, err := os.ReadDir(dir)
		if err != nil {
			return nil, 0, err
		}
		names = slices.Sorted(maps.Keys(digests))
		for _, f := range there {
			if _, ok := digests[f.Name()]; !ok && f.Name() != provenanceName {
				problems = append(problems, fmt.Errorf("%s is no file of the release", f.Name()))
			}
		}
	}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		sum := sha256.Sum256(data)
		switch want, ok := digests[name]; {
		case !ok:
			problems = append(problems, fmt.Errorf("%s is no file of the release", name))
		case err != nil:
			problems = append(problems, err)
		case hex.EncodeToString(sum[:]) != want:
			problems = append(problems, fmt.Errorf("%s is not as it was signed", name))
		}
	}
	return made, len(names), errors.Join(problems...)
}

// readProvenance reads the provenance and checks its signature.
func readProvenance(dir string, key ed25519.PublicKey) (*statement, error) {
	data, err := os.ReadFile(filepath.Join(dir, provenanceName))
	if err != nil {
		return nil, err
	}
	var e envelope
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, fmt.Errorf("%s: %w", provenanceName, err)
	}
	signed := func(s signature) bool {
		return e.PayloadType == payloadType && ed25519.Verify(key, preAuthentication(e.Payload), s.Sig)
	}
	if !slices.ContainsFunc(e.Signatures, signed) {
		return nil, fmt.Errorf("%s is not signed by this key (%s)", provenanceName, keyID(key))
	}
	var made statement
	if err := json.Unmarshal(e.Payload, &made); err != nil {
		return nil, fmt.Errorf("%s: %w", provenanceName, err)
	}
	d := made.Predicate.BuildDefinition
	if made.Type != statementType || made.PredicateType != predicateType || d.BuildType != buildType || len(d.ResolvedDependencies) != 1 || len(made.Subject) == 0 {
		return nil, fmt.Errorf("%s is about something else: %s, %s", provenanceName, made.PredicateType, d.BuildType)
	}
	return &made, nil
}

// writeKrew writes the krew manifest of the plugin.
func (r *release) writeKrew() error {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: portico
spec:
  version: %s
  shortDescription: Diagnose and rehearse extension servers
  description: |
    Finds the broken hop of an APIService and says how to repair it, rehearses failures of extension servers, checks how they keep to what
    clients rely on, and puts them behind a gateway. It works with any cluster.
  platforms:
`, r.version)
	for _, f := range r.files {
		if f.target == nil || f.target.program != "kubectl-portico" {
			continue
		}
		binary := f.target.program
		if f.target.os == "windows" {
			binary += ".exe"
		}
		fmt.Fprintf(&b, "  - selector: {matchLabels: {os: %s, arch: %s}}\n    uri: %s/%s\n    sha256: %s\n    bin: %s\n", f.target.os, f.target.arch, strings.TrimSuffix(r.baseURL, "/"), f.name, f.sha256, binary)
	}
	return r.add("portico.yaml", []byte(b.String()), nil)
}
