package allocation

import (
	"context"
	"errors"
	"iter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What a claim is refused with.
var (
	// ErrTaken says that somebody else has it, or had it a moment ago.
	ErrTaken = errors.New("taken")
	// errFull says that everything is taken.
	errFull = errors.New("range is full")
)

// Owner is the Service that holds a claim.
type Owner struct {
	types.NamespacedName
	UID types.UID
}

func ownerOf(s *corev1.Service) Owner {
	return Owner{types.NamespacedName{Namespace: s.Namespace, Name: s.Name}, s.UID}
}

// Held is a claim that exists.
type Held struct {
	// Owner is the Service; empty when it is none. Its UID is known of ports only.
	Owner Owner
	// ID tells this claim from another of the same thing, earlier or later.
	ID string
	// Foreign claims were not made here, and are nobody's business here but their owner's.
	Foreign bool
}

// Claims keeps who has which T, for all replicas.
type Claims[T comparable] interface {
	// Claim makes what the owner's, or answers ErrTaken. After any other error it may or may not be the owner's.
	Claim(ctx context.Context, what T, owner Owner) error
	// Release ends the owner's claim. One that does not exist, or is somebody else's, is no error and stays.
	Release(ctx context.Context, what T, owner Owner) error
	// ReleaseHeld ends this claim, and no other of the same thing. One that has gone is no error.
	ReleaseHeld(ctx context.Context, what T, held Held) error
	// Taken reads all claims as they are now.
	Taken(ctx context.Context) (map[T]Held, error)
}

// claimAny claims the first candidate that is free. Most of a range is free most of the time, so that it looks at all
// claims only after it has met a taken one.
func claimAny[T comparable](ctx context.Context, claims Claims[T], owner Owner, candidates iter.Seq[T]) (T, error) {
	var (
		none  T
		taken map[T]Held
	)
	for candidate := range candidates {
		if _, is := taken[candidate]; is {
			continue
		}
		err := claims.Claim(ctx, candidate, owner)
		if err == nil {
			return candidate, nil
		}
		if !errors.Is(err, ErrTaken) {
			return none, err
		}
		if taken == nil {
			if taken, err = claims.Taken(ctx); err != nil {
				return none, err
			}
		}
	}
	return none, errFull
}

// freeOne is a candidate that is free now, for a request that must not claim it.
func freeOne[T comparable](ctx context.Context, claims Claims[T], candidates iter.Seq[T], besides map[T]bool) (T, error) {
	var none T
	taken, err := claims.Taken(ctx)
	if err != nil {
		return none, err
	}
	for candidate := range candidates {
		if _, is := taken[candidate]; !is && !besides[candidate] {
			return candidate, nil
		}
	}
	return none, errFull
}

var _ Claims[int32] = EtcdPorts{}
