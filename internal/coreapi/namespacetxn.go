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
	// namespacesDirectory is where namespaces are stored, below the prefix of all objects.
	namespacesDirectory = "namespaces"
	// createAttempts is how often a create is tried in a namespace that somebody else writes at the same time. Each failure
	// means that another write of the namespace was made between two that follow each other at once.
	createAttempts = 100
)

// namespaceTxn is how objects of one resource are written to etcd. What is written in a namespace is written under a
// condition on the namespace, in the same transaction:
//
//   - A create, by whatever verb, needs the namespace to be exactly as this server last saw it, not terminating and the
//     one of the request's start. A namespace is marked as terminating by a write of it, so no create can follow the mark, on
//     any replica, and the controller that looks for what is in it after the mark sees everything that there will ever be.
//   - An update or a deletion needs that no other namespace has got the name since the request's start. It may be terminating, or
//     gone: what is left in it must be possible to remove.
//
// It sees keys and not objects, so there is no way around it: everything that the library stores comes through here. What does
// not come here is no object of a namespace (claims of node ports).
//
// A create that no request in that namespace asked for is held to the namespace as it is when it comes here, and reads it for
// that. An update or a deletion of that kind has no condition.
type namespaceTxn struct {
	kubernetes.Interface
	kv       clientv3.KV
	resource schema.GroupResource
	// objects and namespaces begin the keys of the objects and of the namespaces.
	objects, namespaces string
	decode              func(context.Context, *mvccpb.KeyValue) (*corev1.Namespace, error)
}

// conditional is a client whose writes of a resource are under the conditions of namespaceTxn.
func (s *storageFactory) conditional(resource schema.GroupResource, prefix, resourcePrefix string) *kubernetes.Client {
	root := strings.TrimSuffix(prefix, "/") + "/"
	return &kubernetes.Client{Client: s.client.Client, Kubernetes: &namespaceTxn{
		Interface: s.client.Kubernetes, kv: s.client.KV, resource: resource,
		objects: root + strings.Trim(resourcePrefix, "/") + "/", namespaces: root + namespacesDirectory + "/",
		decode: s.decodeNamespace,
	}}
}

// decodeNamespace reads a namespace as its own storage does.
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

// split takes a key apart. Objects of no namespace have a key without a second part.
func (t *namespaceTxn) split(key string) (namespace, name string, namespaced bool) {
	rest, ok := strings.CutPrefix(key, t.objects)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}

// OptimisticPut creates if expected is 0, and updates otherwise.
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

// create tries again when the namespace was changed meanwhile and is still one to create in. What failed says in the same
// answer what has become of the namespace, so that a new attempt is one more call.
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
		case a.there:
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

// start is the namespace that a create goes by.
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

// change updates or deletes. That there is no namespace of the name is no obstacle, and its creation after the start is.
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
	// Of a failure: whether the object is there, the object if it was asked for, and the namespace, nil when there is none.
	there     bool
	found     *mvccpb.KeyValue
	namespace *mvccpb.KeyValue
}

// commit does something if the object is at the expected revision, the namespace meets its condition, and the entry of the
// transaction of Services that the write belongs to, if any, is there (servicewrites.go).
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
		a.there = true
		if getObject {
			a.found = kvs[0]
		}
	}
	if kvs := answer.Responses[1].GetResponseRange().GetKvs(); len(kvs) == 1 {
		a.namespace = kvs[0]
	}
	return a, nil
}
