package thirdparty

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// isServiceAccount reviews a token, and reports whether it is a service account's with the name of its namespace.
func (d *frontDoor) isServiceAccount(ctx context.Context, token, name string) bool {
	review, err := d.typed.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	return err == nil && review.Status.Authenticated && review.Status.User.Username == "system:serviceaccount:"+name+":"+name
}
