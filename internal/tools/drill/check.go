package drill

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"portico.dev/internal/tools/toolclient"
)

// checkLimit bounds the duration of Check.
const checkLimit = 10 * time.Second

// needed lists the resources that a drill creates and deletes.
var needed = []authorizationv1.ResourceAttributes{
	{Version: "v1", Resource: "namespaces"},
	{Version: "v1", Resource: "services"},
	{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
	{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
}

// Check returns an error if no drill can run against the target: it is unreachable, does not serve APIServices, or
// the identity lacks a required permission. It changes nothing and takes at most ten seconds.
func (t Target) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	config := rest.CopyConfig(t.Config)
	config.QPS = -1 // too few requests to need client-side throttling
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("client of %s: %w", t.Name, err)
	}
	defer httpClient.CloseIdleConnections()
	client, err := toolclient.NewForHTTPClient(config, httpClient)
	if err != nil {
		return fmt.Errorf("client of %s: %w", t.Name, err)
	}
	server := client.REST()
	if err := server.Get().AbsPath("/apis/apiregistration.k8s.io/v1").Do(ctx).Error(); err != nil {
		return fmt.Errorf("ask %s for its APIServices: %w", config.Host, err)
	}
	var missing []string
	for _, attributes := range needed {
		for _, verb := range []string{"create", "delete"} {
			attributes.Verb = verb
			allowed, err := mayDo(ctx, server, attributes)
			if err != nil {
				return fmt.Errorf("ask %s for the rights of this identity: %w", config.Host, err)
			}
			if !allowed {
				missing = append(missing, verb+" "+attributes.Resource)
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("this identity is not allowed to %s at %s; use one that is", strings.Join(missing, ", "), config.Host)
	}
	return nil
}

func mayDo(ctx context.Context, server rest.Interface, what authorizationv1.ResourceAttributes) (bool, error) {
	review := authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectAccessReview", APIVersion: "authorization.k8s.io/v1"},
		Spec:     authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what},
	}
	body, err := json.Marshal(review)
	if err != nil {
		return false, err
	}
	answer, err := server.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").Body(body).
		SetHeader("Content-Type", jsonType).SetHeader("Accept", jsonType).Do(ctx).Raw()
	if err != nil {
		return false, err
	}
	err = json.Unmarshal(answer, &review)
	return review.Status.Allowed, err
}
