package coreapi

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDenyPrivilegedRejectsPrivilegedContainers(t *testing.T) {
	for _, denied := range []bool{false, true} {
		h := start(t, func(c *Config) { c.DenyPrivileged = denied })
		client := h.typed(t, admin)
		namespace(t, client, "work")
		ctx := within(t)
		template := func(change func(*corev1.PodSpec)) corev1.PodTemplateSpec {
			spec := corev1.PodSpec{
				Containers:     []corev1.Container{{Name: "main", Image: "i"}},
				InitContainers: []corev1.Container{{Name: "first", Image: "i"}},
				RestartPolicy:  corev1.RestartPolicyNever,
			}
			change(&spec)
			return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: spec}
		}
		privileged := &corev1.SecurityContext{Privileged: new(true)}
		main := func(s *corev1.PodSpec) { s.Containers[0].SecurityContext = privileged }
		expect := func(t *testing.T, err error, path string) {
			t.Helper()
			switch {
			case !denied && err != nil:
				t.Errorf("write of a privileged container failed: %v, want no error", err)
			case denied && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), path+": Forbidden: disallowed by cluster policy")):
				t.Errorf("write of a privileged container: error = %v, want Invalid for %s", err, path)
			}
		}
		name := map[bool]string{false: "allowed", true: "denied"}[denied]
		for situation, c := range map[string]struct {
			change func(*corev1.PodSpec)
			path   string
		}{
			"a container":       {main, "spec.containers[0].securityContext.privileged"},
			"an init container": {func(s *corev1.PodSpec) { s.InitContainers[0].SecurityContext = privileged }, "spec.initContainers[0].securityContext.privileged"},
		} {
			t.Run(name+"/"+situation, func(t *testing.T) {
				_, err := client.CoreV1().Pods("work").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"}, Spec: template(c.change).Spec}, metav1.CreateOptions{})
				expect(t, err, c.path)
			})
		}
		t.Run(name+"/what makes pods", func(t *testing.T) {
			always := template(main)
			always.Spec.RestartPolicy = corev1.RestartPolicyAlways
			_, err := client.AppsV1().DaemonSets("work").Create(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "d"},
				Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: always.Labels}, Template: always}}, metav1.CreateOptions{})
			expect(t, err, "spec.template.spec.containers[0].securityContext.privileged")
			_, err = client.BatchV1().CronJobs("work").Create(ctx, &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "c"},
				Spec: batchv1.CronJobSpec{Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template(main)}}}}, metav1.CreateOptions{})
			expect(t, err, "spec.jobTemplate.spec.template.spec.containers[0].securityContext.privileged")
			_, err = client.CoreV1().PodTemplates("work").Create(ctx, &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}, Template: always}, metav1.CreateOptions{})
			expect(t, err, "template.spec.containers[0].securityContext.privileged")
		})
		t.Run(name+"/an ephemeral container", func(t *testing.T) {
			pod, err := client.CoreV1().Pods("work").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: template(func(*corev1.PodSpec) {}).Spec}, metav1.CreateOptions{})
			if err != nil {
				t.Fatalf("create of a pod without privileges failed: %v, want no error", err)
			}
			pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: "debug", Image: "i", ImagePullPolicy: corev1.PullAlways, TerminationMessagePolicy: corev1.TerminationMessageReadFile, SecurityContext: privileged}}}
			_, err = client.CoreV1().Pods("work").UpdateEphemeralContainers(ctx, "p", pod, metav1.UpdateOptions{})
			expect(t, err, "spec.ephemeralContainers[0].securityContext.privileged")
		})
	}
}
