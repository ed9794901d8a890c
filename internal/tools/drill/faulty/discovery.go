package faulty

import (
	"net/http"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// kind is the only kind of the group-version.
type kind struct {
	name, plural, singular string
	verbs                  []string
}

func (s *Server) kind() kind {
	if s.cfg.Stores {
		return kind{"Widget", "widgets", "widget", []string{
			"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch",
		}}
	}
	return kind{"Reading", "readings", "reading", []string{"get", "list"}}
}

// kinds returns the kinds that discovery lists.
func (s *Server) kinds(fault Fault) []kind {
	switch fault {
	case VanishingDiscovery:
		return nil
	case OtherDiscovery:
		return []kind{s.kind(), {"Gadget", "gadgets", "gadget", []string{"get", "list"}}}
	}
	return []kind{s.kind()}
}

func (s *Server) discovery(w http.ResponseWriter, r *http.Request, path string, fault Fault) {
	switch path {
	case "api":
		if aggregated(r) {
			s.answerAggregated(w, nil)
			return
		}
		answer(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{}})
	case "apis":
		if aggregated(r) {
			s.answerAggregated(w, []apidiscoveryv2.APIGroupDiscovery{s.groupDiscovery(fault)})
			return
		}
		answer(w, http.StatusOK, metav1.APIGroupList{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{s.group()},
		})
	case "apis/" + s.cfg.Group:
		g := s.group()
		g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		answer(w, http.StatusOK, g)
	case "apis/" + s.cfg.Group + "/v1":
		answer(w, http.StatusOK, s.resources(fault))
	default:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	}
}

func aggregated(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as=APIGroupDiscoveryList") && strings.Contains(r.Header.Get("Accept"), "v=v2")
}

func (s *Server) answerAggregated(w http.ResponseWriter, groups []apidiscoveryv2.APIGroupDiscovery) {
	if groups == nil {
		groups = []apidiscoveryv2.APIGroupDiscovery{}
	}
	write(w, http.StatusOK, aggregatedType, apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}, Items: groups,
	})
}

func (s *Server) groupDiscovery(fault Fault) apidiscoveryv2.APIGroupDiscovery {
	version := apidiscoveryv2.APIVersionDiscovery{
		Version: "v1", Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Resources: []apidiscoveryv2.APIResourceDiscovery{},
	}
	for _, k := range s.kinds(fault) {
		version.Resources = append(version.Resources, apidiscoveryv2.APIResourceDiscovery{
			Resource: k.plural, SingularResource: k.singular, Scope: apidiscoveryv2.ScopeNamespace, Verbs: k.verbs,
			ResponseKind: &metav1.GroupVersionKind{Group: s.cfg.Group, Version: "v1", Kind: k.name},
		})
	}
	return apidiscoveryv2.APIGroupDiscovery{
		ObjectMeta: metav1.ObjectMeta{Name: s.cfg.Group}, Versions: []apidiscoveryv2.APIVersionDiscovery{version},
	}
}

func (s *Server) group() metav1.APIGroup {
	v := metav1.GroupVersionForDiscovery{GroupVersion: s.cfg.Group + "/v1", Version: "v1"}
	return metav1.APIGroup{Name: s.cfg.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}
}

func (s *Server) resources(fault Fault) metav1.APIResourceList {
	list := metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: s.cfg.Group + "/v1",
		APIResources: []metav1.APIResource{},
	}
	for _, k := range s.kinds(fault) {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: k.plural, SingularName: k.singular, Namespaced: true, Kind: k.name, Verbs: k.verbs,
		})
	}
	return list
}
