package coreapi

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico.dev/internal/store"
)

// A front door that starts while etcd does not respond waits for etcd. Only an object that cannot be read ends the start at once.
func TestStartWaitsForEtcdThatIsLost(t *testing.T) {
	undecodable := apierrors.NewInternalError(errors.New("no key"))
	for _, c := range []struct {
		name  string
		cause error
		fails bool
	}{
		{"no member answers", mapReadError(&store.QuorumError{}), false},
		{"no member answers, unmapped", &store.QuorumError{}, false},
		{"an object cannot be decrypted", undecodable, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				f := cacheFill{
					ready: func() error {
						if time.Since(began) < 2*diagnoseAfter {
							return errors.New("not filled")
						}
						return nil
					},
					list: func(context.Context) error { return c.cause },
				}
				if err := f.await(t.Context()); (err != nil) != c.fails {
					t.Errorf("await() = %v, want an error: %t", err, c.fails)
				}
			})
		})
	}
}
