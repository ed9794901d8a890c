package validate_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"portico.dev/internal/coreapi/kinds/batch"
)

const (
	labelledTemplate  = "{metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}"
	endingTemplate    = "{metadata: {labels: {app: a}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}"
	selectingManifest = "metadata: {name: a, namespace: ns}\nspec: {selector: {matchLabels: {app: a}}, template: " + labelledTemplate + "}"
)

// selecting is a manifest with more in its spec, or something in it in other words.
func selecting(more string, replace ...string) string {
	return strings.NewReplacer(replace...).Replace(strings.TrimSuffix(selectingManifest, "}") + ", " + more + "}")
}

func TestControllersOfPods(t *testing.T) {
	refuses(t, []create{
		{"a deployment of nothing", decode[appsv1.Deployment](t, "metadata: {name: a, namespace: ns}\nspec: {selector: {}, replicas: -1, template: {spec: {restartPolicy: Never, activeDeadlineSeconds: 1}}}"), []string{
			"spec.replicas: Invalid value: -1: must be greater than or equal to 0", "spec.selector: Invalid value: {}: empty selector is invalid for deployment",
			"spec.template.spec.containers: Required value", `spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"`,
			"spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported"}},
		{"a deployment of other pods, that does not roll", decode[appsv1.Deployment](t, selecting("strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 0%}}, minReadySeconds: 600", "{app: a}}, template", "{app: b}}, template")), []string{
			"spec.template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`",
			"spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
			"spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds"}},
		{"shares that are none", decode[appsv1.Deployment](t, selecting("strategy: {rollingUpdate: {maxUnavailable: 101%, maxSurge: many}}")), []string{
			`spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%`,
			`spec.strategy.rollingUpdate.maxSurge: Invalid value: "many": a valid percent string...`}},
		{"a strategy with what another needs", decode[appsv1.Deployment](t, selecting("strategy: {type: Recreate, rollingUpdate: {}}")), []string{
			"spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"}},
		{"a stateful set", decode[appsv1.StatefulSet](t, selecting("podManagementPolicy: Mine, serviceName: A, updateStrategy: {type: OnDelete, rollingUpdate: {}}, "+
			"persistentVolumeClaimRetentionPolicy: {whenScaled: Shred}, ordinals: {start: -1}, volumeClaimTemplates: [{metadata: {name: data}, spec: {}}]",
			"{name: c,", "{name: c, volumeMounts: [{name: data, mountPath: /d}],")), []string{
			`spec.podManagementPolicy: Invalid value: "Mine": must be 'OrderedReady' or 'Parallel'`, `spec.serviceName: Invalid value: "A": a lowercase RFC 1123 label...`,
			"spec.updateStrategy.rollingUpdate: Invalid value: {}: only allowed for updateStrategy 'RollingUpdate'",
			`spec.persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value: "Shred": supported values: "Retain", "Delete"`,
			"spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0",
			"spec.volumeClaimTemplates[0].spec.accessModes: Required value: at least 1 access mode is required",
			"spec.volumeClaimTemplates[0].spec.resources[storage]: Required value"}},
		{"a daemon set that goes both ways", decode[appsv1.DaemonSet](t, selecting("updateStrategy: {rollingUpdate: {maxUnavailable: 1, maxSurge: 1}}")), []string{
			"spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"}},
		{"a revision of nothing", decode[appsv1.ControllerRevision](t, "metadata: {name: a, namespace: ns}\nrevision: -1"), []string{
			"revision: Invalid value: -1: must be greater than or equal to 0", "data: Required value: data is mandatory"}},
		{"a replication controller without pods", decode[corev1.ReplicationController](t, "metadata: {name: a, namespace: ns}\nspec: {}"), []string{
			"spec.selector: Required value", "spec.template: Required value"}},
		{"a template with a debugger", decode[corev1.PodTemplate](t, "metadata: {name: a, namespace: ns}\ntemplate: {spec: {containers: [{name: c, image: i}], ephemeralContainers: [{name: d, image: i}]}}"), []string{
			"template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template"}},
		{"a budget of both kinds", decode[policyv1.PodDisruptionBudget](t, "metadata: {name: a, namespace: ns}\nspec: {minAvailable: -1, maxUnavailable: 200%, unhealthyPodEvictionPolicy: Never}"), []string{
			"spec: Invalid value: {\"minAvailable\":-1...", "spec.minAvailable: Invalid value: -1: must be greater than or equal to 0",
			`spec.maxUnavailable: Invalid value: "200%": must not be greater than 100%`,
			`spec.unhealthyPodEvictionPolicy: Unsupported value: "Never": supported values: "AlwaysAllow", "IfHealthyBudget"`}},
	})
}

