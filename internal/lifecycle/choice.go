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

// Choice is which of the controllers run that can be left to a kube-controller-manager, in the words of its --controllers:
// "*" is all, "name" is that one, "-name" is not that one. The first that names a controller decides; one that nothing
// names runs where there is a "*". Nil is nobody's choice, and so all of them; an empty one is none.
type Choice []string

// EveryController is the default: nobody else is there to do it.
func EveryController() Choice { return Choice{"*"} }

// Runs says whether a controller runs.
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

// Check returns an error that names what is no controller.
func (c Choice) Check() error {
	for _, word := range c {
		if word != "*" && !slices.Contains(choosable, strings.TrimPrefix(word, "-")) {
			return fmt.Errorf("%q is not one of the controllers that can be left out; they are %s, and * is all of them",
				word, strings.Join(choosable, ", "))
		}
	}
	return nil
}
