package pki

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// Step is a step of the rotation of authorities. A step can be repeated, and then continues an interrupted one.
type Step string

const (
	// Prepare creates a new authority. Its certificates are accepted from then on, while the previous authority still
	// signs.
	Prepare Step = "prepare"
	// Switch makes the new authority sign. Certificates of the previous one are still accepted.
	Switch Step = "switch"
	// Finish ends the acceptance of the previous authority.
	Finish Step = "finish"
)

// Phase is the state of the rotation of an authority.
type Phase string

const (
	// Settled means that there is one authority, which signs and is accepted.
	Settled Phase = "Settled"
	// Prepared means that two authorities are accepted and the older one signs.
	Prepared Phase = "Prepared"
	// Switched means that two authorities are accepted and the newer one signs.
	Switched Phase = "Switched"
)

// Rotation is the result of a step for one authority, or its expected result with dryRun.
type Rotation struct {
	// Authority is the base name of its files: ca, client-ca or front-proxy-ca.
	Authority string `json:"authority"`
	// Phase is the phase after the step.
	Phase Phase `json:"phase"`
	// Changed reports whether the step changes anything.
	Changed bool `json:"changed"`
	// Signs is the certificate of the authority that signs after the step. Accepts are the certificates used for
	// verification. With dryRun, a new authority is missing because it was not created.
	Signs   Fingerprint   `json:"signs"`
	Accepts []Fingerprint `json:"accepts"`
	// Files are the files that the step replaces.
	Files []string `json:"files,omitempty"`
}

// Fingerprint identifies a certificate.
type Fingerprint struct {
	Subject  string    `json:"subject"`
	SHA256   string    `json:"sha256"`
	NotAfter time.Time `json:"notAfter"`
}

func fingerprintOf(c *x509.Certificate) Fingerprint {
	sum := sha256.Sum256(c.Raw)
	return Fingerprint{Subject: c.Subject.String(), SHA256: hex.EncodeToString(sum[:]), NotAfter: c.NotAfter}
}

// RotationAuthorities returns the names of the authorities that can be rotated.
func RotationAuthorities() []string { return slices.Clone(authorityFiles) }

