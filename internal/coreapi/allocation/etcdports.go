package allocation

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/types"
)

// EtcdPorts keeps the claims to node ports in keys of our own. kube-apiserver keeps them in one bitmap that does not say
// who has a port, so that a leak can only be found by reading all Services.
type EtcdPorts struct {
	client clientv3.KV
	keys   string
}

// NewEtcdPorts keeps claims through client, one key for each claimed port, all of which begin with keys.
func NewEtcdPorts(client clientv3.KV, keys string) EtcdPorts { return EtcdPorts{client, keys} }

func (p EtcdPorts) key(port int32) string { return p.keys + strconv.Itoa(int(port)) }

func (o Owner) value() string { return o.Namespace + "/" + o.Name + "/" + string(o.UID) }

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

// Release removes the key of a port if it is the owner's.
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

// Taken reads all keys. There are at most as many as there are ports.
func (p EtcdPorts) Taken(ctx context.Context) (map[int32]Held, error) {
	found, err := p.client.Get(ctx, p.keys, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("read the claims to node ports: %w", err)
	}
	taken := make(map[int32]Held, len(found.Kvs))
	for _, kv := range found.Kvs {
		port, err := strconv.ParseInt(strings.TrimPrefix(string(kv.Key), p.keys), 10, 32)
		if err != nil {
			continue // not one of ours
		}
		parts := strings.SplitN(string(kv.Value), "/", 3)
		if len(parts) != 3 {
			continue
		}
		taken[int32(port)] = Held{
			Owner: Owner{types.NamespacedName{Namespace: parts[0], Name: parts[1]}, types.UID(parts[2])},
			ID:    strconv.FormatInt(kv.CreateRevision, 10),
		}
	}
	return taken, nil
}
