package semantics

import (
	"fmt"
	"hash/fnv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"portico.dev/internal/coreapi/kinds/cluster"
)

// sample is an object from which a kind can be created, with the properties of the kind for the tests.
type sample struct {
	// text is YAML. The object gets a name of the test's choice.
	text string
	// rename gives an object a name that contains name and matches its content. Nil: name itself. With it, no name can be
	// generated.
	rename func(o *unstructured.Unstructured, name string)
	// lingers: another component must complete a deletion.
	lingers bool
	// namesItself: an object without a name is given one.
	namesItself bool
}

// sampleOf returns the first sample in the descriptor of a kind, with the additions below. A new kind needs no addition.
func sampleOf(groupVersion, resource string) sample {
	s := beyondDescriptors[groupVersion+"/"+resource]
	if s.text == "" {
		s.text = described[groupVersion+"/"+resource]
	}
	return s
}

// described are the first samples in the descriptors, by group-version and resource.
var described = func() map[string]string {
	all := map[string]string{}
	for _, g := range cluster.All() {
		for _, v := range g.Virtual {
			if len(v.Samples) > 0 {
				all[g.Version.String()+"/"+v.Name] = v.Samples[0]
			}
		}
		for _, r := range g.Resources {
			if len(r.Samples) == 0 {
				continue
			}
			all[g.Version.String()+"/"+r.Name] = r.Samples[0]
			for _, also := range r.AlsoServedIn {
				all[also.String()+"/"+r.Name] = r.Samples[0]
			}
		}
	}
	return all
}()

// beyondDescriptors contains additions to the samples: names that depend on the content, exceptions from the checks of every
// kind, and kinds without a descriptor.
var beyondDescriptors = map[string]sample{
	"v1/limitranges": {namesItself: true},
	"v1/namespaces":  {lingers: true},

	"apiregistration.k8s.io/v1/apiservices": {rename: func(o *unstructured.Unstructured, name string) {
		group := name + ".example.com"
		o.SetName("v1." + group)
		o.Object["spec"].(map[string]any)["group"] = group
	}},
	"routing.portico.dev/v1alpha1/apiroutes": {rename: func(o *unstructured.Unstructured, name string) {
		o.SetName("v1beta1." + name + ".custom.metrics.k8s.io")
		delete(o.Object["spec"].(map[string]any), "rules") // they are about metrics, which only one group has
	}},
	"networking.k8s.io/v1/ipaddresses": {rename: func(o *unstructured.Unstructured, name string) {
		hash := fnv.New32()
		_, _ = hash.Write([]byte(name)) // never fails
		o.SetName(fmt.Sprintf("10.98.%d.%d", hash.Sum32()>>8&0xff, hash.Sum32()&0xff))
	}},

	// Definitions are served by k8s.io/apiextensions-apiserver, which has no descriptors.
	"apiextensions.k8s.io/v1/customresourcedefinitions": {lingers: true,
		text: `{spec: {scope: Namespaced, names: {plural: things, singular: thing, kind: Thing},
		  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`,
		rename: func(o *unstructured.Unstructured, name string) {
			group := name + ".example.com"
			o.SetName("things." + group)
			o.Object["spec"].(map[string]any)["group"] = group
		}},
	"every.example.com/v1/boats": {text: `{spec: {crew: 1}}`},
	"every.example.com/v1/ports": {text: `{}`},
}

// definitions of the two custom resources with the same checks as built-in kinds: one with namespaces and all subresources, and
// one without.
var definitions = []string{`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.every.example.com}
spec:
  group: every.example.com
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.crew, statusReplicasPath: .status.crew}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {crew: {type: integer}}}
          status: {type: object, properties: {crew: {type: integer}}}
`, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ports.every.example.com}
spec:
  group: every.example.com
  scope: Cluster
  names: {plural: ports, singular: port, kind: Port}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`}
