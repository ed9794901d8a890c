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

	"portico.dev/internal/apiclient"
	"portico.dev/internal/auth/ttlcache"
	"portico.dev/pkg/extension"
)

const (
	namespacePath = "/api/v1/namespaces"
	// shareList is how old the list of all namespaces may be, so that watchers that poll together cost one read.
	shareList = time.Second
)

// namespaces reads and writes namespaces as the server. Nothing here depends on who asks.
type namespaces struct {
	client  *apiclient.Client
	trouble atomic.Pointer[error]

	turn chan struct{} // admits one read of the list at a time; its holder may write what follows
	read time.Time     // when the read of list began
	list []corev1.Namespace

	mu    sync.Mutex
	wrote time.Time // when a namespace was last made or deleted here
}

func newNamespaces(client *apiclient.Client) *namespaces {
	return &namespaces{client: client, turn: make(chan struct{}, 1)}
}

// LastError is why the list could not be read last time, nil when it could.
func (n *namespaces) LastError() error {
	if p := n.trouble.Load(); p != nil {
		return *p
	}
	return nil
}

// all lists every namespace as of notBefore or later, sorted by name. The result is shared and must not be changed.
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

// delete deletes the namespace that has this name and UID, and no other that came after it.
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
	// rememberReviews bounds the memory: some ten callers of two thousand namespaces, at a hundred bytes each.
	rememberReviews = 20_000
	// concurrentReviews bounds the questions in flight, those of all callers together.
	concurrentReviews = 16
)

// reviews asks the front door what callers may do with namespaces.
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

// remembered is may, with an answer that is at most as old as Config.ReviewAge.
func (r *reviews) remembered(ctx context.Context, who user.Info, verb, namespace string) (bool, error) {
	spec := question(who, verb, namespace)
	// Plain strings cannot fail to be encoded. The key is the whole question: two callers share an answer only when
	// authorization cannot tell them apart.
	encoded, _ := json.Marshal(spec)
	key := sha256.Sum256(encoded)
	if allowed, ok := r.memory.Get(key); ok {
		return allowed, nil
	}
	asked := time.Now()
	allowed, err := r.ask(ctx, spec)
	if err == nil {
		r.memory.Add(key, allowed, asked.Add(r.age))
	}
	return allowed, err
}

// may asks whether who may do verb to a namespace; without a name, to all of them.
func (r *reviews) may(ctx context.Context, who user.Info, verb, namespace string) (bool, error) {
	return r.ask(ctx, question(who, verb, namespace))
}

func question(who user.Info, verb, namespace string) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups(),
		// As the front door reads GET /api/v1/namespaces/a: the object a, which lies in the namespace a, so that a role
		// bound there counts.
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

func (r *reviews) ask(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (bool, error) {
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
