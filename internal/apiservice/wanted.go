package apiservice

import (
	"fmt"
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// wanted is which Local APIServices there should be: the built-in ones, fixed at start, and those of CRDs, which come
// and go.
type wanted struct {
	builtIn map[string]*apiregistrationv1.APIService
	// unlisted are local group-versions without a known priority. They get no APIService but are served all the same.
	unlisted map[string]*apiregistrationv1.APIService
	crds     apiextensionslisters.CustomResourceDefinitionLister // nil where CRDs are not served
}

func newWanted(local []schema.GroupVersion, crds apiextensionslisters.CustomResourceDefinitionLister) *wanted {
	w := &wanted{
		builtIn:  make(map[string]*apiregistrationv1.APIService),
		unlisted: make(map[string]*apiregistrationv1.APIService),
		crds:     crds,
	}
	for _, gv := range local {
		if gv == ownGroupVersion {
			continue
		}
		p, ok := priorityOf(gv)
		if !ok {
			w.unlisted[apiServiceName(gv)] = localAPIService(gv, unlistedPriority, "")
			continue
		}
		w.builtIn[apiServiceName(gv)] = localAPIService(gv, p, managedOnStart)
	}
	return w
}

// get returns the APIService that should exist under a name, nil when none should. As upstream, a built-in
// group-version is not given up to a CRD that declares it too.
func (w *wanted) get(name string) (*apiregistrationv1.APIService, error) {
	if builtIn, ok := w.builtIn[name]; ok {
		return builtIn, nil
	}
	if w.crds == nil {
		return nil, nil
	}
	crds, err := w.crds.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list custom resource definitions: %w", err)
	}
	for _, crd := range crds {
		for _, gv := range servedBy(crd) {
			if apiServiceName(gv) == name && gv.Group != ownGroupVersion.Group {
				return localAPIService(gv, customPriority, managedAlways), nil
			}
		}
	}
	return nil, nil
}

// servedBy is the group-versions that a CRD serves. Like upstream it does not wait for the Established condition: a
// request that comes early is answered by the CRD handler, which knows.
func servedBy(crd *apiextensionsv1.CustomResourceDefinition) []schema.GroupVersion {
	var gvs []schema.GroupVersion
	for _, v := range crd.Spec.Versions {
		if v.Served {
			gvs = append(gvs, schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name})
		}
	}
	return gvs
}

// served is what a name stands for while it has no APIService: this server answers for a group-version that is its own
// whether or not the object is there yet, or still.
func (w *wanted) served(name string) (*apiregistrationv1.APIService, error) {
	if o, ok := w.unlisted[name]; ok {
		return o, nil
	}
	return w.get(name)
}

// names is every name that served knows.
func (w *wanted) names() ([]string, error) {
	names := slices.AppendSeq(slices.Collect(maps.Keys(w.builtIn)), maps.Keys(w.unlisted))
	if w.crds == nil {
		return names, nil
	}
	crds, err := w.crds.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list custom resource definitions: %w", err)
	}
	for _, crd := range crds {
		for _, gv := range servedBy(crd) {
			names = append(names, apiServiceName(gv))
		}
	}
	return names, nil
}

func localAPIService(gv schema.GroupVersion, p priority, managed string) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{
			Name:   apiServiceName(gv),
			Labels: map[string]string{managedLabel: managed},
		},
		Spec: apiregistrationv1.APIServiceSpec{
			Group:                gv.Group,
			Version:              gv.Version,
			GroupPriorityMinimum: p.group,
			VersionPriority:      p.version,
		},
	}
}
