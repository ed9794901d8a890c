package run

import (
	"context"
	"hash/maphash"
)

// KeyedMutex locks keys one by one. Keys share a lock by chance, which only makes some wait.
type KeyedMutex[K comparable] struct {
	seed  maphash.Seed
	locks [64]chan struct{}
}

// NewKeyedMutex returns a mutex of which no key is locked.
func NewKeyedMutex[K comparable]() *KeyedMutex[K] {
	m := &KeyedMutex[K]{seed: maphash.MakeSeed()}
	for i := range m.locks {
		m.locks[i] = make(chan struct{}, 1)
	}
	return m
}

// Lock waits for k or for the end of ctx.
func (m *KeyedMutex[K]) Lock(ctx context.Context, k K) (unlock func(), err error) {
	lock := m.locks[maphash.Comparable(m.seed, k)%uint64(len(m.locks))]
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
