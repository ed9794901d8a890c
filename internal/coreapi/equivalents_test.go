package coreapi

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// view is one of the group-versions through which clients access the same stored objects.
type view struct {
	resource schema.GroupVersionResource
	text     string // an object in YAML
}

func viewOf(group, version, resource, kind, text string) view {
	gv := schema.GroupVersion{Group: group, Version: version}
	return view{gv.WithResource(resource), fmt.Sprintf("apiVersion: %s\nkind: %s\n%s", gv, kind, text)}
}

// sharedViews returns each set of group-versions that share storage.
func sharedViews() map[string][]view {
	const newEvent = "metadata: {name: a, namespace: ns}\neventTime: '2026-01-01T00:00:00.000000Z'\ntype: Normal\nreason: R\naction: A\n" +
		"reportingController: c\nreportingInstance: i\nregarding: {namespace: ns}"
	const oldEvent = "metadata: {name: b, namespace: ns}\ninvolvedObject: {kind: ConfigMap, name: a, namespace: ns}\nreason: Started"
	const scaler = "metadata: {name: a, namespace: ns}\nspec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}}"
	const lamp = "metadata: {name: desk}\nspec: {watts: 40}"
	return map[string][]view{
		"events": {
			viewOf("", "v1", "events", "Event", oldEvent),
			viewOf("events.k8s.io", "v1", "events", "Event", newEvent),
		},
		"autoscalers": {
			viewOf("autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler", scaler),
			viewOf("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", scaler),
		},
		"lamps": {
			viewOf("light.example.com", "v1beta1", "lamps", "Lamp", lamp),
			viewOf("light.example.com", "v1", "lamps", "Lamp", lamp),
		},
	}
}

// matching is the part that all registrations of equivalentRegistrations share.
const matching = `
  objectSelector: {matchLabels: {topic: TOPIC}}
  %s: [{apiGroups: ["GROUP"], apiVersions: [VERSION], resources: [RESOURCE], operations: [CREATE, UPDATE]}]
`

// equivalentRegistrations register each type of admission for one view. The default of matchPolicy is Equivalent.
var equivalentRegistrations = map[string]string{
	"validating webhook": `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: TOPIC}
webhooks:
- name: topic.example.com
  clientConfig: {url: WEBHOOK/deny, caBundle: BUNDLE}
  admissionReviewVersions: [v1]
  sideEffects: None` + fmt.Sprintf(matching, "rules"),
	"mutating webhook": `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: TOPIC}
webhooks:
- name: topic.example.com
  clientConfig: {url: WEBHOOK/label, caBundle: BUNDLE}
  admissionReviewVersions: [v1]
  sideEffects: None` + fmt.Sprintf(matching, "rules"),
	"validating policy": `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: TOPIC}
spec: {policyName: TOPIC, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: TOPIC}
spec:
  validations: [{expression: "object.metadata.name == ''", messageExpression: "'saw ' + object.apiVersion"}]
  matchConstraints:` + strings.ReplaceAll(fmt.Sprintf(matching, "resourceRules"), "\n", "\n  "),
	"mutating policy": `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: TOPIC}
spec: {policyName: TOPIC}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: TOPIC}
spec:
  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{metadata: Object.metadata{annotations: {'saw': object.apiVersion}}}"}
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'webhook': 'was-here'}}}"}
  matchConstraints:` + strings.ReplaceAll(fmt.Sprintf(matching, "resourceRules"), "\n", "\n  "),
}

// A registration for one group-version applies to writes through every other group-version with the same objects.
func TestAdmissionMatchesEquivalentResources(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	h := startHost(t)
	h.define(t, strings.Replace(twoVersions, ", colour: {type: string, default: warm}", "", 1)) // a policy for v1beta1 does not know the field
	for name, views := range sharedViews() {
		for i, registered := range views {
			for how, registration := range equivalentRegistrations {
				written := views[(i+1)%len(views)]
				t.Run(fmt.Sprintf("%s: a %s for %s", name, how, registered.resource.GroupVersion()), func(t *testing.T) {
					t.Parallel()
					h.expectAdmission(t, fmt.Sprintf("%s-%d-%s", name, i, strings.ReplaceAll(how, " ", "-")), registration, registered, written)
				})
			}
		}
	}
}

// expectAdmission writes an object through one view until the admission registered for another view takes effect.
func (h *host) expectAdmission(t *testing.T, topic, registration string, registered, written view) {
	t.Helper()
	gvr := registered.resource
	h.putAll(t, strings.NewReplacer("TOPIC", topic, "GROUP", gvr.Group, "VERSION", gvr.Version, "RESOURCE", gvr.Resource).Replace(registration))
	obj := object(t, written.text)
	obj.SetName(topic)
	obj.SetLabels(map[string]string{"topic": topic})
	of := h.dynamic.Resource(written.resource).Namespace(obj.GetNamespace())
	var made *unstructured.Unstructured
	var err error
	poll(t, registration, func(ctx context.Context) bool {
		made, err = of.Create(ctx, obj, metav1.CreateOptions{DryRun: []string{"All"}})
		// Mutating policies read the schemas of custom resources every few seconds.
		return err != nil && !strings.Contains(err.Error(), "There can be a delay") || err == nil && made.GetLabels()["webhook"] == "was-here"
	})
	switch reviews := h.webhookServer.requests(topic); {
	case strings.Contains(registration, "ValidatingAdmissionPolicy"):
		if want := "saw " + gvr.GroupVersion().String(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Create(%s) = %v, want an error with %q", obj.GetAPIVersion(), err, want)
		}
	case strings.Contains(registration, "MutatingAdmissionPolicy"):
		if err != nil || made.GetAPIVersion() != obj.GetAPIVersion() || made.GetAnnotations()["saw"] != gvr.GroupVersion().String() {
			t.Errorf("Create(%s) = %v, %v, want the same version and the annotation saw of the policy", obj.GetAPIVersion(), made, err)
		}
	default:
		if len(reviews) == 0 {
			t.Fatalf("the webhook received no review, want at least one: %v", err)
		}
		r := reviews[0]
		if got, want := r.Kind.Group+"/"+r.Kind.Version, gvr.Group+"/"+gvr.Version; got != want {
			t.Errorf("kind of the review = %s, want %s", got, want)
		}
		if got := r.RequestKind.Group + "/" + r.RequestKind.Version; got != written.resource.Group+"/"+written.resource.Version {
			t.Errorf("requestKind of the review = %s, want %s", got, written.resource.GroupVersion())
		}
		if want := fmt.Sprintf(`"apiVersion":%q`, gvr.GroupVersion()); !strings.Contains(string(r.Object.Raw), want) {
			t.Errorf("object of the review = %s, want one that contains %s", r.Object.Raw, want)
		}
	}
}
