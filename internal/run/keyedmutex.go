package run

import (
	"context"
	"hash/maphash"
)

// KeyedMutex locks individual keys. Keys may share a lock, which only increases contention.
type KeyedMutex[K comparable] struct {
	seed  maphash.Seed
	locks [64]chan struct{}
}

// NewKeyedMutex returns a mutex without locked keys.
func NewKeyedMutex[K comparable]() *KeyedMutex[K] {
	m := &KeyedMutex[K]{seed: maphash.MakeSeed()}
	for i := range m.locks {
		m.locks[i] = make(chan struct{}, 1)
	}
	return m
}

// Lock locks k, or returns an error if ctx ends first.
func (m *KeyedMutex[K]) Lock(ctx context.Context, k K) (unlock func(), err error) {
	lock := m.locks[maphash.Comparable(m.seed, k)%uint64(len(m.locks))]
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
