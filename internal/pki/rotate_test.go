package pki

import (
	"context"
	"crypto/x509"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
)

// rotated is a directory for tests of the rotation.
type rotated struct {
	t       *testing.T
	dir     string
	serving Leaf
}

func newRotated(t *testing.T) *rotated {
	t.Helper()
	r := &rotated{t: t, dir: filepath.Join(t.TempDir(), "pki"), serving: Leaf{CommonName: "portico", DNSNames: []string{"localhost"}}}
	r.open()
	return r
}

func (r *rotated) open() *Directory {
	r.t.Helper()
	d, err := OpenDirectory(r.dir, r.serving)
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}

func (r *rotated) step(step Step, names ...string) []Rotation {
	r.t.Helper()
	done, err := Rotate(r.dir, step, names, false)
	if err != nil {
		r.t.Fatal(err)
	}
	return done
}

// files returns the contents of the directory.
func (r *rotated) files() map[string]string {
	r.t.Helper()
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	found := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(r.dir, e.Name()))
		if err != nil {
			r.t.Fatal(err)
		}
		found[e.Name()] = string(data)
	}
	return found
}

func (r *rotated) leafOf(name string) *x509.Certificate {
	r.t.Helper()
	pair, err := LoadKeyPair(filepath.Join(r.dir, name+".crt"), filepath.Join(r.dir, name+".key"))
	if err != nil {
		r.t.Fatal(err)
	}
	return pair.Leaf()
}

