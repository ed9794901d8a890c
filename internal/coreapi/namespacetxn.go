package coreapi

import (
	"context"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/value"

	"portico.dev/internal/coreapi/admission/plugins"
	"portico.dev/internal/coreapi/allocation"
)

const (
	// namespacesDirectory is the directory of namespaces below the prefix of all objects.
	namespacesDirectory = "namespaces"
	// createAttempts limits the attempts to create an object while another client writes the namespace. Each failure means that
	// the namespace was written between two consecutive attempts.
	createAttempts = 100
)

// namespaceTxn writes objects of one resource to etcd. A write in a namespace is conditional on the namespace in the same
// transaction:
//
//   - A create, by any verb, requires the namespace to be exactly as this server last read it, not terminating, and the same
//     as at the request's start. A write of the namespace marks it as terminating. Therefore no create can follow the mark on
//     any replica, and the controller that lists the content after the mark sees every object.
//   - An update or a deletion requires that no new namespace has got the name since the request's start. The namespace may be
//     terminating or deleted: it must be possible to remove its remaining objects.
//
// namespaceTxn works on keys, not objects, so no write of the storage layer can bypass it. Writes that do not pass through it
// do not belong to a namespaced object (claims of node ports).
//
// A create without a request in that namespace reads the current namespace and requires that one. An update or a deletion of
// this kind has no condition.
type namespaceTxn struct {
	kubernetes.Interface
	kv       clientv3.KV
	resource schema.GroupResource
	// objects and namespaces are the key prefixes of the objects and of the namespaces.
	objects, namespaces string
	decode              func(context.Context, *mvccpb.KeyValue) (*corev1.Namespace, error)
}

// conditional returns a client that applies the conditions of namespaceTxn to writes of a resource.
func (s *storageFactory) conditional(resource schema.GroupResource, prefix, resourcePrefix string) *kubernetes.Client {
	root := strings.TrimSuffix(prefix, "/") + "/"
	return &kubernetes.Client{Client: s.client.Client, Kubernetes: &namespaceTxn{
		Interface: s.client.Kubernetes, kv: s.client.KV, resource: resource,
		objects: root + strings.Trim(resourcePrefix, "/") + "/", namespaces: root + namespacesDirectory + "/",
		decode: s.decodeNamespace,
	}}
}

// decodeNamespace decodes a namespace like the storage of namespaces.
func (s *storageFactory) decodeNamespace(ctx context.Context, kv *mvccpb.KeyValue) (*corev1.Namespace, error) {
	transformer := s.config.Encryption.TransformerFor(corev1.Resource("namespaces"))
	data, _, err := transformer.TransformFromStorage(ctx, kv.Value, value.DefaultContext(kv.Key))
	if err != nil {
		return nil, storage.NewInternalError(fmt.Errorf("%s: %w", kv.Key, err))
	}
	ns := &corev1.Namespace{}
	decoder := etcd3.NewDefaultDecoder(s.codec.storage(corev1.SchemeGroupVersion), storage.APIObjectVersioner{})
	if err := decoder.Decode(data, ns, kv.ModRevision); err != nil {
		return nil, fmt.Errorf("%s: %w", kv.Key, err)
	}
	return ns, nil
}

// split parses a key. Keys of cluster-scoped objects have only one part.
func (t *namespaceTxn) split(key string) (namespace, name string, namespaced bool) {
	rest, ok := strings.CutPrefix(key, t.objects)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}

// OptimisticPut creates the object if expected is 0, and updates it otherwise.
func (t *namespaceTxn) OptimisticPut(ctx context.Context, key string, value []byte, expected int64, o kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	namespace, name, namespaced := t.split(key)
	if !namespaced {
		return t.Interface.OptimisticPut(ctx, key, value, expected, o)
	}
	put := clientv3.OpPut(key, string(value), clientv3.WithLease(o.LeaseID))
	if expected == 0 {
		return t.create(ctx, namespace, name, key, put, o.GetOnFailure)
	}
	start := namespaceAtStartOf(ctx, namespace)
	if start == nil {
		return t.Interface.OptimisticPut(ctx, key, value, expected, o)
	}
	a, err := t.change(ctx, start, name, key, expected, put, o.GetOnFailure)
	return kubernetes.PutResponse{KV: a.found, Succeeded: a.succeeded, Revision: a.revision}, err
}

func (t *namespaceTxn) OptimisticDelete(ctx context.Context, key string, expected int64, o kubernetes.DeleteOptions) (kubernetes.DeleteResponse, error) {
	namespace, name, namespaced := t.split(key)
	start := namespaceAtStartOf(ctx, namespace)
	if !namespaced || start == nil {
		return t.Interface.OptimisticDelete(ctx, key, expected, o)
	}
	a, err := t.change(ctx, start, name, key, expected, clientv3.OpDelete(key), o.GetOnFailure)
	return kubernetes.DeleteResponse{KV: a.found, Succeeded: a.succeeded, Revision: a.revision}, err
}

