package allocation

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The errors of claims.
var (
	// ErrTaken is returned if another owner holds the address or port, or has just held it.
	ErrTaken = errors.New("taken")
	// errFull is returned if every candidate is taken.
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

// Held is an existing claim.
type Held struct {
	// Owner is the Service, or empty. Its UID is set for ports only.
	Owner Owner
	// ID distinguishes this claim from earlier and later claims of the same address or port.
	ID string
	// Foreign is set for claims of other components, which release them themselves.
	Foreign bool
	// Unreadable is set for claims that are damaged or written by a newer release. Their owner is unknown, so they are kept.
	Unreadable bool
}

// Claims stores the claims on addresses or ports, for all replicas.
type Claims[T comparable] interface {
	// Claim claims what for the owner, or returns ErrTaken. After any other error it may or may not be claimed.
	Claim(ctx context.Context, what T, owner Owner) error
	// Release releases the owner's claim. It returns no error for a missing claim, and keeps the claim of another owner.
	Release(ctx context.Context, what T, owner Owner) error
	// ReleaseHeld releases this claim, but no later claim of the same address or port. It returns no error if it is missing.
	ReleaseHeld(ctx context.Context, what T, held Held) error
	// List reads all current claims from etcd.
	List(ctx context.Context) (map[T]Held, error)
}

// claimAny claims the first free candidate. Because most of a range is usually free, it reads all claims only after a candidate
// was taken.
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
			if taken, err = claims.List(ctx); err != nil {
				return none, err
			}
		}
	}
	return none, errFull
}

// findFree returns a candidate that is currently free, for a dry run.
func findFree[T comparable](ctx context.Context, claims Claims[T], candidates iter.Seq[T], besides map[T]bool) (T, error) {
	var none T
	taken, err := claims.List(ctx)
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

// EtcdPorts stores claims to node ports in separate etcd keys. kube-apiserver stores them in one bitmap without owners, so that
// it finds a leak only by reading all Services.
type EtcdPorts struct {
	client clientv3.KV
	keys   string
}

// NewEtcdPorts returns an EtcdPorts that uses client, with one key per claimed port. keys is the prefix of the keys.
func NewEtcdPorts(client clientv3.KV, keys string) EtcdPorts { return EtcdPorts{client, keys} }

func (p EtcdPorts) key(port int32) string { return p.keys + strconv.Itoa(int(port)) }

func (o Owner) value() string { return o.Namespace + "/" + o.Name + "/" + string(o.UID) }

// parseOwner parses the result of value. A newer release with another format must not write two slashes after a namespace.
func parseOwner(value string) (Owner, bool) {
	parts := strings.Split(value, "/")
	if len(parts) != 3 || len(validation.IsDNS1123Label(parts[0])) > 0 || parts[1] == "" {
		return Owner{}, false
	}
	return Owner{types.NamespacedName{Namespace: parts[0], Name: parts[1]}, types.UID(parts[2])}, true
}

// Claim creates the key of a port.
func (p EtcdPorts) Claim(ctx context.Context, port int32, owner Owner) error {
	key := p.key(port)
	free := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)}
	fence := Fence(ctx)
	if fence != "" {
		free = append(free, clientv3.Compare(clientv3.CreateRevision(fence), ">", 0))
	}
	answer, err := p.client.Txn(ctx).If(free...).Then(clientv3.OpPut(key, owner.value())).
		Else(clientv3.OpGet(key, clientv3.WithCountOnly())).Commit()
	if err != nil {
		return fmt.Errorf("claim port %d: %w", port, err)
	}
	switch {
	case answer.Succeeded:
		return nil
	case answer.Responses[0].GetResponseRange().Count == 0:
		return ErrFenced
	}
	return ErrTaken
}

// ReleaseHeld removes the key of a port if it is still the one that was read.
func (p EtcdPorts) ReleaseHeld(ctx context.Context, port int32, held Held) error {
	made, err := strconv.ParseInt(held.ID, 10, 64)
	if err != nil {
		return fmt.Errorf("release port %d: %w", port, err)
	}
	key := p.key(port)
	_, err = p.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", made)).
		Then(clientv3.OpDelete(key)).Commit()
	if err != nil {
		return fmt.Errorf("release port %d: %w", port, err)
	}
	return nil
}

// Release removes the key of a port if it belongs to owner.
func (p EtcdPorts) Release(ctx context.Context, port int32, owner Owner) error {
	key := p.key(port)
	_, err := p.client.Txn(ctx).
		If(clientv3.Compare(clientv3.Value(key), "=", owner.value())).
		Then(clientv3.OpDelete(key)).Commit()
	if err != nil {
		return fmt.Errorf("release port %d: %w", port, err)
	}
	return nil
}

// List reads all keys. The number of ports limits their number.
func (p EtcdPorts) List(ctx context.Context) (map[int32]Held, error) {
	found, err := p.client.Get(ctx, p.keys, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("read the claims to node ports: %w", err)
	}
	taken := make(map[int32]Held, len(found.Kvs))
	for _, kv := range found.Kvs {
		port, err := strconv.ParseInt(strings.TrimPrefix(string(kv.Key), p.keys), 10, 32)
		if err != nil {
			continue // not a key of EtcdPorts
		}
		owner, ok := parseOwner(string(kv.Value))
		taken[int32(port)] = Held{Owner: owner, ID: strconv.FormatInt(kv.CreateRevision, 10), Unreadable: !ok}
	}
	return taken, nil
}
