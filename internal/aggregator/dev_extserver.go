package aggregator

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"portico.dev/internal/clients"
	"portico.dev/internal/extserver"
	"portico.dev/internal/extserver/registration"
	"portico.dev/internal/pki"
	"portico.dev/pkg/extension"
)

const (
	devNamespace = "kube-system"
	devName      = "portico-extserver"
	// fieldManager owns the fields that `aggregator dev` applies.
	fieldManager = "portico-dev"
)

// applyRights applies the identity and the rights that `extserver manifests --create-registration` prints. Only the
// running server knows its port, so it must write its Service and its APIServices. It may write only these.
func applyRights(ctx context.Context, admin *rest.Config) error {
	rights, err := extserver.Rights(extserver.Options{
		Options: extension.Options{ServiceNamespace: devNamespace, ServiceName: devName, CreateRegistration: true},
	})
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(admin)
	if err != nil {
		return fmt.Errorf("client of an administrator: %w", err)
	}
	for _, m := range rights {
		object, err := toUnstructured(m)
		if err != nil {
			return fmt.Errorf("manifest %s: %w", m, err)
		}
		// The plural of every kind here is its lower-case name with an s.
		resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		var target dynamic.ResourceInterface = client.Resource(resource)
		if ns := object.GetNamespace(); ns != "" {
			target = client.Resource(resource).Namespace(ns)
		}
		if _, err := target.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
			return fmt.Errorf("apply %s: %w", m, err)
		}
	}
	return nil
}

// waitForRights waits until the rights have reached the informers. An extension server that may not read the
// authentication configuration ends at once, as it should if no administrator is about to grant the right.
func waitForRights(ctx context.Context, admin *rest.Config) error {
	client, err := clients.New(admin)
	if err != nil {
		return fmt.Errorf("client of an administrator: %w", err)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: serviceaccount.MakeUsername(devNamespace, devName),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "get", Version: "v1", Resource: "configmaps", Namespace: metav1.NamespaceSystem, Name: "extension-apiserver-authentication",
		},
	}}
	err = wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return answer.Status.Allowed, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the rights of service account %s/%s: %w", devNamespace, devName, err)
	}
	return nil
}

func toUnstructured(m registration.Manifest) (*unstructured.Unstructured, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	return object, object.UnmarshalJSON(text)
}

// tokenFile is a file with a token of the extension server's service account, as in a pod.
type tokenFile struct {
	admin *rest.Config
	file  string
	log   *zap.Logger
}

const (
	tokenLife  = 2 * time.Hour
	tokenRenew = time.Hour
	tokenRetry = time.Minute
)

func (t *tokenFile) write(ctx context.Context) error {
	client, err := clients.New(t.admin)
	if err != nil {
		return fmt.Errorf("client of an administrator: %w", err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(tokenLife / time.Second)),
	}}
	answer, err := client.CoreV1().ServiceAccounts(devNamespace).CreateToken(ctx, devName, request, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("token of service account %s/%s: %w", devNamespace, devName, err)
	}
	return pki.WriteFile(t.file, []byte(strings.TrimSpace(answer.Status.Token)), 0o600)
}

// renew writes a new token long before the old one expires, until ctx ends.
func (t *tokenFile) renew(ctx context.Context) error {
	wait := tokenRenew
	for {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		wait = tokenRenew
		bounded, cancel := context.WithTimeout(ctx, prepareTimeout)
		if err := t.write(bounded); err != nil && ctx.Err() == nil {
			t.log.Warn("failed to renew the extension server's token; the current token is still valid", zap.Error(err))
			wait = tokenRetry
		}
		cancel()
	}
}