// Rotate performs a step for the named authorities of a key directory. With dryRun nothing is written. If the step is
// not possible for one of them, it is not performed for any.
//
// Every step takes effect by renaming a single file. So a front door that watches the files, or starts at any time,
// finds a key that matches one of the certificates: Prepare appends a certificate to NAME.crt, Switch moves
// NAME.next.key to NAME.key, and Finish removes a certificate from NAME.crt.
func Rotate(dir string, step Step, names []string, dryRun bool) ([]Rotation, error) {
	var all []*rotating
	for _, name := range names {
		if !slices.Contains(authorityFiles, name) {
			return nil, fmt.Errorf("there is no authority %q: they are %q", name, authorityFiles)
		}
		r, err := readRotating(dir, name)
		if err != nil {
			return nil, err
		}
		if err := r.check(step); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	var done []Rotation
	for _, r := range all {
		if err := r.do(step, dryRun); err != nil {
			return done, fmt.Errorf("%s of authority %s: %w; repeat the command when the cause is gone", step, r.name, err)
		}
		done = append(done, r.report())
	}
	return done, nil
}

// RotationStatus returns the state of the rotation of each authority.
func RotationStatus(dir string) ([]Rotation, error) {
	var all []Rotation
	for _, name := range authorityFiles {
		r, err := readRotating(dir, name)
		if err != nil {
			return nil, err
		}
		all = append(all, r.report())
	}
	return all, nil
}

// rotating is the state of an authority's files.
type rotating struct {
	dir, name string
	certs     []*x509.Certificate
	signer    *x509.Certificate
	// next is the key that signs after Switch, and nextCert its certificate. Both may be nil.
	next     crypto.Signer
	nextCert *x509.Certificate

	phase   Phase
	changed bool
	files   []string
}

func (r *rotating) path(suffix string) string { return filepath.Join(r.dir, r.name+suffix) }

func readRotating(dir, name string) (*rotating, error) {
	r := &rotating{dir: dir, name: name, phase: Settled}
	certPEM, err := readFile(r.path(".crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no %s: a front door makes it at its first start", r.path(".crt"))
	}
	if err != nil {
		return nil, err
	}
	keyPEM, err := readFile(r.path(".key"))
	if err != nil {
		return nil, err
	}
	signer, err := ParseAuthority(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", r.path(".crt"), err)
	}
	if r.certs, err = ParseBundle(certPEM); err != nil {
		return nil, err
	}
	r.signer = signer.Certificate
	nextPEM, err := readFile(r.path(".next.key"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if len(r.certs) > 1 {
			r.phase = Switched
		}
		return r, nil
	case err != nil:
		return nil, err
	}
	if r.next, err = ParseKey(nextPEM); err != nil {
		return nil, fmt.Errorf("%s: %w", r.path(".next.key"), err)
	}
	if i := slices.IndexFunc(r.certs, func(c *x509.Certificate) bool { return belongs(r.next, c) }); i >= 0 {
		r.nextCert, r.phase = r.certs[i], Prepared
	} // otherwise Prepare was interrupted
	return r, nil
}

// check returns an error if a step is not allowed in the current phase.
func (r *rotating) check(step Step) error {
	switch {
	case step == Prepare && r.phase == Switched:
		return fmt.Errorf("authority %s is being replaced: finish that first; %d certificates are in %s", r.name, len(r.certs), r.path(".crt"))
	case step == Switch && r.phase == Settled:
		return fmt.Errorf("authority %s has no new one to switch to: prepare it first", r.name)
	case step == Finish && r.phase == Prepared:
		return fmt.Errorf("authority %s has not been switched to the new one: do that first", r.name)
	case step == Finish && r.phase == Switched:
		for _, leaf := range leavesOf[r.name] {
			pair, err := LoadKeyPair(r.leaf(leaf))
			if errors.Is(err, fs.ErrNotExist) {
				continue // exists only in directories that are used by a front door
			}
			if err != nil {
				return err
			}
			if pair.Leaf().CheckSignatureFrom(r.signer) != nil {
				return fmt.Errorf("%s.crt is still signed by the authority %s of before: a front door that runs on the directory renews it at once, and another one when it starts", filepath.Join(r.dir, leaf), r.name)
			}
		}
	case step != Prepare && step != Switch && step != Finish:
		return fmt.Errorf("there is no step %q: they are %s, %s and %s", step, Prepare, Switch, Finish)
	}
	return nil
}

// leavesOf maps authorities to the certificates in the directory that they sign.
var leavesOf = map[string][]string{clusterCA: {servingLeaf}, clientCA: {adminLeaf}, frontProxyCA: {frontProxyLeaf}}

func (r *rotating) leaf(name string) (certFile, keyFile string) {
	return filepath.Join(r.dir, name+".crt"), filepath.Join(r.dir, name+".key")
}

// do performs a step allowed by check, unless it has already been performed.
func (r *rotating) do(step Step, dryRun bool) error {
	switch {
	case step == Prepare && r.phase == Settled:
		return r.prepare(dryRun)
	case step == Switch:
		return r.switchOver(dryRun)
	case step == Finish && r.phase == Switched:
		return r.finish(dryRun)
	}
	return nil
}

func (r *rotating) prepare(dryRun bool) error {
	r.changed, r.phase, r.files = true, Prepared, []string{r.path(".next.key"), r.path(".crt")}
	if dryRun {
		return nil
	}
	// Use a different name than the previous authority's, so that authorities can be identified by name.
	next, err := NewAuthority(authorityName(r.name) + "@" + strconv.FormatInt(time.Now().Unix(), 10))
	if err != nil {
		return err
	}
	keyPEM, err := next.KeyPEM()
	if err != nil {
		return err
	}
	if err := WriteFile(r.path(".next.key"), keyPEM, 0o600); err != nil {
		return err
	}
	r.next, r.nextCert, r.certs = next.key, next.Certificate, append(r.certs, next.Certificate)
	return r.writeCertificates()
}

// switchOver first issues the leaves. Both authorities are accepted at that time, and a front door that detects the
// new signer finds the leaves renewed.
func (r *rotating) switchOver(dryRun bool) error {
	if r.phase == Prepared {
		r.changed, r.files = true, []string{r.path(".key")}
		signer := &Authority{Certificate: r.nextCert, key: r.next}
		for _, leaf := range leavesOf[r.name] {
			issued, err := r.reissue(signer, leaf, dryRun)
			if err != nil {
				return err
			}
			if issued {
				certFile, keyFile := r.leaf(leaf)
				r.files = append(r.files, keyFile, certFile)
			}
		}
		r.signer, r.phase = r.nextCert, Switched
		if dryRun {
			return nil
		}
		if err := errors.Join(os.Rename(r.path(".next.key"), r.path(".key")), syncDirectory(r.dir)); err != nil {
			return err
		}
	}
	// The signer comes first, because releases without rotation read the first certificate.
	if !r.certs[0].Equal(r.signer) {
		r.changed, r.files = true, append(r.files, r.path(".crt"))
		r.certs = slices.Concat([]*x509.Certificate{r.signer}, slices.DeleteFunc(slices.Clone(r.certs), r.signer.Equal))
		if !dryRun {
			return r.writeCertificates()
		}
	}
	return nil
}

// reissue replaces a leaf in the directory by one with the same properties, signed by the next authority.
func (r *rotating) reissue(next *Authority, name string, dryRun bool) (bool, error) {
	certFile, keyFile := r.leaf(name)
	pair, err := LoadKeyPair(certFile, keyFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case pair.Leaf().CheckSignatureFrom(next.Certificate) == nil || dryRun:
		return dryRun, nil
	}
	c := pair.Leaf()
	certPEM, keyPEM, err := next.Issue(Leaf{
		CommonName: c.Subject.CommonName, Organizations: c.Subject.Organization, DNSNames: c.DNSNames, IPs: c.IPAddresses,
		Client: slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth), Server: slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth),
	})
	if err != nil {
		return false, err
	}
	if err := WriteFile(keyFile, keyPEM, 0o600); err != nil {
		return false, err
	}
	return true, WriteFile(certFile, certPEM, 0o644)
}

func (r *rotating) finish(dryRun bool) error {
	r.changed, r.phase, r.certs, r.files = true, Settled, []*x509.Certificate{r.signer}, []string{r.path(".crt")}
	if dryRun {
		return nil
	}
	return r.writeCertificates()
}

func (r *rotating) writeCertificates() error {
	var bundle bytes.Buffer
	for _, c := range r.certs {
		bundle.Write(encodeCertificate(c.Raw))
	}
	return WriteFile(r.path(".crt"), bundle.Bytes(), 0o644)
}

func (r *rotating) report() Rotation {
	out := Rotation{Authority: r.name, Phase: r.phase, Changed: r.changed, Signs: fingerprintOf(r.signer), Files: r.files}
	for _, c := range r.certs {
		out.Accepts = append(out.Accepts, fingerprintOf(c))
	}
	return out
}
