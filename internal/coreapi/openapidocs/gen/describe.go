package main

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/emicklei/go-restful/v3"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/rest"

	"portico.dev/internal/coreapi/kinds/cluster"
	"portico.dev/internal/coreapi/openapidocs/build"
	"portico.dev/internal/coreapi/registry"
)

// described is the document of one group-version, or, without a path, the version 2 document of all group-versions that are on by
// default. The others have their own version 2 documents.
type described struct {
	path          string
	body, swagger []byte
}

// describe returns a version 3 document for each group-version, and the documents of version 2. It builds them from
// k8s.io/apiserver's routes: k8s.io/apiserver derives the parameters, operation names and extensions (x-kubernetes-action,
// x-kubernetes-group-version-kind) that kubectl requires from storages, so describe creates storages.
func describe(groups []apidiscoveryv2.APIGroupDiscovery) ([]described, error) {
	var on, all []schema.GroupVersion
	for _, g := range groups {
		for _, v := range g.Versions {
			gv := schema.GroupVersion{Group: g.Name, Version: v.Version}
			if all = append(all, gv); !optIn(gv) {
				on = append(on, gv)
			}
		}
	}
	scheme, err := newScheme(on)
	if err != nil {
		return nil, err
	}
	everyKind, err := newScheme(all)
	if err != nil {
		return nil, err
	}
	var documents []described
	var everything []*restful.WebService
	for _, g := range groups {
		for _, v := range g.Versions {
			gv, scheme := schema.GroupVersion{Group: g.Name, Version: v.Version}, scheme
			if optIn(gv) {
				scheme = everyKind
			}
			routes, err := routesOf(scheme, gv, v.Resources)
			if err != nil {
				return nil, fmt.Errorf("describe %s: %w", gv, err)
			}
			d := described{path: rootOf(gv)[1:] + "/" + suffixOf(gv)}
			if d.body, err = document(3, scheme, routes); err != nil {
				return nil, fmt.Errorf("describe %s: %w", gv, err)
			}
			if !optIn(gv) {
				everything = append(everything, routes...)
			} else if d.swagger, err = document(2, scheme, routes); err != nil {
				return nil, fmt.Errorf("describe %s in version 2: %w", gv, err)
			}
			documents = append(documents, d)
		}
	}
	body, err := document(2, scheme, everything)
	if err != nil {
		return nil, fmt.Errorf("describe everything in version 2: %w", err)
	}
	return append(documents, described{body: body}), nil
}

// optIn reports whether a group-version is off by default.
func optIn(gv schema.GroupVersion) bool {
	return slices.ContainsFunc(cluster.All(), func(g registry.Group) bool { return g.Version == gv && g.OptIn })
}

// routesOf returns the routes of the resources of a group-version.
func routesOf(scheme *runtime.Scheme, gv schema.GroupVersion, resources []apidiscoveryv2.APIResourceDiscovery) ([]*restful.WebService, error) {
	storage, err := storages(scheme, gv, resources)
	if err != nil {
		return nil, err
	}
	group := &endpoints.APIGroupVersion{
		Root:                   rootOf(gv),
		GroupVersion:           gv,
		OptionsExternalVersion: &schema.GroupVersion{Version: "v1"},
		Storage:                storage,

		Serializer:            serializer.NewCodecFactory(scheme),
		ParameterCodec:        runtime.NewParameterCodec(scheme),
		Typer:                 scheme,
		Creater:               scheme,
		Convertor:             scheme,
		ConvertabilityChecker: scheme,
		UnsafeConvertor:       runtime.UnsafeObjectConvertor(scheme),
		Defaulter:             scheme,
		Namer:                 runtime.Namer(meta.NewAccessor()),
		TypeConverter:         managedfields.NewDeducedTypeConverter(), // required but not used, because no object is written

		EquivalentResourceRegistry: runtime.NewEquivalentResourceRegistry(),
	}
	container := restful.NewContainer()
	routed, _, err := group.InstallREST(container)
	if err != nil {
		return nil, err
	}
	if err := sameVerbs(resources, routed); err != nil {
		return nil, err
	}
	return container.RegisteredWebServices(), nil
}

func document(version int, scheme *runtime.Scheme, routes []*restful.WebService) ([]byte, error) {
	return build.Document(version, routes, openapi.NewDefinitionNamer(scheme).GetDefinitionName, knownDefinitions)
}

// storages returns a storage with the right verbs for each resource and subresource.
func storages(scheme *runtime.Scheme, gv schema.GroupVersion, resources []apidiscoveryv2.APIResourceDiscovery) (map[string]rest.Storage, error) {
	all := map[string]rest.Storage{}
	for _, r := range resources {
		namespaced := r.Scope == apidiscoveryv2.ScopeNamespace
		f, err := factsOf(scheme, gv, r.ResponseKind, namespaced, r.SingularResource)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Resource, err)
		}
		if all[r.Resource], err = storageFor(r.Verbs, false, f); err != nil {
			return nil, fmt.Errorf("%s: %w", r.Resource, err)
		}
		for _, s := range r.Subresources {
			name := r.Resource + "/" + s.Subresource
			f, err := factsOf(scheme, gv, s.ResponseKind, namespaced, r.SingularResource)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if name == "pods/log" && gv.Group == "" {
				all[name] = logs{f}
				continue
			}
			if all[name], err = storageFor(s.Verbs, true, f); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return all, nil
}

// sameVerbs compares the served verbs with the described ones.
func sameVerbs(served, routed []apidiscoveryv2.APIResourceDiscovery) error {
	if want, got := verbsOf(served), verbsOf(routed); !reflect.DeepEqual(want, got) {
		return fmt.Errorf("the routes of the document are %v, served are %v", got, want)
	}
	return nil
}

func verbsOf(resources []apidiscoveryv2.APIResourceDiscovery) map[string][]string {
	verbs := map[string][]string{}
	for _, r := range resources {
		verbs[r.Resource] = r.Verbs
		for _, s := range r.Subresources {
			verbs[r.Resource+"/"+s.Subresource] = s.Verbs
		}
	}
	return verbs
}

func rootOf(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api"
	}
	return "/apis"
}

func suffixOf(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return gv.Version
	}
	return gv.Group + "/" + gv.Version
}
