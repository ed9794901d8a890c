package projects

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/auth/ttlcache"
	"portico.dev/internal/extension/frontdoor"
)

const (
	reviewPath = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
	// rememberReviews bounds the memory: some ten callers of two thousand namespaces, at a hundred bytes each.
	rememberReviews = 20_000
	// concurrentReviews bounds the questions in flight, those of all callers together.
	concurrentReviews = 16
)

// reviews asks the front door what callers may do with namespaces.
type reviews struct {
	client *frontdoor.Client
	age    time.Duration
	memory *ttlcache.Cache[[sha256.Size]byte, bool]
	slots  *semaphore.Weighted
}

func newReviews(client *frontdoor.Client, age time.Duration) *reviews {
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