func TestWhatMayChangeOfControllers(t *testing.T) {
	changes(t, decode[appsv1.StatefulSet](t, selectingManifest), map[string]struct {
		change func(*appsv1.StatefulSet)
		want   []string
	}{
		"more pods":   {func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr.To[int32](3) }, nil},
		"other names": {func(s *appsv1.StatefulSet) { s.Spec.ServiceName = "Other" }, []string{`spec.serviceName: Invalid value: "Other": field is immutable`}},
		"other pods": {func(s *appsv1.StatefulSet) {
			s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a", "b": "c"}}
			s.Spec.Template.Labels["b"] = "c"
		}, []string{"spec.selector: Invalid value..."}},
	})
	// A template that was wrong before must not keep a set from being scaled.
	broken := decode[appsv1.StatefulSet](t, selecting("replicas: 1", "image: i", "image: ''"))
	broken.ResourceVersion = "1"
	next := broken.DeepCopy()
	next.Spec.Replicas = ptr.To[int32](0)
	refused(t, updateErrors(next, broken))
}

func jobOf(t *testing.T, more string) *batchv1.Job {
	j := decode[batchv1.Job](t, "metadata: {name: a, namespace: ns, uid: u}\nspec: {selector: {matchLabels: {batch.kubernetes.io/controller-uid: u}}, "+more+", template: "+
		"{metadata: {labels: {controller-uid: u, job-name: a, batch.kubernetes.io/controller-uid: u, batch.kubernetes.io/job-name: a}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}")
	j.ResourceVersion = "1"
	return j
}

func TestJobs(t *testing.T) {
	refuses(t, []create{
		{"pods for ever, of another job", decode[batchv1.Job](t, "metadata: {name: a, namespace: ns, uid: u}\nspec: {parallelism: -1, template: {spec: {containers: [{name: c, image: i}]}}}"), []string{
			"spec.parallelism: Invalid value: -1: must be greater than or equal to 0", "spec.selector: Required value",
			"spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`",
			`spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"`}},
		{"an index for nobody", jobOf(t, "completionMode: Indexed, parallelism: 100001, maxFailedIndexes: 1"), []string{
			"spec.completions: Required value: when completion mode is Indexed", "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
			"spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion mode is Indexed"}},
		{"by index without indexes", jobOf(t, "backoffLimitPerIndex: 1, successPolicy: {rules: []}"), []string{
			"spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode", "spec.successPolicy: Invalid value: {\"rules\":[]}: requires indexed completion mode"}},
		{"rules of failure", jobOf(t, "podFailurePolicy: {rules: [{action: FailIndex, onExitCodes: {operator: In, containerName: x, values: [3, 0, 3]}}, {action: Ignore}, "+
			"{onPodConditions: [{type: a b}], action: Explode}]}, podReplacementPolicy: TerminatingOrFailed"), []string{
			`spec.podFailurePolicy.rules[0].action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set`,
			`spec.podFailurePolicy.rules[0].onExitCodes.containerName: Invalid value: "x": must be one of the container or initContainer names in the pod template`,
			"spec.podFailurePolicy.rules[0].onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator",
			"spec.podFailurePolicy.rules[0].onExitCodes.values[2]: Duplicate value: 3",
			"spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [3,0,3]: must be ordered",
			"spec.podFailurePolicy.rules[1]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
			`spec.podFailurePolicy.rules[2].action: Unsupported value: "Explode"...`, `spec.podFailurePolicy.rules[2].onPodConditions[0].type: Invalid value: "a b"...`,
			`spec.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": supported values: "Failed"`}},
		{"rules of success", jobOf(t, "completionMode: Indexed, completions: 5, successPolicy: {rules: [{}, {succeededIndexes: '1,3-9'}, {succeededCount: 3, succeededIndexes: 0-1}]}"), []string{
			"spec.successPolicy.rules[0]: Required value: at least one of succeededCount or succeededIndexes must be specified",
			`spec.successPolicy.rules[1].succeededIndexes: Invalid value: "1,3-9": error parsing succeededIndexes: too large index: "9"`,
			"spec.successPolicy.rules[2].succeededCount: Invalid value: 3: must be less than or equal to 2 (the number of indexes in the specified succeededIndexes field)"}},
	})
	changes(t, jobOf(t, "completionMode: Indexed, completions: 3, parallelism: 3"), map[string]struct {
		change func(*batchv1.Job)
		want   []string
	}{
		"larger, all at once": {func(j *batchv1.Job) { j.Spec.Completions, j.Spec.Parallelism = ptr.To[int32](5), ptr.To[int32](5) }, nil},
		"larger in part":      {func(j *batchv1.Job) { j.Spec.Completions = ptr.To[int32](5) }, []string{"spec.completions: Invalid value: 5: can only be modified in tandem with spec.parallelism"}},
		"another image":       {func(j *batchv1.Job) { j.Spec.Template.Spec.Containers[0].Image = "j" }, []string{"spec.template: Invalid value..."}},
	})
	suspended := jobOf(t, "suspend: true")
	changes(t, suspended, map[string]struct {
		change func(*batchv1.Job)
		want   []string
	}{
		"where it will run":   {func(j *batchv1.Job) { j.Spec.Template.Spec.NodeSelector = map[string]string{"a": "b"} }, nil},
		"what it will run":    {func(j *batchv1.Job) { j.Spec.Template.Spec.Containers[0].Image = "j" }, []string{"spec.template.spec: Invalid value..."}},
		"with how much it is": {func(j *batchv1.Job) { j.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{} }, nil},
	})
}

