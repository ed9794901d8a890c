package pki

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
)

// Directory holds the keys and certificates that a front door creates at its first start.
//
//	ca.crt, ca.key                       signs server certificates
//	client-ca.crt, client-ca.key         signs client certificates
//	front-proxy-ca.crt, .key             signs front proxies' certificates
//	serving.crt, .key                    the front door's server certificate
//	front-proxy-client.crt, .key         the front door's certificate for extension servers
//	admin.crt, .key                      a client in group system:masters
//	service-account.key                  signs service account tokens
//	etcd-ca.crt, .key                    signs the certificates of the members of an embedded etcd of several members
//	etcd-member.crt, .key                this member's certificate, for the other members and its clients
//
// The directory has mode 0700 and every key 0600. Leaves are renewed after two thirds of their lifetime, and when
// their authority was replaced (Rotate). The service account key is never replaced here.
type Directory struct {
	path string

	current atomic.Pointer[authorities]
	stale   atomic.Pointer[error]
	// renewing is held while checking leaves.
	renewing sync.Mutex

	// Etcd is nil unless the embedded etcd has several members (EnsureEtcd).
	Etcd *Authority
	// member describes the certificate of this etcd member. Required with Etcd.
	member Leaf
}

// authorities are the authorities of a directory.
type authorities struct{ cluster, client, frontProxy *Authority }

// Cluster returns the authority for server certificates.
func (d *Directory) Cluster() *Authority { return d.current.Load().cluster }

// Client returns the authority for client certificates.
func (d *Directory) Client() *Authority { return d.current.Load().client }

// FrontProxy returns the authority for front-proxy certificates.
func (d *Directory) FrontProxy() *Authority { return d.current.Load().frontProxy }

// Stale returns why the authorities in the directory are not in use, or nil.
func (d *Directory) Stale() error { return loadError(&d.stale) }

// Names in the FrontProxyClient and Admin certificates.
const (
	FrontProxyClientName = "front-proxy-client"
	AdminName            = "portico-admin"
	AdminGroup           = "system:masters"
)

// Leaf files of a directory, in the order of creation.
const (
	servingLeaf    = "serving"
	frontProxyLeaf = "front-proxy-client"
	adminLeaf      = "admin"
	memberLeaf     = "etcd-member"
)

// sharedKeys are the files that replicas of a front door must share. The last two exist only with an embedded etcd.
var sharedKeys = []string{"ca.crt", "ca.key", "client-ca.crt", "client-ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "service-account.key", etcdCA + ".crt", etcdCA + ".key"}

// etcdCA is the base name of the files of the embedded etcd's authority.
const etcdCA = "etcd-ca"

// OpenDirectory reads the keys in path and creates missing ones. serving describes the serving certificate, which is
// reissued if serving changes.
func OpenDirectory(path string, serving Leaf) (*Directory, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make key directory: %w", err)
	}
	if err := removeLeftovers(path); err != nil {
		return nil, err
	}
	d := &Directory{path: path}
	var read authorities
	for _, file := range authorityFiles {
		authority, err := d.authority(authorityName(file), file)
		if err != nil {
			return nil, err
		}
		*read.field(file) = authority
	}
	d.current.Store(&read)
	if err := d.ensureLeaves(serving); err != nil {
		return nil, err
	}
	return d, d.ensureServiceAccountKey()
}

// Base names of the files of the authorities in every directory.
const (
	clusterCA    = "ca"
	clientCA     = "client-ca"
	frontProxyCA = "front-proxy-ca"
)

var authorityFiles = []string{clusterCA, clientCA, frontProxyCA}

// authorityName returns the name of an authority in its certificate.
func authorityName(file string) string { return "portico-" + file }

// field returns the field for the authority in file.
func (a *authorities) field(file string) **Authority {
	switch file {
	case clusterCA:
		return &a.cluster
	case clientCA:
		return &a.client
	}
	return &a.frontProxy
}

// ReadDirectory reads the authorities of a directory created by OpenDirectory. It does not create files.
func ReadDirectory(path string) (*Directory, error) {
	d := &Directory{path: path}
	read, err := d.readAuthorities()
	if err != nil {
		return nil, err
	}
	d.current.Store(read)
	return d, nil
}

func (d *Directory) readAuthorities() (*authorities, error) {
	var read authorities
	for _, file := range authorityFiles {
		certPEM, err := readFile(d.Path(file + ".crt"))
		if err != nil {
			return nil, err
		}
		keyPEM, err := readFile(d.Path(file + ".key"))
		if err != nil {
			return nil, err
		}
		if *read.field(file), err = ParseAuthority(certPEM, keyPEM); err != nil {
			return nil, fmt.Errorf("authority %s: %w", d.Path(file+".crt"), err)
		}
	}
	return &read, nil
}

