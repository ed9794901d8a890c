package thirdparty

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/e2e/compat"
	"portico.dev/internal/pki"
)

// The events in the life cycle of a server.
const (
	reRegistered    = "survives the deletion and re-creation of its APIService"
	restarted       = "survives being killed and restarted; until then, requests get 503 with the name of the APIService"
	frontRestarted  = "survives a restart of the front door"
	frontProxyMoved = "survives a rotation of the front-proxy CA with overlap"
	expired         = "an expired serving certificate is reported in the APIService's condition; the renewed one is picked up"
	namespaceGone   = "survives the deletion and re-creation of its namespace"
)

// life appends the common steps of all parties.
func life(before ...compat.Step) []compat.Step {
	for _, what := range []string{reRegistered, restarted, frontRestarted, frontProxyMoved, expired, namespaceGone} {
		before = append(before, compat.Step{What: what})
	}
	return before
}

// survive runs the life-cycle steps of all servers behind a front door in parallel.
func (d *frontDoor) survive(t *testing.T) {
	d.each(t, reRegistered, func(t *testing.T, s *third) {
		s.unregister(t)
		s.awaitUnknown(t)
		s.register(t)
		s.awaitAvailable(t)
	})
	d.each(t, restarted, func(t *testing.T, s *third) {
		s.stop(t)
		s.awaitReason(t, "FailedDiscoveryCheck", "connection refused")
		s.refuses(t)
		s.start(t)
		s.awaitAvailable(t)
	})

	d.stop(t)
	d.start(t)
	d.each(t, frontRestarted, func(t *testing.T, s *third) { s.awaitAvailable(t) })

	d.rotateFrontProxies(t)

	d.each(t, expired, func(t *testing.T, s *third) {
		s.certify(t, time.Second)
		<-time.After(1500 * time.Millisecond) // it is over
		s.stop(t)
		s.start(t)
		s.awaitReason(t, "FailedDiscoveryCheck", "expired")
		s.certify(t, time.Hour)
		s.awaitAvailable(t)
	})
	d.each(t, namespaceGone, func(t *testing.T, s *third) {
		namespaces := d.typed.CoreV1().Namespaces()
		if s.keep != nil {
			if err := s.keep(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := namespaces.Delete(t.Context(), s.name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "namespace "+s.name+" goes", func() error {
			return gone(namespaces.Get(t.Context(), s.name, metav1.GetOptions{}))
		})
		s.awaitReason(t, "ServiceNotFound", s.name)
		s.stop(t)
		s.settle(t)
		s.start(t)
		s.awaitAvailable(t)
		if s.kept != nil {
			if err := s.kept(t.Context()); err != nil {
				t.Error(err) // the namespace has the objects of the old one
			}
		}
	})
}

// each runs a step for all servers of a front door in parallel.
func (d *frontDoor) each(t *testing.T, what string, run func(t *testing.T, s *third)) {
	t.Run(what, func(t *testing.T) {
		for _, s := range d.parties {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				book.Step(t, s.party, what, func(t *testing.T) { run(t, s) })
			})
		}
	})
	if t.Failed() {
		t.FailNow() // later steps would fail for the same reason
	}
}

// rotateFrontProxies replaces the authority of the front door's client certificate in three steps, without an effect on
// clients: both are trusted, the new one is used, the old one is not trusted any more. The last step is manual: as with
// kube-apiserver, the published CAs are only extended, until they expire.
func (d *frontDoor) rotateFrontProxies(t *testing.T) {
	before, after := d.proxyCA, newAuthority(t, "front proxies, the next")
	for _, s := range d.parties {
		s.awaitTrust(t, after, false)
	}
	d.trust(t, before, after)
	for _, s := range d.parties {
		s.awaitTrust(t, after, true)
	}
	d.rotate(t, after)
	for _, s := range d.parties {
		s.awaitAvailable(t)
	}
	d.trust(t, after)
	eventually(t, "the old authority is removed from the published CAs", func() error { return d.distrust(t.Context(), before, after) })
	d.each(t, frontProxyMoved, func(t *testing.T, s *third) {
		s.awaitTrust(t, before, false)
		s.awaitAvailable(t) // would be refused on connections of before, too: certificates are verified with every request
	})
}

// distrust removes an authority from the published CAs. It is added again while the front door trusts it.
func (d *frontDoor) distrust(ctx context.Context, before, after *pki.Authority) error {
	configMaps := d.typed.CoreV1().ConfigMaps("kube-system")
	c, err := configMaps.Get(ctx, trustName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	const key = "requestheader-client-ca-file"
	if !strings.Contains(c.Data[key], string(before.PEM())) {
		return nil
	}
	c.Data[key] = string(after.PEM())
	if _, err := configMaps.Update(ctx, c, metav1.UpdateOptions{}); err != nil {
		return err
	}
	return errors.New("it was there until now")
}

// awaitTrust waits until the server accepts, or refuses, identity headers with a certificate of that authority. A refused
// client is anonymous (403) or unauthenticated (401).
func (s *third) awaitTrust(t *testing.T, ca *pki.Authority, want bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s trusts %s: %v", s.name, ca.Certificate.Subject.CommonName, want), func() error {
		code, body, err := s.direct(t.Context(), ca, s.path())
		refused := code == http.StatusUnauthorized || code == http.StatusForbidden
		if err == nil && (want && code != http.StatusOK || !want && !refused) {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
}

// path is the path of a document that every authenticated user may read.
func (s *third) path() string { return "/apis/" + s.versions[0].Group + "/" + s.versions[0].Version }

// awaitUnknown waits until the server's group-versions are not served any more.
func (s *third) awaitUnknown(t *testing.T) {
	t.Helper()
	eventually(t, s.name+" is unknown", func() error {
		err := s.frontDoor.typed.Discovery().RESTClient().Get().AbsPath(s.path()).Do(t.Context()).Error()
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("want 404, got %w", err)
		}
		return nil
	})
}

// refuses checks that the error message names the unavailable server.
func (s *third) refuses(t *testing.T) {
	t.Helper()
	newUser, err := s.frontDoor.newUser(users)
	if err != nil {
		t.Fatal(err)
	}
	err = s.serves(t.Context(), newUser)
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatalf("request to an unavailable server = %v, want a Status", err)
	}
	name := s.versions[0].Version + "." + s.versions[0].Group
	if got := status.Status(); got.Code != http.StatusServiceUnavailable || got.Details == nil || got.Details.Name != name {
		t.Errorf("Status of an unavailable server = %+v, want 503 with the name %s", got, name)
	}
}
