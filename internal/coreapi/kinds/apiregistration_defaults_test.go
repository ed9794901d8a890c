package kinds_test

import (
	"testing"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestRegistrationDefaults(t *testing.T) {
	kindtest.Defaults(t, []kindtest.Default{
		{"an APIService", &apiregistrationv1.APIService{}, "spec: {service: {name: s}}",
			"metadata: {}\nspec: {service: {name: s, port: 443}, groupPriorityMinimum: 0, versionPriority: 0}\nstatus: {}"},
		{"a local APIService", &apiregistrationv1.APIService{}, "spec: {version: v1}",
			"metadata: {}\nspec: {version: v1, groupPriorityMinimum: 0, versionPriority: 0}\nstatus: {}"},
	})
}
