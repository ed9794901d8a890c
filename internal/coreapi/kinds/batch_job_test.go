package kinds_test

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func jobOf(t *testing.T, more string) *batchv1.Job {
	j := kindtest.Decode[batchv1.Job](t, "metadata: {name: a, namespace: ns, uid: u}\nspec: {selector: {matchLabels: {batch.kubernetes.io/controller-uid: u}}, "+more+", template: "+
		"{metadata: {labels: {controller-uid: u, job-name: a, batch.kubernetes.io/controller-uid: u, batch.kubernetes.io/job-name: a}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}")
	j.ResourceVersion = "1"
	return j
}

func TestJobs(t *testing.T) {
	kindtest.Refuses(t, []kindtest.Create{
		{"pods for ever, of another job", kindtest.Decode[batchv1.Job](t, "metadata: {name: a, namespace: ns, uid: u}\nspec: {parallelism: -1, template: {spec: {containers: [{name: c, image: i}]}}}"), []string{
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
	kindtest.Changes(t, jobOf(t, "completionMode: Indexed, completions: 3, parallelism: 3"), map[string]kindtest.Change[*batchv1.Job]{
		"larger, all at once": {func(j *batchv1.Job) { j.Spec.Completions, j.Spec.Parallelism = ptr.To[int32](5), ptr.To[int32](5) }, nil},
		"larger in part":      {func(j *batchv1.Job) { j.Spec.Completions = ptr.To[int32](5) }, []string{"spec.completions: Invalid value: 5: can only be modified in tandem with spec.parallelism"}},
		"another image":       {func(j *batchv1.Job) { j.Spec.Template.Spec.Containers[0].Image = "j" }, []string{"spec.template: Invalid value..."}},
	})
	suspended := jobOf(t, "suspend: true")
	kindtest.Changes(t, suspended, map[string]kindtest.Change[*batchv1.Job]{
		"where it will run":   {func(j *batchv1.Job) { j.Spec.Template.Spec.NodeSelector = map[string]string{"a": "b"} }, nil},
		"what it will run":    {func(j *batchv1.Job) { j.Spec.Template.Spec.Containers[0].Image = "j" }, []string{"spec.template.spec: Invalid value..."}},
		"with how much it is": {func(j *batchv1.Job) { j.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{} }, nil},
	})
}

func TestFinishedJobStatusIsImmutable(t *testing.T) {
	at := metav1.Now()
	running := jobOf(t, "completions: 1")
	running.Status = batchv1.JobStatus{StartTime: &at, Active: 1}
	done := running.DeepCopy()
	done.Status = batchv1.JobStatus{StartTime: &at, CompletionTime: &at, Succeeded: 1, Conditions: []batchv1.JobCondition{
		{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue}, {Type: batchv1.JobComplete, Status: corev1.ConditionTrue},
	}}
	kindtest.Refused(t, kindtest.StatusErrors(done, running))
	kindtest.Refused(t, kindtest.StatusErrors(running, done),
		"status.conditions: Invalid value: cannot disable the terminal Complete=True condition",
		"status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition",
		"status.succeeded: Invalid value: 0: cannot decrease the succeeded counter")
	hasty := done.DeepCopy()
	hasty.Status.Conditions, hasty.Status.Active = hasty.Status.Conditions[1:], 1
	kindtest.Refused(t, kindtest.StatusErrors(hasty, running),
		"status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
		"status.active: Invalid value: 1: active>0 is invalid for finished job")
}

func TestSchedulingOfNewJobsIsDropped(t *testing.T) {
	spec := batchv1.JobSpec{Scheduling: &batchv1.JobSchedulingConfiguration{}}
	for name, anew := range map[string]func() runtime.Object{
		"a job": func() runtime.Object { return &batchv1.Job{Spec: *spec.DeepCopy()} },
		"a cron job": func() runtime.Object {
			return &batchv1.CronJob{Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: *spec.DeepCopy()}}}
		},
	} {
		made := anew()
		if kindtest.StrategyOf(t, made).PrepareForCreate(t.Context(), made); jobSpecOf(made).Scheduling != nil {
			t.Errorf("spec.scheduling of the created %s is kept, want it dropped", name)
		}
		next := anew()
		if kindtest.StrategyOf(t, next).PrepareForUpdate(t.Context(), next, anew()); jobSpecOf(next).Scheduling == nil {
			t.Errorf("spec.scheduling of the updated %s is dropped, want it kept", name)
		}
	}
}

func jobSpecOf(obj runtime.Object) *batchv1.JobSpec {
	if c, is := obj.(*batchv1.CronJob); is {
		return &c.Spec.JobTemplate.Spec
	}
	return &obj.(*batchv1.Job).Spec
}
