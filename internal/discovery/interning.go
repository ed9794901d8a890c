package discovery

import (
	"strings"
	"unique"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxLists bounds the lists that a pool knows. There are a few hundred ways in which servers list verbs and short names.
const maxLists = 4096

// pool has what backends say once: a thousand of them say the same verbs and categories, and keep each word of them as
// long as they are registered.
type pool struct {
	lists  map[string][]string // by their words
	noKind metav1.GroupVersionKind
}

func newPool() *pool { return &pool{lists: map[string][]string{}} }

// pack returns resources that say the same, in words and lists that are there already. It changes nothing: resources may
// be in a snapshot that is being read.
func (p *pool) pack(resources []apidiscoveryv2.APIResourceDiscovery) []apidiscoveryv2.APIResourceDiscovery {
	if len(resources) == 0 {
		return resources
	}
	packed := make([]apidiscoveryv2.APIResourceDiscovery, len(resources))
	for i, r := range resources {
		packed[i] = apidiscoveryv2.APIResourceDiscovery{
			Resource: once(r.Resource), SingularResource: once(r.SingularResource), Scope: once(r.Scope),
			ResponseKind: p.kind(r.ResponseKind), Verbs: p.list(r.Verbs), ShortNames: p.list(r.ShortNames),
			Categories: p.list(r.Categories), Subresources: p.subresources(r.Subresources),
		}
	}
	return packed
}

func (p *pool) subresources(all []apidiscoveryv2.APISubresourceDiscovery) []apidiscoveryv2.APISubresourceDiscovery {
	if len(all) == 0 {
		return all
	}
	packed := make([]apidiscoveryv2.APISubresourceDiscovery, len(all))
	for i, s := range all {
		packed[i] = apidiscoveryv2.APISubresourceDiscovery{
			Subresource: once(s.Subresource), ResponseKind: p.kind(s.ResponseKind), AcceptedTypes: s.AcceptedTypes, Verbs: p.list(s.Verbs),
		}
	}
	return packed
}

// kind is the same kind. Most subresources say that they have the kind of their resource by an empty one.
func (p *pool) kind(k *metav1.GroupVersionKind) *metav1.GroupVersionKind {
	switch {
	case k == nil:
		return nil
	case *k == metav1.GroupVersionKind{}:
		return &p.noKind
	}
	return &metav1.GroupVersionKind{Group: once(k.Group), Version: once(k.Version), Kind: once(k.Kind)}
}

// list is a list with the words of l. An empty list stays what it is: to some clients no list is something else.
func (p *pool) list(l []string) []string {
	if len(l) == 0 {
		return l
	}
	key := strings.Join(l, "\x00")
	if known, ok := p.lists[key]; ok {
		return known
	}
	words := make([]string, len(l))
	for i := range l {
		words[i] = once(l[i])
	}
	if len(p.lists) < maxLists {
		p.lists[key] = words
	}
	return words
}

// once is s, and the same bytes for every s that says the same.
func once[S ~string](s S) S { return unique.Make(s).Value() }