// create retries if the namespace was changed in the meantime and still allows a create. The response to a failed transaction
// contains the namespace, so a new attempt is a single call.
func (t *namespaceTxn) create(ctx context.Context, namespace, name, key string, put clientv3.Op, getOnFailure bool) (kubernetes.PutResponse, error) {
	start, err := t.start(ctx, namespace)
	switch {
	case err != nil:
		return kubernetes.PutResponse{}, err
	case start.revision == 0:
		return kubernetes.PutResponse{}, namespaceNotFound(namespace)
	case start.terminating:
		return kubernetes.PutResponse{}, plugins.NamespaceTerminating(t.resource, name, namespace)
	}
	known := start.revision
	for range createAttempts {
		unchanged := clientv3.Compare(clientv3.ModRevision(t.namespaces+namespace), "=", known)
		a, err := t.commit(ctx, key, 0, unchanged, put, clientv3.OpGet(t.namespaces+namespace), getOnFailure)
		switch {
		case err != nil, a.succeeded:
			return kubernetes.PutResponse{Succeeded: a.succeeded, Revision: a.revision}, err
		case a.namespace == nil, a.namespace.CreateRevision > start.revision:
			return kubernetes.PutResponse{}, namespaceNotFound(namespace)
		case a.exists:
			return kubernetes.PutResponse{KV: a.found, Revision: a.revision}, nil
		}
		ns, err := t.decode(ctx, a.namespace)
		if err != nil {
			return kubernetes.PutResponse{}, err
		}
		if isTerminatingNamespace(ns) {
			return kubernetes.PutResponse{}, plugins.NamespaceTerminating(t.resource, name, namespace)
		}
		known = a.namespace.ModRevision
	}
	return kubernetes.PutResponse{}, apierrors.NewTooManyRequests(fmt.Sprintf(
		"%s %q was not created: namespace %s is being changed all the time, and was changed during each of %d attempts; try again",
		t.resource, name, namespace, createAttempts), retryAfterSeconds)
}

// start returns the namespace that a create requires.
func (t *namespaceTxn) start(ctx context.Context, namespace string) (*namespaceAtStart, error) {
	if s := namespaceAtStartOf(ctx, namespace); s != nil {
		return s, s.err
	}
	answer, err := t.Get(ctx, t.namespaces+namespace, kubernetes.GetOptions{})
	if err != nil {
		return nil, err
	}
	if answer.KV == nil {
		return &namespaceAtStart{name: namespace, now: true}, nil
	}
	ns, err := t.decode(ctx, answer.KV)
	if err != nil {
		return nil, err
	}
	return startedIn(namespace, ns, true)
}

// change updates or deletes. It succeeds if the namespace does not exist, and fails if it was created after the start.
func (t *namespaceTxn) change(ctx context.Context, start *namespaceAtStart, name, key string, expected int64, do clientv3.Op, getOnFailure bool) (txnResult, error) {
	if start.err != nil {
		return txnResult{}, start.err
	}
	notAnother := clientv3.Compare(clientv3.CreateRevision(t.namespaces+start.name), "<", start.revision+1)
	a, err := t.commit(ctx, key, expected, notAnother, do, clientv3.OpGet(t.namespaces+start.name, clientv3.WithKeysOnly()), getOnFailure)
	if err == nil && !a.succeeded && a.namespace != nil && a.namespace.CreateRevision > start.revision {
		return txnResult{}, apierrors.NewConflict(t.resource, name, fmt.Errorf(
			"namespace %s was deleted and created again while the request was under way; read the object and try again", start.name))
	}
	return a, err
}

// txnResult is the response of etcd.
type txnResult struct {
	succeeded bool
	revision  int64
	// Set on failure: there if the object exists, found if the object was requested, namespace if it exists.
	exists    bool
	found     *mvccpb.KeyValue
	namespace *mvccpb.KeyValue
}

// commit executes do if the object is at the expected revision, the namespace meets its condition, and the entry of the
// Services transaction that the write belongs to, if any, exists (servicewrites.go).
func (t *namespaceTxn) commit(ctx context.Context, key string, expected int64, namespace clientv3.Cmp, do, getNamespace clientv3.Op, getObject bool) (txnResult, error) {
	get := clientv3.OpGet(key, clientv3.WithKeysOnly())
	if getObject {
		get = clientv3.OpGet(key)
	}
	conditions := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", expected), namespace}
	questions := []clientv3.Op{get, getNamespace}
	fence := allocation.Fence(ctx)
	if fence != "" {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(fence), ">", 0))
		questions = append(questions, clientv3.OpGet(fence, clientv3.WithCountOnly()))
	}
	answer, err := t.kv.Txn(ctx).If(conditions...).Then(do).Else(questions...).Commit()
	if err != nil {
		return txnResult{}, err
	}
	a := txnResult{succeeded: answer.Succeeded, revision: answer.Header.Revision}
	if a.succeeded {
		return a, nil
	}
	if len(answer.Responses) != len(questions) {
		return txnResult{}, fmt.Errorf("etcd answered %d of %d questions about %s", len(answer.Responses), len(questions), key)
	}
	if fence != "" && answer.Responses[2].GetResponseRange().GetCount() == 0 {
		return txnResult{}, errFenced()
	}
	if kvs := answer.Responses[0].GetResponseRange().GetKvs(); len(kvs) == 1 {
		a.exists = true
		if getObject {
			a.found = kvs[0]
		}
	}
	if kvs := answer.Responses[1].GetResponseRange().GetKvs(); len(kvs) == 1 {
		a.namespace = kvs[0]
	}
	return a, nil
}
