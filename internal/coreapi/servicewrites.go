package coreapi

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"portico.dev/internal/coreapi/allocation"
)

// inFlightKeys is the directory of Service writes in progress in the store's own keys: <replica>/<write>.
const inFlightKeys = "allocating/"

// inFlight stores writes in progress and reads the keys of live replicas. Its entries have no lease, so that a repair can find
// the entries of a replica that has ended.
type inFlight struct {
	client clientv3.KV
	keys   string // prefix of the entries
	live   string // prefix of the keys of live replicas
	name   string // this replica
}

var _ allocation.InFlight = inFlight{}

func newInFlight(cfg Config, client clientv3.KV) inFlight {
	return inFlight{client: client, keys: cfg.Store.OwnKey(inFlightKeys), live: cfg.Store.LiveKey(""), name: cfg.Replica}
}

// Begin implements allocation.InFlight.
func (f inFlight) Begin(ctx context.Context, owner allocation.Owner) (string, error) {
	ctx, cancel := withMargin(ctx)
	defer cancel()
	key := f.keys + f.name + "/" + rand.Text()
	_, err := f.client.Put(ctx, key, owner.String())
	return key, mapWriteError(err)
}

// End implements allocation.InFlight.
func (f inFlight) End(ctx context.Context, key string) error {
	if _, err := f.client.Delete(ctx, key); err != nil {
		return fmt.Errorf("end the write of a service: %w", err)
	}
	return nil
}

// All implements allocation.InFlight. It reads entries and live replicas at the same revision.
func (f inFlight) All(ctx context.Context) ([]allocation.Entry, error) {
	read, err := f.client.Txn(ctx).Then(
		clientv3.OpGet(f.keys, clientv3.WithPrefix()), clientv3.OpGet(f.live, clientv3.WithPrefix(), clientv3.WithKeysOnly()),
	).Commit()
	if err != nil {
		return nil, fmt.Errorf("read which writes of services are under way: %w", err)
	}
	alive := map[string]bool{}
	for _, kv := range read.Responses[1].GetResponseRange().Kvs {
		alive[strings.TrimPrefix(string(kv.Key), f.live)] = true
	}
	var entries []allocation.Entry
	for _, kv := range read.Responses[0].GetResponseRange().Kvs {
		replica, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), f.keys), "/")
		entries = append(entries, allocation.Entry{Key: string(kv.Key), Owner: parseWriter(string(kv.Value)), Alive: alive[replica]})
	}
	return entries, nil
}

// parseWriter returns an empty name for values of newer releases, which are not of the form namespace/name.
func parseWriter(value string) types.NamespacedName {
	namespace, name, _ := strings.Cut(value, "/")
	if len(validation.IsDNS1123Label(namespace)) > 0 || name == "" || strings.Contains(name, "/") {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// fencedWrites executes a write of a Services transaction only if the entry of that transaction still exists.
type fencedWrites struct {
	kubernetes.Interface
	client clientv3.KV
}

// fenced returns a client that checks allocation.Fence in writes.
func fenced(client *kubernetes.Client) *kubernetes.Client {
	return &kubernetes.Client{Client: client.Client, Kubernetes: fencedWrites{client.Kubernetes, client.KV}}
}

// OptimisticPut implements kubernetes.Interface.
func (f fencedWrites) OptimisticPut(ctx context.Context, key string, value []byte, expected int64, opts kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	fence := allocation.Fence(ctx)
	if fence == "" {
		return f.Interface.OptimisticPut(ctx, key, value, expected, opts)
	}
	answer, err := f.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", expected), clientv3.Compare(clientv3.CreateRevision(fence), ">", 0)).
		Then(clientv3.OpPut(key, string(value), clientv3.WithLease(opts.LeaseID))).
		Else(clientv3.OpGet(key), clientv3.OpGet(fence, clientv3.WithCountOnly())).Commit()
	if err != nil {
		return kubernetes.PutResponse{}, err
	}
	out := kubernetes.PutResponse{Succeeded: answer.Succeeded, Revision: answer.Header.Revision}
	if answer.Succeeded {
		return out, nil
	}
	if answer.Responses[1].GetResponseRange().Count == 0 {
		return kubernetes.PutResponse{}, errFenced()
	}
	if found := answer.Responses[0].GetResponseRange().Kvs; opts.GetOnFailure && len(found) == 1 {
		out.KV = found[0]
	}
	return out, nil
}

func errFenced() error { return apierrors.NewServiceUnavailable(allocation.ErrFenced.Error()) }