// EnsureEtcd creates the authority of an embedded etcd's members if it is missing, and the certificate of this
// member. name is the name of the member, and ips are its addresses for the other members.
func (d *Directory) EnsureEtcd(name string, ips []net.IP) error {
	a, err := d.authority("portico-etcd-ca", etcdCA)
	if err != nil {
		return err
	}
	d.Etcd, d.member = a, Leaf{CommonName: name, DNSNames: []string{"localhost"}, IPs: ips, Client: true, Server: true}
	return d.ensureLeaf(memberLeaf, d.Etcd, d.member)
}

// EtcdFiles returns the files of EnsureEtcd: the authority's certificate, and the certificate and key of this member.
func (d *Directory) EtcdFiles() (caFile, certFile, keyFile string) {
	return d.Path(etcdCA + ".crt"), d.Path(memberLeaf + ".crt"), d.Path(memberLeaf + ".key")
}

// ReadShared reads the files that replicas of a front door must share from a directory created by OpenDirectory: the
// authorities and the service account key. The result maps file names to contents.
func ReadShared(from string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, name := range sharedKeys {
		data, err := readFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(name, etcdCA) {
			continue
		}
		if err != nil {
			return nil, err
		}
		files[name] = data
	}
	return files, nil
}

// WriteShared writes the result of ReadShared to a directory. If a file exists with different content, it returns an
// error and writes nothing. OpenDirectory then creates the remaining files, which are specific to each replica.
func WriteShared(to string, files map[string][]byte) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return fmt.Errorf("make key directory: %w", err)
	}
	for name, data := range files {
		if !slices.Contains(sharedKeys, name) {
			return fmt.Errorf("%q is no file that replicas share", name)
		}
		have, err := readFile(filepath.Join(to, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case !bytes.Equal(have, data):
			return fmt.Errorf("%s is another one than that of the other replicas", filepath.Join(to, name))
		}
	}
	for _, name := range sharedKeys {
		data, given := files[name]
		if !given {
			continue
		}
		if err := WriteFile(filepath.Join(to, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// CopyShared copies the files that replicas of a front door must share to an empty directory.
func CopyShared(to, from string) error {
	files, err := ReadShared(from)
	if err != nil {
		return err
	}
	return WriteShared(to, files)
}

// Path returns the path of a file in the directory.
func (d *Directory) Path(name string) string { return filepath.Join(d.path, name) }

// ClientKeyPair issues a client certificate that the front door accepts.
func (d *Directory) ClientKeyPair(user string, groups []string, ttl time.Duration) (certPEM, keyPEM []byte, err error) {
	return d.Client().Issue(Leaf{CommonName: user, Organizations: groups, Client: true, TTL: ttl})
}

// Run renews leaves as they age and after authorities were replaced (Rotate), until ctx ends. The users of the files
// watch them. replaced is called after authorities have changed; it may be nil.
func (d *Directory) Run(ctx context.Context, serving Leaf, replaced func(), log *zap.Logger) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		tick := time.NewTicker(time.Hour)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				if err := d.renew(serving); err != nil {
					log.Error("failed to renew certificates; the old ones stay in use", zap.String("directory", d.path), zap.Error(err))
				}
			}
		}
	})
	var files []string
	for _, file := range authorityFiles {
		files = append(files, d.Path(file+".crt"), d.Path(file+".key"))
	}
	g.Go(func() error {
		return WatchFiles(ctx, log, files, func() (bool, error) {
			changed, err := d.reread(serving)
			storeError(&d.stale, err)
			if changed && replaced != nil {
				replaced()
			}
			return changed, err
		})
	})
	return g.Wait()
}

// reread reads the authorities again, and renews the leaves if an authority has changed. Inconsistent files are
// refused, and the previous authorities stay in use.
func (d *Directory) reread(serving Leaf) (changed bool, err error) {
	read, err := d.readAuthorities()
	if err != nil {
		return false, err
	}
	before := d.current.Load()
	for _, file := range authorityFiles {
		changed = changed || !bytes.Equal((*before.field(file)).BundlePEM(), (*read.field(file)).BundlePEM())
	}
	if !changed {
		return false, nil
	}
	d.current.Store(read)
	return true, d.renew(serving)
}

func (d *Directory) renew(serving Leaf) error {
	d.renewing.Lock()
	defer d.renewing.Unlock()
	err := d.ensureLeaves(serving)
	if d.Etcd != nil {
		err = errors.Join(err, d.ensureLeaf(memberLeaf, d.Etcd, d.member))
	}
	return err
}

