package kinds_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

const (
	labelledTemplate  = "{metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}"
	selectingManifest = "metadata: {name: a, namespace: ns}\nspec: {selector: {matchLabels: {app: a}}, template: " + labelledTemplate + "}"
)

// selecting returns a manifest with additions to its spec, or with a part of it replaced.
func selecting(more string, replace ...string) string {
	return strings.NewReplacer(replace...).Replace(strings.TrimSuffix(selectingManifest, "}") + ", " + more + "}")
}

func TestInvalidWorkloadsAreRejected(t *testing.T) {
	kindtest.Refuses(t, []kindtest.Create{
		{"a deployment of nothing", kindtest.Decode[appsv1.Deployment](t, "metadata: {name: a, namespace: ns}\nspec: {selector: {}, replicas: -1, template: {spec: {restartPolicy: Never, activeDeadlineSeconds: 1}}}"), []string{
			"spec.replicas: Invalid value: -1: must be greater than or equal to 0", "spec.selector: Invalid value: {}: empty selector is invalid for deployment",
			"spec.template.spec.containers: Required value", `spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"`,
			"spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported"}},
		{"a deployment of other pods, that does not roll", kindtest.Decode[appsv1.Deployment](t, selecting("strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 0%}}, minReadySeconds: 600", "{app: a}}, template", "{app: b}}, template")), []string{
			"spec.template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`",
			"spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
			"spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds"}},
		{"shares that are none", kindtest.Decode[appsv1.Deployment](t, selecting("strategy: {rollingUpdate: {maxUnavailable: 101%, maxSurge: many}}")), []string{
			`spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%`,
			`spec.strategy.rollingUpdate.maxSurge: Invalid value: "many": a valid percent string...`}},
		{"a strategy with what another needs", kindtest.Decode[appsv1.Deployment](t, selecting("strategy: {type: Recreate, rollingUpdate: {}}")), []string{
			"spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"}},
		{"a stateful set", kindtest.Decode[appsv1.StatefulSet](t, selecting("podManagementPolicy: Mine, serviceName: A, updateStrategy: {type: OnDelete, rollingUpdate: {}}, "+
			"persistentVolumeClaimRetentionPolicy: {whenScaled: Shred}, ordinals: {start: -1}, volumeClaimTemplates: [{metadata: {name: data}, spec: {}}]",
			"{name: c,", "{name: c, volumeMounts: [{name: data, mountPath: /d}],")), []string{
			`spec.podManagementPolicy: Invalid value: "Mine": must be 'OrderedReady' or 'Parallel'`, `spec.serviceName: Invalid value: "A": a lowercase RFC 1123 label...`,
			"spec.updateStrategy.rollingUpdate: Invalid value: {}: only allowed for updateStrategy 'RollingUpdate'",
			`spec.persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value: "Shred": supported values: "Retain", "Delete"`,
			"spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0",
			"spec.volumeClaimTemplates[0].spec.accessModes: Required value: at least 1 access mode is required",
			"spec.volumeClaimTemplates[0].spec.resources[storage]: Required value"}},
		{"a daemon set that goes both ways", kindtest.Decode[appsv1.DaemonSet](t, selecting("updateStrategy: {rollingUpdate: {maxUnavailable: 1, maxSurge: 1}}")), []string{
			"spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"}},
		{"a revision of nothing", kindtest.Decode[appsv1.ControllerRevision](t, "metadata: {name: a, namespace: ns}\nrevision: -1"), []string{
			"revision: Invalid value: -1: must be greater than or equal to 0", "data: Required value: data is mandatory"}},
		{"a replication controller without pods", kindtest.Decode[corev1.ReplicationController](t, "metadata: {name: a, namespace: ns}\nspec: {}"), []string{
			"spec.selector: Required value", "spec.template: Required value"}},
		{"a template with a debugger", kindtest.Decode[corev1.PodTemplate](t, "metadata: {name: a, namespace: ns}\ntemplate: {spec: {containers: [{name: c, image: i}], ephemeralContainers: [{name: d, image: i}]}}"), []string{
			"template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template"}},
		{"a budget of both kinds", kindtest.Decode[policyv1.PodDisruptionBudget](t, "metadata: {name: a, namespace: ns}\nspec: {minAvailable: -1, maxUnavailable: 200%, unhealthyPodEvictionPolicy: Never}"), []string{
			"spec: Invalid value: {\"minAvailable\":-1...", "spec.minAvailable: Invalid value: -1: must be greater than or equal to 0",
			`spec.maxUnavailable: Invalid value: "200%": must not be greater than 100%`,
			`spec.unhealthyPodEvictionPolicy: Unsupported value: "Never": supported values: "AlwaysAllow", "IfHealthyBudget"`}},
	})
}

