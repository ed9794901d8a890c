package validate_test

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/coreapi/kinds/cluster"
)

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still served to clients from before EndpointSlices

// decode reads a manifest as the server does: the type is known, and what was left out is defaulted.
func decode[T any, P interface {
	*T
	runtime.Object
}](t *testing.T, manifest string) P {
	t.Helper()
	obj := P(new(T))
	if err := yaml.UnmarshalStrict([]byte(manifest), obj); err != nil {
		t.Fatalf("%v in\n%s", err, manifest)
	}
	scheme := runtime.NewScheme()
	registerDefaults(scheme)
	scheme.Default(obj)
	return obj
}

// refused compares errors with what is wanted of them, each by its whole text or, with a trailing "...", by how it starts.
func refused(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	got := make([]string, 0, len(errs))
	for _, err := range errs {
		got = append(got, err.Error())
	}
	slices.Sort(got)
	slices.Sort(want)
	match := func(got, want string) bool {
		if start, cut := strings.CutSuffix(want, "..."); cut {
			return strings.HasPrefix(got, start)
		}
		return got == want
	}
	if !slices.EqualFunc(got, want, match) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// minimal is the least that each kind accepts, as people write it: without anything that has a default.
func minimal(t *testing.T) []runtime.Object {
	const rules = "[{apiGroups: ['*'], apiVersions: ['*'], operations: [CREATE], resources: [configmaps]}]"
	const hooks = "metadata: {name: a}\nwebhooks:\n- {name: a.example.com, sideEffects: None, admissionReviewVersions: [v1], " +
		"clientConfig: {service: {namespace: ns, name: s, path: /check}}, rules: " + rules + "}"
	return []runtime.Object{
		decode[corev1.Namespace](t, "metadata: {name: a}\nspec: {finalizers: [kubernetes]}"),
		decode[corev1.ConfigMap](t, "metadata: {name: a, namespace: ns}\ndata: {k: v}\nbinaryData: {b: AAEC}"),
		decode[corev1.Secret](t, "metadata: {name: a, namespace: ns}\nstringData: {k: v}"),
		decode[corev1.ServiceAccount](t, "metadata: {name: a, namespace: ns}"),
		decode[corev1.Service](t, "metadata: {name: 2nd, namespace: ns}\nspec: {ports: [{port: 80}], selector: {app: a}}"),
		decode[corev1.Service](t, "metadata: {name: a, namespace: ns}\nspec: {type: ExternalName, externalName: localhost, ports: [{port: 443}]}"),
		decode[corev1.Service](t, "metadata: {name: a, namespace: ns}\nspec: {type: LoadBalancer, ports: [{port: 80, targetPort: web}]}"),
		decode[corev1.Service](t, "metadata: {name: a, namespace: ns}\nspec: {clusterIP: None}"),
		decode[corev1.Endpoints](t, "metadata: {name: a, namespace: ns}\nsubsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 80}]}]"),
		decode[corev1.Event](t, "metadata: {name: a, namespace: default}\ninvolvedObject: {kind: Node, name: n}\nreason: Started"),
		decode[corev1.Node](t, "metadata: {name: n.example.com}\nstatus: {capacity: {cpu: 2, memory: 4Gi, example.com/gpu: 1}}"),
		decode[corev1.Pod](t, "metadata: {name: a, namespace: ns}\nspec: {containers: [{name: c, image: busybox}]}"),
		decode[apiregistrationv1.APIService](t, "metadata: {name: v1.example.com}\nspec: {group: example.com, version: v1, "+
			"groupPriorityMinimum: 100, versionPriority: 10, service: {namespace: ns, name: s}}"),
		decode[apiregistrationv1.APIService](t, "metadata: {name: v1.}\nspec: {version: v1, groupPriorityMinimum: 20000, versionPriority: 1000}"),
		decode[rbacv1.Role](t, "metadata: {name: 'system:a', namespace: ns}\nrules: [{verbs: [get], apiGroups: ['']"+
			", resources: [pods]}]"),
		decode[rbacv1.ClusterRole](t, "metadata: {name: 'system:a'}\nrules: [{verbs: [get], nonResourceURLs: [/metrics]}]"),
		decode[rbacv1.RoleBinding](t, "metadata: {name: a, namespace: ns}\nroleRef: {kind: Role, name: a}\nsubjects: "+
			"[{kind: User, name: u}, {kind: Group, name: g}, {kind: ServiceAccount, name: s}]"),
		decode[rbacv1.ClusterRoleBinding](t, "metadata: {name: a}\nroleRef: {kind: ClusterRole, name: a}"),
		decode[coordinationv1.Lease](t, "metadata: {name: a, namespace: ns}\nspec: {leaseDurationSeconds: 15}"),
		decode[discoveryv1.EndpointSlice](t, "metadata: {name: a, namespace: ns}\naddressType: IPv6\nendpoints: [{addresses: ['fd00::1']}]\nports: [{port: 80}]"),
		decode[eventsv1.Event](t, "metadata: {name: a, namespace: ns}\neventTime: '2026-01-01T00:00:00.000000Z'\ntype: Normal\n"+
			"reason: R\naction: A\nreportingController: c\nreportingInstance: i\nregarding: {namespace: ns}"),
		decode[flowcontrolv1.FlowSchema](t, "metadata: {name: a}\nspec:\n  priorityLevelConfiguration: {name: p}\n  rules:\n  - subjects: "+
			"[{kind: ServiceAccount, serviceAccount: {name: '*', namespace: ns}}]\n    nonResourceRules: [{verbs: ['*'], nonResourceURLs: [/healthz/*]}]"),
		decode[flowcontrolv1.PriorityLevelConfiguration](t, "metadata: {name: a}\nspec: {type: Limited, limited: {limitResponse: {type: Queue, queuing: {}}}}"),
		decode[admissionregistrationv1.ValidatingWebhookConfiguration](t, hooks),
		decode[admissionregistrationv1.MutatingWebhookConfiguration](t, hooks),
		decode[admissionregistrationv1.ValidatingAdmissionPolicy](t, "metadata: {name: a}\nspec: {matchConstraints: {resourceRules: "+
			rules+"}, validations: [{expression: 'true'}]}"),
		decode[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, "metadata: {name: a}\nspec: {policyName: a, validationActions: [Deny], matchResources: {}}"),
		decode[admissionregistrationv1.MutatingAdmissionPolicy](t, "metadata: {name: a}\nspec: {reinvocationPolicy: Never, matchConstraints: {resourceRules: "+
			rules+"}, mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"remove\", path: \"/a\"}]'}}]}"),
		decode[admissionregistrationv1.MutatingAdmissionPolicyBinding](t, "metadata: {name: a}\nspec: {policyName: a}"),
		decode[corev1.PodTemplate](t, "metadata: {name: a, namespace: ns}\ntemplate: "+labelledTemplate),
		decode[corev1.ReplicationController](t, "metadata: {name: a, namespace: ns}\nspec: {template: "+labelledTemplate+"}"),
		decode[appsv1.Deployment](t, selectingManifest), decode[appsv1.ReplicaSet](t, selectingManifest),
		decode[appsv1.StatefulSet](t, selectingManifest), decode[appsv1.DaemonSet](t, selectingManifest),
		decode[appsv1.ControllerRevision](t, "metadata: {name: a, namespace: ns}\nrevision: 1\ndata: {}"),
		decode[batchv1.Job](t, "metadata: {name: a, namespace: ns, uid: u}\nspec: {manualSelector: true, selector: {matchLabels: {app: a}}, template: "+endingTemplate+"}"),
		decode[batchv1.CronJob](t, "metadata: {name: a, namespace: ns}\nspec: {schedule: '@daily', jobTemplate: {spec: {template: "+endingTemplate+"}}}"),
		decode[autoscalingv2.HorizontalPodAutoscaler](t, "metadata: {name: a, namespace: ns}\nspec: {maxReplicas: 1, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}}"),
		decode[policyv1.PodDisruptionBudget](t, "metadata: {name: a, namespace: ns}\nspec: {minAvailable: 1}"),
	}
}

func TestMinimalManifestsAreAccepted(t *testing.T) {
	for _, obj := range minimal(t) {
		refused(t, createErrors(obj))
		obj.(metav1.Object).SetResourceVersion("7")
		refused(t, updateErrors(obj, obj.DeepCopyObject()))
		refused(t, statusErrors(obj, obj.DeepCopyObject()))
		if warnings := warningsOf(obj); len(warnings) > 0 {
			t.Errorf("%T: unwanted warnings %q", obj, warnings)
		}
	}
}

func TestNamesAndScopeOfEveryKind(t *testing.T) {
	for _, obj := range minimal(t) {
		nameless := obj.DeepCopyObject()
		nameless.(metav1.Object).SetName("")
		if !slices.ContainsFunc(createErrors(nameless), func(e *field.Error) bool {
			return strings.HasPrefix(e.Field, "metadata.name") && e.Type == field.ErrorTypeRequired
		}) && !isCoreEvent(obj) && !isBudget(obj) {
			t.Errorf("%T without a name was accepted", obj)
		}
		moved := obj.DeepCopyObject()
		moved.(metav1.Object).SetResourceVersion("7")
		moved.(metav1.Object).SetName("another")
		if !slices.ContainsFunc(updateErrors(moved, obj), func(e *field.Error) bool { return e.Field == "metadata.name" }) {
			t.Errorf("%T may change its name", obj)
		}
	}
}

// isCoreEvent picks the one kind whose metadata the oldest clients get away with.
func isCoreEvent(obj runtime.Object) bool {
	_, yes := obj.(*corev1.Event)
	return yes
}

func TestAnObjectOfAnotherKindReplacesNothing(t *testing.T) {
	namespace, configMap := &corev1.Namespace{}, &corev1.ConfigMap{}
	errs := updateErrors(configMap, namespace)
	if !strings.Contains(errs.ToAggregate().Error(), "*v1.ConfigMap cannot replace *v1.Namespace") {
		t.Errorf("got %v", errs)
	}
}

func TestEveryKindHasRules(t *testing.T) {
	for _, g := range cluster.All() {
		for _, r := range g.Resources {
			if r.Rules.Create == nil || r.Rules.Update == nil || r.Rules.Status == nil {
				t.Errorf("%s/%s has no validation rules", g.Version, r.Name)
			}
		}
	}
}

func TestBootstrapFlowControlIsAccepted(t *testing.T) {
	scheme := runtime.NewScheme()
	registerDefaults(scheme)
	for _, schema := range append(slices.Clone(bootstrap.MandatoryFlowSchemas), bootstrap.SuggestedFlowSchemas...) {
		schema = schema.DeepCopy()
		scheme.Default(schema)
		refused(t, createErrors(schema))
	}
	for _, level := range append(slices.Clone(bootstrap.MandatoryPriorityLevelConfigurations), bootstrap.SuggestedPriorityLevelConfigurations...) {
		level = level.DeepCopy()
		scheme.Default(level)
		refused(t, createErrors(level))
		if level.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
			level.Spec.Exempt.LendablePercent = ptr.To[int32](50)
			refused(t, createErrors(level))
		}
	}
}

// isBudget: kube-apiserver leaves the names of PodDisruptionBudgets to the library, which is not asked here.
func isBudget(obj runtime.Object) bool {
	_, budget := obj.(*policyv1.PodDisruptionBudget)
	return budget
}
