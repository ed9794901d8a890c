package coreapi

import (
	"context"
	"errors"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/coreapi/admission/certificates"
)

// podCertificateStatus is the door of signers. Who may write to it may do so for every signer, so that it asks for the
// right to sign in the name of the one that the request is for. That is no plugin, which somebody could turn off.
type podCertificateStatus struct {
	statusStrategy
	authorizer authorizer.Authorizer
}

func (s podCertificateStatus) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	if errs := s.statusStrategy.ValidateUpdate(ctx, obj, old); len(errs) > 0 {
		return errs
	}
	request, before := obj.(*certificatesv1.PodCertificateRequest), old.(*certificatesv1.PodCertificateRequest)
	if apiequality.Semantic.DeepEqual(request.Status, before.Status) {
		return nil
	}
	path, signer := field.NewPath("spec", "signerName"), before.Spec.SignerName
	user, known := apirequest.UserFrom(ctx)
	if !known {
		return field.ErrorList{field.InternalError(path, errors.New("there is no user whose right to sign could be checked"))}
	}
	if !certificates.MayFor(ctx, s.authorizer, user, "sign", signer) {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("User %q is not permitted to \"sign\" for signer %q", user.GetName(), signer))}
	}
	return nil
}
