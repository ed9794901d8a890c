package lifecycle

import (
	"fmt"
	"slices"
	"strings"
)

// The controllers that a kube-controller-manager has too, by its names for them. The others here are kube-apiserver's own.
const (
	NamespaceController      = "namespace-controller"
	GarbageCollector         = "garbage-collector-controller"
	ServiceAccountController = "serviceaccount-controller"
	RootCAPublisher          = "root-ca-certificate-publisher-controller"
	ClusterRoleAggregation   = "clusterrole-aggregation-controller"
	ResourceQuotaController  = "resourcequota-controller"
	PolicyStatusController   = "validatingadmissionpolicy-status-controller"
)

var choosable = []string{
	NamespaceController, GarbageCollector, ServiceAccountController, RootCAPublisher, ClusterRoleAggregation,
	ResourceQuotaController, PolicyStatusController,
}

// Choice selects the controllers that run here instead of in a kube-controller-manager, in the syntax of its --controllers:
// "*" is all, "name" is that one, "-name" is not that one. The first match decides; a controller that is not named runs if
// there is a "*". Nil selects all of them; an empty Choice none.
type Choice []string

// EveryController is the default: all controllers run here.
func EveryController() Choice { return Choice{"*"} }

// Runs reports whether a controller runs.
func (c Choice) Runs(name string) bool {
	if c == nil {
		return true
	}
	for _, word := range c {
		switch word {
		case name:
			return true
		case "-" + name:
			return false
		}
	}
	return slices.Contains(c, "*")
}

// Check returns an error that lists the unknown controllers.
func (c Choice) Check() error {
	for _, word := range c {
		if word != "*" && !slices.Contains(choosable, strings.TrimPrefix(word, "-")) {
			return fmt.Errorf("%q is not one of the controllers that can be left out; they are %s, and * is all of them",
				word, strings.Join(choosable, ", "))
		}
	}
	return nil
}
