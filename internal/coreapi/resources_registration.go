package coreapi

import (
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/validate"
)

func apiServiceResource() resource {
	return resource{
		name: "apiservices", singular: "apiservice", categories: []string{"api-extensions"}, clusterScoped: true,
		object: &apiregistrationv1.APIService{}, list: &apiregistrationv1.APIServiceList{},
		rules:     validate.Full(validate.ValidateAPIService, validate.ValidateAPIServiceUpdate, validate.ValidateAPIServiceStatus),
		defaults:  defaults.Of(defaults.DefaultAPIService),
		warnings:  validate.Warn(validate.WarningsOfAPIService),
		columns:   columns.APIServiceColumns,
		directory: "apiregistration.k8s.io/apiservices", cached: true,
		spec:          specOf(func(a *apiregistrationv1.APIService) *apiregistrationv1.APIServiceSpec { return &a.Spec }),
		status:        statusOf(func(a *apiregistrationv1.APIService) *apiregistrationv1.APIServiceStatus { return &a.Status }),
		prepareCreate: stampLocal, guard: guardAPIService, warn: warnAPIService,
	}
}