func (d *Directory) authority(name, file string) (*Authority, error) {
	certFile, keyFile := d.Path(file+".crt"), d.Path(file+".key")
	certPEM, errCert := readFile(certFile)
	keyPEM, errKey := readFile(keyFile)
	switch {
	case errCert == nil && errKey == nil:
		a, err := ParseAuthority(certPEM, keyPEM)
		if err != nil {
			return nil, fmt.Errorf("authority %s with key %s: %w", certFile, keyFile, err)
		}
		return a, nil
	case errors.Is(errCert, fs.ErrNotExist):
		// A key without a certificate results from a first start that was interrupted between the two files. Nothing
		// has been signed with it.
		return d.newAuthority(name, certFile, keyFile)
	case errCert != nil:
		return nil, errCert
	default:
		return nil, fmt.Errorf("authority %s has no usable key (%w); restore the key, or remove both files to make a new authority that no existing client trusts", certFile, errKey)
	}
}

func (d *Directory) newAuthority(name, certFile, keyFile string) (*Authority, error) {
	a, err := NewAuthority(name)
	if err != nil {
		return nil, err
	}
	keyPEM, err := a.KeyPEM()
	if err != nil {
		return nil, err
	}
	if err := WriteFile(keyFile, keyPEM, 0o600); err != nil {
		return nil, err
	}
	return a, WriteFile(certFile, a.PEM(), 0o644)
}

func (d *Directory) ensureLeaves(serving Leaf) error {
	serving.Server = true
	for _, l := range []struct {
		file      string
		authority *Authority
		leaf      Leaf
	}{
		{servingLeaf, d.Cluster(), serving},
		{frontProxyLeaf, d.FrontProxy(), Leaf{CommonName: FrontProxyClientName, Client: true}},
		{adminLeaf, d.Client(), Leaf{CommonName: AdminName, Organizations: []string{AdminGroup}, Client: true}},
	} {
		if err := d.ensureLeaf(l.file, l.authority, l.leaf); err != nil {
			return err
		}
	}
	return nil
}

func (d *Directory) ensureLeaf(file string, a *Authority, want Leaf) error {
	certFile, keyFile := d.Path(file+".crt"), d.Path(file+".key")
	if pair, err := LoadKeyPair(certFile, keyFile); err == nil && stillGood(pair.Leaf(), a, want) {
		return nil
	}
	certPEM, keyPEM, err := a.Issue(want)
	if err != nil {
		return err
	}
	if err := WriteFile(keyFile, keyPEM, 0o600); err != nil {
		return err
	}
	return WriteFile(certFile, certPEM, 0o644)
}

// stillGood reports whether a leaf matches want, was signed by the authority, and has more than a third of its
// lifetime left.
func stillGood(have *x509.Certificate, a *Authority, want Leaf) bool {
	life := have.NotAfter.Sub(have.NotBefore)
	if time.Now().After(have.NotBefore.Add(life * 2 / 3)) {
		return false
	}
	return have.CheckSignatureFrom(a.Certificate) == nil &&
		have.Subject.CommonName == want.CommonName &&
		slices.Equal(have.Subject.Organization, want.Organizations) &&
		slices.Equal(have.DNSNames, want.DNSNames) &&
		slices.EqualFunc(have.IPAddresses, want.IPs, net.IP.Equal)
}

func (d *Directory) ensureServiceAccountKey() error {
	file := d.Path("service-account.key")
	data, err := readFile(file)
	switch {
	case err == nil:
		if _, err := ParseKey(data); err != nil {
			return fmt.Errorf("service account key %s: %w", file, err)
		}
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generate service account key: %w", err)
	}
	keyPEM, err := EncodeKey(key)
	if err != nil {
		return err
	}
	return WriteFile(file, keyPEM, 0o600)
}

// WriteFile replaces a file atomically: readers see either the old or the new content. A file that already has the
// content is not written, to avoid triggering watchers.
func WriteFile(name string, data []byte, mode os.FileMode) error {
	if old, err := readFile(name); err == nil && bytes.Equal(old, data) {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer os.Remove(f.Name()) // fails after the rename
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err == nil {
		err = syncDirectory(filepath.Dir(name))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// syncDirectory makes the names in a directory durable.
func syncDirectory(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// leftoverAge is the age from which a temporary file cannot be in use any more.
const leftoverAge = time.Minute

// removeLeftovers removes temporary files of WriteFile calls that were interrupted. They may contain keys.
func removeLeftovers(path string) error {
	for _, pattern := range []string{".*.crt.[0-9]*", ".*.key.[0-9]*"} {
		left, err := filepath.Glob(filepath.Join(path, pattern))
		if err != nil {
			return err
		}
		for _, name := range left {
			info, err := os.Lstat(name)
			if err != nil || time.Since(info.ModTime()) < leftoverAge {
				continue // another process may be about to rename it
			}
			if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove what a start left that was cut short: %w", err)
			}
		}
	}
	return nil
}