func (r *rotated) bundle(name string) *Bundle {
	r.t.Helper()
	b, err := LoadBundle(filepath.Join(r.dir, name+".crt"))
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// Clients with the certificates of the previous step are accepted after each step. After the last step only clients with new certificates are.
func TestClientsOfPreviousRotationStepAreAccepted(t *testing.T) {
	r := newRotated(t)
	all := RotationAuthorities()
	old := r.open()
	oldClient := []*x509.Certificate{r.leafOf(adminLeaf)}
	accepted := func(chain []*x509.Certificate) bool { return r.bundle(clientCA).VerifyClient(chain) == nil }

	for _, done := range r.step(Prepare, all...) {
		if done.Phase != Prepared || !done.Changed || len(done.Accepts) != 2 {
			t.Errorf("rotation after Prepare = %+v, want it prepared, changed, with two accepted authorities", done)
		}
	}
	prepared := r.open()
	if !prepared.Client().Certificate.Equal(old.Client().Certificate) || len(r.bundle(clientCA).Certificates()) != 2 {
		t.Error("after Prepare: want the old authority to sign, and two authorities to be accepted")
	}
	for _, done := range r.step(Switch, all...) {
		if done.Phase != Switched || !done.Changed || !reflect.DeepEqual(done.Accepts[0], done.Signs) {
			t.Errorf("rotation after Switch = %+v, want it switched, changed, with the new authority first", done)
		}
	}
	newClient := []*x509.Certificate{r.leafOf(adminLeaf)}
	switched := r.open()
	if switched.Client().Certificate.Equal(old.Client().Certificate) || !accepted(oldClient) || !accepted(newClient) {
		t.Error("after Switch: want the new authority to sign, and old and new clients to be accepted")
	}
	if !r.leafOf(adminLeaf).Equal(newClient[0]) {
		t.Error("start after Switch issued the admin certificate again, want it unchanged")
	}
	for authority, leaf := range map[*Authority]string{switched.Cluster(): servingLeaf, switched.Client(): adminLeaf, switched.FrontProxy(): frontProxyLeaf} {
		if err := r.leafOf(leaf).CheckSignatureFrom(authority.Certificate); err != nil {
			t.Errorf("signature of %s error = %v, want it signed by the new authority", leaf, err)
		}
	}
	if got := r.leafOf(servingLeaf); !slices.Equal(got.DNSNames, r.serving.DNSNames) || !slices.Equal(got.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) {
		t.Errorf("server certificate has the names %v and the usages %v, want %v and server authentication", got.DNSNames, got.ExtKeyUsage, r.serving.DNSNames)
	}
	for _, done := range r.step(Finish, all...) {
		if done.Phase != Settled || !done.Changed || len(done.Accepts) != 1 {
			t.Errorf("rotation after Finish = %+v, want it settled, changed, with one accepted authority", done)
		}
	}
	if accepted(oldClient) || !accepted(newClient) {
		t.Error("after Finish: want old clients to be rejected and new ones to be accepted")
	}
	if got := r.files(); len(got) != 13 {
		t.Errorf("%d files after the rotation, want 13", len(got))
	}
}

func TestRotationStepsCanBeRepeated(t *testing.T) {
	r := newRotated(t)
	for _, step := range []Step{Prepare, Switch, Finish} {
		before := r.files()
		if _, err := Rotate(r.dir, step, RotationAuthorities(), true); err != nil || !reflect.DeepEqual(before, r.files()) {
			t.Errorf("dry run of %s error = %v, want none and unchanged files", step, err)
		}
		r.step(step, RotationAuthorities()...)
		done := r.files()
		for _, again := range r.step(step, RotationAuthorities()...) {
			if again.Changed || len(again.Files) > 0 {
				t.Errorf("repeated %s = %+v, want no change", step, again)
			}
		}
		if !reflect.DeepEqual(done, r.files()) {
			t.Errorf("repeated %s changed files, want them unchanged", step)
		}
	}
}

func TestRotationStepsOutOfOrderAreRejected(t *testing.T) {
	r := newRotated(t)
	refused := func(step Step, part string, names ...string) {
		t.Helper()
		before := r.files()
		if _, err := Rotate(r.dir, step, names, false); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("Rotate(%s) error = %v, want an error that contains %q", step, err, part)
		}
		if !reflect.DeepEqual(before, r.files()) {
			t.Errorf("rejected Rotate(%s) changed files, want them unchanged", step)
		}
	}
	refused("turn", `no step "turn"`, clientCA)
	refused(Prepare, `no authority "etcd-ca"`, clientCA, etcdCA)
	refused(Switch, "prepare it first", clientCA)
	r.step(Prepare, clientCA)
	refused(Finish, "has not been switched", clientCA)
	refused(Switch, "prepare it first", clientCA, frontProxyCA) // all or none are switched
	r.step(Switch, clientCA)
	refused(Prepare, "finish that first", clientCA)
	// A certificate of the old authority is in use.
	old, err := ParseAuthority([]byte(r.files()["front-proxy-ca.crt"]), []byte(r.files()["front-proxy-ca.key"]))
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := old.Issue(Leaf{CommonName: AdminName, Client: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"admin.key": keyPEM, "admin.crt": certPEM} {
		if err := WriteFile(filepath.Join(r.dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	refused(Finish, "admin.crt is still signed by the authority", clientCA)
}

// Each step is one rename. A start, or the step when repeated, repairs the files before and after it.
func TestInterruptedRotationIsRepaired(t *testing.T) {
	for name, c := range map[string]struct {
		steps []Step
		step  Step
		// undo restores the state of the directory at which the step was killed. before are the files before the step.
		undo func(r *rotated, before map[string]string)
	}{
		"a key without its certificate": {nil, Prepare, func(r *rotated, before map[string]string) {
			r.write("client-ca.crt", before["client-ca.crt"])
		}},
		"certificates that are issued before the switch": {[]Step{Prepare}, Switch, func(r *rotated, before map[string]string) {
			for _, name := range []string{"client-ca.crt", "client-ca.key", "client-ca.next.key"} {
				r.write(name, before[name])
			}
		}},
		"a key that has been switched, and certificates in the order of before": {[]Step{Prepare}, Switch, func(r *rotated, before map[string]string) {
			r.write("client-ca.crt", before["client-ca.crt"])
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRotated(t)
			for _, step := range c.steps {
				r.step(step, clientCA)
			}
			before := r.files()
			r.step(c.step, clientCA)
			c.undo(r, before)
			r.open() // a front door starts
			r.step(c.step, clientCA)
			for _, step := range []Step{Switch, Finish} {
				r.step(step, clientCA)
			}
			if err := r.bundle(clientCA).VerifyClient([]*x509.Certificate{r.leafOf(adminLeaf)}); err != nil || len(r.bundle(clientCA).Certificates()) != 1 {
				t.Errorf("VerifyClient after the repaired rotation = %v with %d authorities, want no error and 1", err, len(r.bundle(clientCA).Certificates()))
			}
		})
	}
}

func (r *rotated) write(name, data string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(data), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// A running front door follows the files, including files that are copied from another replica in any order.
func TestRunningServerFollowsRotation(t *testing.T) {
	seed, r := newRotated(t), &rotated{t: t, dir: filepath.Join(t.TempDir(), "pki"), serving: Leaf{CommonName: "portico", DNSNames: []string{"replica"}}}
	if err := CopyShared(r.dir, seed.dir); err != nil {
		t.Fatal(err)
	}
	d := r.open()
	ctx, cancel := context.WithCancel(t.Context())
	replaced, done := make(chan struct{}, 100), make(chan error, 1)
	go func() { done <- d.Run(ctx, r.serving, func() { replaced <- struct{}{} }, zap.NewNop()) }()
	for _, step := range []Step{Prepare, Switch, Finish} {
		seed.step(step, RotationAuthorities()...)
		for name, data := range seed.files() {
			if strings.Contains(name, "ca.") && !strings.Contains(name, "next") {
				r.write(name, data)
			}
		}
		awaited(t, "the step is followed: "+string(step), func() bool {
			for _, file := range authorityFiles {
				if !slices.EqualFunc(r.bundle(file).Certificates(), seed.bundle(file).Certificates(), (*x509.Certificate).Equal) {
					return false
				}
			}
			serving, err := LoadKeyPair(filepath.Join(r.dir, "serving.crt"), filepath.Join(r.dir, "serving.key")) // may be half renewed
			return err == nil && d.Stale() == nil && d.Cluster().Certificate.Equal(seed.open().Cluster().Certificate) &&
				string(d.Client().BundlePEM()) == string(seed.open().Client().BundlePEM()) && serving.Leaf().CheckSignatureFrom(d.Cluster().Certificate) == nil
		})
		select {
		case <-replaced:
		case <-time.After(time.Minute):
			t.Errorf("callback after %s was not called within a minute, want a call", step)
		}
		if got := r.leafOf(servingLeaf).DNSNames; !slices.Equal(got, r.serving.DNSNames) {
			t.Errorf("names of the server certificate after %s = %v, want %v", step, got, r.serving.DNSNames)
		}
	}
	r.write("ca.key", "no key")
	awaited(t, "a file that cannot be read is reported", func() bool { return d.Stale() != nil })
	if !d.Cluster().Certificate.Equal(seed.open().Cluster().Certificate) {
		t.Error("an unreadable file replaced the authority, want the last good one kept")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