func TestWorkloadUpdatesAreRestricted(t *testing.T) {
	kindtest.Changes(t, kindtest.Decode[appsv1.StatefulSet](t, selectingManifest), map[string]kindtest.Change[*appsv1.StatefulSet]{
		"more pods":   {func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr.To[int32](3) }, nil},
		"other names": {func(s *appsv1.StatefulSet) { s.Spec.ServiceName = "Other" }, []string{`spec.serviceName: Invalid value: "Other": field is immutable`}},
		"other pods": {func(s *appsv1.StatefulSet) {
			s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a", "b": "c"}}
			s.Spec.Template.Labels["b"] = "c"
		}, []string{"spec.selector: Invalid value..."}},
	})
	// A stored set with an invalid template can still be scaled.
	broken := kindtest.Decode[appsv1.StatefulSet](t, selecting("replicas: 1", "image: i", "image: ''"))
	broken.ResourceVersion = "1"
	next := broken.DeepCopy()
	next.Spec.Replicas = ptr.To[int32](0)
	kindtest.Refused(t, kindtest.UpdateErrors(next, broken))
}

func TestDeprecatedPodFieldsCauseWarnings(t *testing.T) {
	got := kindtest.Warnings(kindtest.Decode[appsv1.Deployment](t, "metadata: {name: a.b, namespace: ns}\nspec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: "+
		"{nodeSelector: {beta.kubernetes.io/os: linux}, terminationGracePeriodSeconds: -1, imagePullSecrets: [{}], volumes: [{name: g, gitRepo: {repository: r}}], "+
		"topologySpreadConstraints: [{maxSkew: 1, topologyKey: k, whenUnsatisfiable: DoNotSchedule}], containers: [{name: c, image: i, env: [{name: A, value: x}, "+
		"{name: A, value: y}, {name: B, value: b}, {name: B, value: $(B)c}], ports: [{name: p, containerPort: 80}, {name: q, containerPort: 80}], resources: {limits: {memory: 100m}}}, "+
		"{name: d, image: i, ports: [{name: p, containerPort: 81}]}]}}}"))
	want := []string{
		"metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended",
		"spec.template.spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
		"spec.template.spec.containers[0].ports[1]: duplicate port definition with spec.template.spec.containers[0].ports[0]",
		"spec.template.spec.containers[0].resources.limits[memory]: fractional byte value \"100m\" is invalid, must be an integer",
		"spec.template.spec.containers[0].resources.limits[memory]",
		"spec.template.spec.containers[1].ports[0]: duplicate port name \"p\" with",
		"spec.template.spec.imagePullSecrets[0].name: invalid empty name \"\"",
		"spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
		"spec.template.spec.terminationGracePeriodSeconds: must be >= 0",
		"spec.template.spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
		"spec.template.spec.volumes[0].gitRepo: deprecated in v1.11",
	}
	for _, w := range want {
		if !strings.Contains(strings.Join(got, "\n"), w) {
			t.Errorf("warnings lack %q, want it in\n%s", w, strings.Join(got, "\n"))
		}
	}
	if len(got) != len(want)-1 {
		t.Errorf("%d warnings, want %d:\n%s", len(got), len(want)-1, strings.Join(got, "\n"))
	}
}