func TestTheEndOfAJobIsFinal(t *testing.T) {
	at := metav1.Now()
	running := jobOf(t, "completions: 1")
	running.Status = batchv1.JobStatus{StartTime: &at, Active: 1}
	done := running.DeepCopy()
	done.Status = batchv1.JobStatus{StartTime: &at, CompletionTime: &at, Succeeded: 1, Conditions: []batchv1.JobCondition{
		{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue}, {Type: batchv1.JobComplete, Status: corev1.ConditionTrue},
	}}
	refused(t, statusErrors(done, running))
	refused(t, statusErrors(running, done),
		"status.conditions: Invalid value: cannot disable the terminal Complete=True condition",
		"status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition",
		"status.succeeded: Invalid value: 0: cannot decrease the succeeded counter")
	hasty := done.DeepCopy()
	hasty.Status.Conditions, hasty.Status.Active = hasty.Status.Conditions[1:], 1
	refused(t, statusErrors(hasty, running),
		"status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
		"status.active: Invalid value: 1: active>0 is invalid for finished job")
}

func TestSchedules(t *testing.T) {
	for schedule, says := range map[string]string{
		"*/5 0-23/2 1,15 jan-MAR Mon": "", "@hourly": "", "@every 90s": "", "? * * * *": "", "5/15 * * * *": "",
		"* * * *": "expected exactly 5 fields, found 4: [* * * *]", "60 * * * *": "end of range (60) above maximum (59): 60",
		"* * 0 * *": "beginning of range (0) below minimum (1): 0", "5-1 * * * *": "beginning of range (5) beyond end of range (1): 5-1",
		"*/0 * * * *": "step of range should be a positive number: */0", "1-2-3 * * * *": "too many hyphens: 1-2-3", "@often": "unrecognized descriptor: @often",
		"x * * * *": `failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax`, "TZ=UTC": "a time zone without a schedule",
		"CRON_TZ=UTC 0 0 * * *": "", "@every never": `failed to parse duration @every never: time: invalid duration "never"`,
	} {
		err := batch.ParseSchedule(schedule)
		if says == "" && err != nil || says != "" && (err == nil || err.Error() != says) {
			t.Errorf("%s: got %v", schedule, err)
		}
	}
	cron := func(more string) *batchv1.CronJob {
		return decode[batchv1.CronJob](t, "metadata: {name: a, namespace: ns}\nspec: {jobTemplate: {spec: {template: "+endingTemplate+"}}, "+more+"}")
	}
	refuses(t, []create{
		{"at another place, in the old way", cron("schedule: 'TZ=UTC 0 0 * * *'"), []string{`spec.schedule: Invalid value: "TZ=UTC 0 0 * * *": cannot use TZ or CRON_TZ in schedule, use timeZone field instead`}},
		{"on no clock", cron("schedule: '@daily', timeZone: ../etc/passwd"), []string{`spec.timeZone: Invalid value: "../etc/passwd": unknown time zone ../etc/passwd`}},
		{"on any clock", cron("schedule: '@daily', timeZone: local"), []string{`spec.timeZone: Invalid value: "local": timeZone must be an explicit time zone...`, `spec.timeZone: Invalid value: "local": unknown time zone local`}},
		{"never, and all at once", cron("concurrencyPolicy: Race, startingDeadlineSeconds: -1"), []string{"spec.schedule: Required value",
			`spec.concurrencyPolicy: Unsupported value: "Race": supported values: "Allow", "Forbid", "Replace"`, "spec.startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0"}},
	})
}

