package coreapi

import (
	"slices"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
)

func TestDiscovery(t *testing.T) {
	h := start(t)
	d := h.Discovery()
	find := func(group, resource string) apidiscoveryv2.APIResourceDiscovery {
		for _, g := range slices.Concat(d.Core, d.Groups) {
			if g.Name != group {
				continue
			}
			for _, r := range g.Versions[0].Resources {
				if r.Resource == resource {
					return r
				}
			}
		}
		t.Fatalf("discovery has no resource %s in the group %q, want one", resource, group)
		return apidiscoveryv2.APIResourceDiscovery{}
	}

	for _, c := range []struct{ group, resource, verbs, short, singular, subresources string }{
		{"", "namespaces", "create delete get list patch update watch", "ns", "namespace", "finalize status"},
		{"", "configmaps", "create delete deletecollection get list patch update watch", "cm", "configmap", ""},
		{"", "serviceaccounts", "create delete deletecollection get list patch update watch", "sa", "serviceaccount", "token"},
		{"", "pods", "create delete deletecollection get list patch update watch", "po", "pod", "attach binding ephemeralcontainers eviction exec log portforward proxy resize status"},
		{"", "componentstatuses", "get list", "cs", "componentstatus", ""},
		{"certificates.k8s.io", "certificatesigningrequests", "create delete deletecollection get list patch update watch", "csr", "certificatesigningrequest", "approval status"},
		{"certificates.k8s.io", "clustertrustbundles", "create delete deletecollection get list patch update watch", "", "clustertrustbundle", ""},
		{"certificates.k8s.io", "podcertificaterequests", "create delete deletecollection get list patch update watch", "", "podcertificaterequest", "status"},
		{"storage.k8s.io", "csinodes", "create delete deletecollection get list patch update watch", "", "csinode", "status"},
		{"apiregistration.k8s.io", "apiservices", "create delete deletecollection get list patch update watch", "", "apiservice", "status"},
		{"events.k8s.io", "events", "create delete deletecollection get list patch update watch", "ev", "event", ""},
		{"authentication.k8s.io", "tokenreviews", "create", "", "tokenreview", ""},
		{"authentication.k8s.io", "selfsubjectreviews", "create", "", "selfsubjectreview", ""},
		{"authorization.k8s.io", "localsubjectaccessreviews", "create", "", "localsubjectaccessreview", ""},
		{"flowcontrol.apiserver.k8s.io", "flowschemas", "create delete deletecollection get list patch update watch", "", "flowschema", "status"},
		{"admissionregistration.k8s.io", "validatingadmissionpolicies", "create delete deletecollection get list patch update watch", "", "validatingadmissionpolicy", "status"},
	} {
		t.Run(c.group+"/"+c.resource, func(t *testing.T) {
			r := find(c.group, c.resource)
			verbs := slices.Sorted(slices.Values(r.Verbs))
			var subresources []string
			for _, s := range r.Subresources {
				subresources = append(subresources, s.Subresource)
			}
			slices.Sort(subresources)
			got := []string{strings.Join(verbs, " "), strings.Join(r.ShortNames, " "), r.SingularResource, strings.Join(subresources, " ")}
			if want := []string{c.verbs, c.short, c.singular, c.subresources}; !slices.Equal(got, want) {
				t.Fatalf("verbs, short names, singular and subresources of %s = %q, want %q", c.resource, got, want)
			}
			if r.ResponseKind == nil || r.ResponseKind.Kind == "" {
				t.Fatalf("responseKind = %v, want a kind", r.ResponseKind)
			}
		})
	}
	discovered := len(d.Core)
	for _, group := range d.Groups {
		discovered += len(group.Versions)
	}
	if versions := h.BuiltIn(); len(versions) != discovered || versions[0].String() != "v1" {
		t.Fatalf("BuiltIn() = %v, want %d group-versions, the first v1", versions, discovered)
	}
}

func TestLegacyDocuments(t *testing.T) {
	h := start(t)
	client, err := discovery.NewDiscoveryClientForConfig(h.ClientConfig(admin))
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range h.BuiltIn() {
		list, err := client.ServerResourcesForGroupVersion(version.String())
		if err != nil || len(list.APIResources) == 0 {
			t.Fatalf("discovery of %s = %v, %v, want at least one resource", version, list, err)
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") && r.SingularName == "" {
				t.Errorf("%s %s has no singular name, want one", version, r.Name)
			}
		}
	}
	list, err := client.ServerResourcesForGroupVersion("apiregistration.k8s.io/v1")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == "apiservices" })
	if i < 0 || !slices.Equal(list.APIResources[i].Categories, []string{"api-extensions"}) {
		t.Fatalf("resources = %v, want apiservices with the category api-extensions", list)
	}
}
