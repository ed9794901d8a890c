package faulty

import (
	"fmt"
	"slices"
	"time"

	"portico.dev/internal/pki"
)

// identity holds the serving certificate, valid or not.
type identity struct {
	name      string // <service>.<namespace>.svc
	authority *pki.Authority
	next      *pki.Authority // set while the authority is being replaced
	shown     *pki.KeyPair
}

func newIdentity(name string) (*identity, error) {
	authority, err := pki.NewAuthority("drill of " + name)
	if err != nil {
		return nil, err
	}
	i := &identity{name: name, authority: authority, shown: &pki.KeyPair{}}
	return i, i.show(Healthy)
}

// another returns an identity of the same authority with a different certificate.
func (i *identity) another() (*identity, error) {
	a := &identity{name: i.name, authority: i.authority, shown: &pki.KeyPair{}}
	return a, a.show(Healthy)
}

func (i *identity) bundle() []byte {
	if i.next == nil {
		return i.authority.PEM()
	}
	return slices.Concat(i.authority.PEM(), i.next.PEM())
}

func (i *identity) rotate() (err error) {
	i.next, err = pki.NewAuthority("drill of " + i.name + ", new")
	return err
}

func (i *identity) finishRotation() error {
	i.authority, i.next = i.next, nil
	return i.show(Healthy)
}

// show issues and presents a certificate with the given fault.
func (i *identity) show(f Fault) error {
	cert, key, err := i.issue(f)
	if err != nil {
		return err
	}
	if err := i.shown.Set(cert, key); err != nil {
		return fmt.Errorf("certificate of the extension server: %w", err)
	}
	return nil
}

func (i *identity) issue(f Fault) (cert, key []byte, err error) {
	leaf := pki.Leaf{CommonName: i.name, DNSNames: []string{i.name}, Server: true}
	authority := i.authority
	switch f {
	case ExpiredCertificate:
		leaf.TTL = time.Nanosecond // certificates have second precision, so it has already expired
	case WrongName:
		leaf.DNSNames = []string{"another.server.svc"}
	case WrongAuthority:
		another, err := pki.NewAuthority("nobody that the APIService names")
		if err != nil {
			return nil, nil, err
		}
		authority = another
	}
	return authority.Issue(leaf)
}
