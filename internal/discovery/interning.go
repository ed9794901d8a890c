package discovery

import (
	"strings"
	"unique"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxLists is the maximum number of lists that an interner keeps. Servers use a few hundred different lists of verbs and
// short names.
const maxLists = 4096

// interner keeps one copy of values that many backends share: a thousand backends list the same verbs and categories.
type interner struct {
	lists  map[string][]string // key is the joined list
	noKind metav1.GroupVersionKind
}

func newInterner() *interner { return &interner{lists: map[string][]string{}} }

// resources returns equal resources that share interned strings and lists. It does not modify its argument, because
// resources may be in a snapshot that is being read.
func (p *interner) resources(resources []apidiscoveryv2.APIResourceDiscovery) []apidiscoveryv2.APIResourceDiscovery {
	if len(resources) == 0 {
		return resources
	}
	packed := make([]apidiscoveryv2.APIResourceDiscovery, len(resources))
	for i, r := range resources {
		packed[i] = apidiscoveryv2.APIResourceDiscovery{
			Resource: intern(r.Resource), SingularResource: intern(r.SingularResource), Scope: intern(r.Scope),
			ResponseKind: p.kind(r.ResponseKind), Verbs: p.list(r.Verbs), ShortNames: p.list(r.ShortNames),
			Categories: p.list(r.Categories), Subresources: p.subresources(r.Subresources),
		}
	}
	return packed
}

func (p *interner) subresources(all []apidiscoveryv2.APISubresourceDiscovery) []apidiscoveryv2.APISubresourceDiscovery {
	if len(all) == 0 {
		return all
	}
	packed := make([]apidiscoveryv2.APISubresourceDiscovery, len(all))
	for i, s := range all {
		packed[i] = apidiscoveryv2.APISubresourceDiscovery{
			Subresource: intern(s.Subresource), ResponseKind: p.kind(s.ResponseKind), AcceptedTypes: s.AcceptedTypes, Verbs: p.list(s.Verbs),
		}
	}
	return packed
}

// kind returns an equal kind. Most subresources have an empty kind, which means the kind of their resource.
func (p *interner) kind(k *metav1.GroupVersionKind) *metav1.GroupVersionKind {
	switch {
	case k == nil:
		return nil
	case *k == metav1.GroupVersionKind{}:
		return &p.noKind
	}
	return &metav1.GroupVersionKind{Group: intern(k.Group), Version: intern(k.Version), Kind: intern(k.Kind)}
}

// list returns an equal, interned list. An empty list is returned unchanged, because some clients distinguish it from a
// missing list.
func (p *interner) list(l []string) []string {
	if len(l) == 0 {
		return l
	}
	key := strings.Join(l, "\x00")
	if known, ok := p.lists[key]; ok {
		return known
	}
	words := make([]string, len(l))
	for i := range l {
		words[i] = intern(l[i])
	}
	if len(p.lists) < maxLists {
		p.lists[key] = words
	}
	return words
}

// intern returns a string equal to s. Equal strings share their bytes.
func intern[S ~string](s S) S { return unique.Make(s).Value() }