func TestAutoscalers(t *testing.T) {
	scaling := func(more string) *autoscalingv2.HorizontalPodAutoscaler {
		return decode[autoscalingv2.HorizontalPodAutoscaler](t, "metadata: {name: a, namespace: ns}\nspec: {"+more+"}")
	}
	const web = "scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, "
	refuses(t, []create{
		{"nothing, to nothing", scaling("minReplicas: 3"), []string{"spec.maxReplicas: Required value",
			"spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`", "spec.scaleTargetRef.kind: Required value",
			"spec.scaleTargetRef.name: Required value", `spec.scaleTargetRef.apiVersion: Invalid value: "": apiVersion must specify API group`}},
		{"to zero by its own pods", scaling(web + "minReplicas: 0, maxReplicas: 1"), []string{
			"spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas"}},
		{"metrics", scaling(web + "maxReplicas: 1, metrics: [{type: Pods}, {type: Resource, resource: {name: cpu, target: {type: Utilization}}}, " +
			"{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 0, averageValue: 1}}, pods: {metric: {name: q}, target: {type: AverageValue, averageValue: 1}}}, " +
			"{type: External, external: {metric: {name: a/b}, target: {type: Most, value: -1}}}, {type: Magic}]"), []string{
			"spec.metrics[0].pods: Required value: must populate information for the given metric source",
			"spec.metrics[1].resource.target.averageUtilization: Required value: must set either a target raw value or a target utilization",
			"spec.metrics[2].pods: Forbidden: must populate the given metric source only", "spec.metrics[3].external.metric.name: Invalid value: \"a/b\": may not contain '/'",
			`spec.metrics[3].external.target.type: Invalid value: "Most": must be either Utilization, Value, or AverageValue`,
			`spec.metrics[3].external.target.value: Invalid value: "-1": must be positive`, `spec.metrics[4].type: Unsupported value: "Magic"...`}},
		{"behaviour", scaling(web + "maxReplicas: 1, behavior: {scaleUp: {stabilizationWindowSeconds: 3601, selectPolicy: Best, policies: [{type: Pods, value: 0, periodSeconds: 1801}]}, scaleDown: {policies: []}}"), []string{
			"spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
			`spec.behavior.scaleUp.selectPolicy: Unsupported value: "Best": supported values: "Disabled", "Max", "Min"`,
			"spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero",
			"spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
			"spec.behavior.scaleDown.policies: Required value: must specify at least one Policy"}},
	})
}

func TestWarningsOfPods(t *testing.T) {
	got := warningsOf(decode[appsv1.Deployment](t, "metadata: {name: a.b, namespace: ns}\nspec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: "+
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
			t.Errorf("no warning %q in\n%s", w, strings.Join(got, "\n"))
		}
	}
	if len(got) != len(want)-1 {
		t.Errorf("got %d:\n%s", len(got), strings.Join(got, "\n"))
	}
}
