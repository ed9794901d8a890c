package projects

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/auth/ttlcache"
	"portico.dev/internal/clients/apiclient"
	"portico.dev/pkg/extension"
)

const (
	namespacePath = "/api/v1/namespaces"
	// shareList is the maximum age of a shared list of all namespaces, so that concurrent polls of watches cost one request.
	shareList = time.Second
)

// namespaces reads and writes namespaces with the server's identity. It is independent of the caller.
type namespaces struct {
	client  *apiclient.Client
	trouble atomic.Pointer[error]

	turn chan struct{} // serializes reads of the list; its holder may write the next two fields
	read time.Time     // start of the last successful list
	list []corev1.Namespace

	mu    sync.Mutex
	wrote time.Time // last creation or deletion by this server
}

func newNamespaces(client *apiclient.Client) *namespaces {
	return &namespaces{client: client, turn: make(chan struct{}, 1)}
}

// LastError returns the error of the last list, nil if it succeeded.
func (n *namespaces) LastError() error {
	if p := n.trouble.Load(); p != nil {
		return *p
	}
	return nil
}

// all returns all namespaces as of notBefore or later, sorted by name. The result is shared and must not be modified.
func (n *namespaces) all(ctx context.Context, notBefore time.Time) ([]corev1.Namespace, error) {
	select {
	case n.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-n.turn }()
	n.mu.Lock()
	if n.wrote.After(notBefore) {
		notBefore = n.wrote
	}
	n.mu.Unlock()
	if n.list != nil && !n.read.Before(notBefore) {
		return n.list, nil
	}
	began := time.Now()
	var list corev1.NamespaceList
	if err := n.client.Get(ctx, namespacePath, nil, "", &list); err != nil {
		if ctx.Err() == nil {
			n.trouble.Store(&err)
		}
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	n.trouble.Store(nil)
	slices.SortFunc(list.Items, func(a, b corev1.Namespace) int { return strings.Compare(a.Name, b.Name) })
	n.list, n.read = append([]corev1.Namespace{}, list.Items...), began
	return n.list, nil
}

func (n *namespaces) get(ctx context.Context, name string) (*corev1.Namespace, error) {
	var out corev1.Namespace
	err := n.client.Get(ctx, namespacePath+"/"+name, nil, "", &out)
	switch {
	case apiclient.HasReason(err, metav1.StatusReasonNotFound):
		return nil, extension.ErrNotFound
	case err != nil:
		return nil, fmt.Errorf("get namespace: %w", err)
	}
	return &out, nil
}

func (n *namespaces) create(ctx context.Context, name string, annotations map[string]string) (*corev1.Namespace, error) {
	defer n.written()
	var out corev1.Namespace
	err := n.client.Create(ctx, namespacePath, corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
	}, &out)
	if err != nil {
		return nil, fmt.Errorf("create namespace: %w", err)
	}
	return &out, nil
}

// delete deletes the namespace with this name and UID. It does not delete a newer namespace of the same name.
func (n *namespaces) delete(ctx context.Context, name string, uid types.UID, how *metav1.DeleteOptions) error {
	defer n.written()
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	if how != nil {
		options.PropagationPolicy = how.PropagationPolicy
	}
	return n.client.Delete(ctx, namespacePath+"/"+name, options)
}

func (n *namespaces) written() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wrote = time.Now()
}

const (
	reviewPath = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
	// rememberReviews limits the cache. It suffices for ten callers and two thousand namespaces, at a hundred bytes for each
	// decision.
	rememberReviews = 20_000
	// concurrentReviews limits concurrent reviews of all callers.
	concurrentReviews = 16
)

// reviews authorizes callers for namespaces with SubjectAccessReviews.
type reviews struct {
	client *apiclient.Client
	age    time.Duration
	memory *ttlcache.Cache[[sha256.Size]byte, bool]
	slots  *semaphore.Weighted
}

func newReviews(client *apiclient.Client, age time.Duration) *reviews {
	return &reviews{
		client: client, age: age,
		memory: ttlcache.New[[sha256.Size]byte, bool](rememberReviews),
		slots:  semaphore.NewWeighted(concurrentReviews),
	}
}

// remembered is like may, but the decision may be up to Config.ReviewAge old.
func (r *reviews) remembered(ctx context.Context, who user.Info, verb, namespace string) (bool, error) {
	spec := question(who, verb, namespace)
	// Encoding plain strings cannot fail. The key contains the entire spec, so two callers share a decision only if
	// authorization cannot distinguish them.
	encoded, _ := json.Marshal(spec)
	key := sha256.Sum256(encoded)
	if allowed, ok := r.memory.Get(key); ok {
		return allowed, nil
	}
	asked := time.Now()
	allowed, err := r.review(ctx, spec)
	if err == nil {
		r.memory.Add(key, allowed, asked.Add(r.age))
	}
	return allowed, err
}

// may reports whether who may perform verb on a namespace, or on all namespaces if the name is empty.
func (r *reviews) may(ctx context.Context, who user.Info, verb, namespace string) (bool, error) {
	return r.review(ctx, question(who, verb, namespace))
}

func question(who user.Info, verb, namespace string) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups(),
		// As the front door authorizes GET /api/v1/namespaces/a: the object a in the namespace a, so that role bindings in
		// the namespace apply.
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Version: "v1", Resource: "namespaces", Namespace: namespace, Name: namespace,
		},
	}
	for k, v := range who.GetExtra() {
		if spec.Extra == nil {
			spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		spec.Extra[k] = v
	}
	return spec
}

func (r *reviews) review(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	if err := r.slots.Acquire(ctx, 1); err != nil {
		return false, fmt.Errorf("review access: %d reviews are in flight already: %w", concurrentReviews, err)
	}
	defer r.slots.Release(1)
	review := authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"},
		Spec:     spec,
	}
	var reply authorizationv1.SubjectAccessReview
	if err := r.client.Create(ctx, reviewPath, review, &reply); err != nil {
		return false, fmt.Errorf("review access: %w", err)
	}
	return reply.Status.Allowed && !reply.Status.Denied, nil
}
