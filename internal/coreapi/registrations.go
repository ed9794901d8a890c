package coreapi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// ReplaceLocal is the verb, on an APIService by its name, of whoever may register a backend for a group-version that this
// server serves itself. A backend of v1. gets every Secret that is written, with the rights of whoever writes it, so the
// right to write APIServices is not enough.
const ReplaceLocal = "replace-local"

// guardAPIService lets nobody without that right send requests for local resources to a backend. A write that leaves the
// Service as it is takes nothing away from this server, and needs no right of its own.
func guardAPIService(ctx context.Context, g *guards, obj, old runtime.Object) error {
	service := obj.(*apiregistrationv1.APIService)
	if service.Spec.Service == nil || old != nil && apiequality.Semantic.DeepEqual(service.Spec.Service, old.(*apiregistrationv1.APIService).Spec.Service) {
		return nil
	}
	version := schema.GroupVersion{Group: service.Spec.Group, Version: service.Spec.Version}
	if !slices.Contains(g.builtIn, version) && g.beside.definitionOf(version.Group, version.Version) == "" {
		return nil
	}
	u, ok := apirequest.UserFrom(ctx)
	if !ok {
		return apierrors.NewInternalError(errors.New("no user on the request"))
	}
	resource := apiregistrationv1.Resource("apiservices")
	decision, _, err := g.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: u, Verb: ReplaceLocal, Name: service.Name, ResourceRequest: true,
		APIGroup: resource.Group, APIVersion: apiregistrationv1.SchemeGroupVersion.Version, Resource: resource.Resource,
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("ask whether %s is allowed: %w", ReplaceLocal, err))
	}
	return apierrors.NewForbidden(resource, service.Name, fmt.Errorf(
		"this server serves %s itself, and User %q cannot %s resource %q in API group %q at the cluster scope: "+
			"a ClusterRole with the verb %[3]q for this name allows it", version, u.GetName(), ReplaceLocal, resource.Resource, resource.Group))
}
