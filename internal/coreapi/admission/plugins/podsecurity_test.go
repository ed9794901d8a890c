package plugins

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes/fake"
)

type warnings []string

func (w *warnings) AddWarning(_, text string) { *w = append(*w, text) }

func securityPod(privileged bool) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}, Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "c", SecurityContext: &corev1.SecurityContext{Privileged: &privileged}},
	}}}
}

func labelledNamespace(labels ...string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{}}}
	for i := 0; i < len(labels); i += 2 {
		ns.Labels["pod-security.kubernetes.io/"+labels[i]] = labels[i+1]
	}
	return ns
}

func TestPodsViolatingNamespacePodSecurityAreRejected(t *testing.T) {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "ns"}}
	deployment.Spec.Template.Spec = securityPod(true).Spec
	worse := securityPod(true)
	worse.Spec.Containers[0].Image = "other"
	relabelled := securityPod(true)
	relabelled.Labels = map[string]string{"a": "b"}
	for name, c := range map[string]struct {
		config             string
		in                 *corev1.Namespace
		obj, old           runtime.Object
		group, resource    string
		subresource, named string // named: the user
		code               int32
		refused, warned    string
	}{
		"no label":                             {in: labelledNamespace(), obj: securityPod(true), resource: "pods"},
		"a pod that keeps it":                  {in: labelledNamespace("enforce", "baseline"), obj: securityPod(false), resource: "pods"},
		"a pod that does not":                  {in: labelledNamespace("enforce", "baseline"), obj: securityPod(true), resource: "pods", code: http.StatusForbidden, refused: `violates PodSecurity "baseline:latest": privileged`},
		"more than the baseline":               {in: labelledNamespace("enforce", "restricted"), obj: securityPod(false), resource: "pods", code: http.StatusForbidden, refused: "allowPrivilegeEscalation != false"},
		"a warning":                            {in: labelledNamespace("warn", "baseline"), obj: securityPod(true), resource: "pods", warned: "would violate PodSecurity"},
		"what makes pods":                      {in: labelledNamespace("enforce", "baseline", "warn", "baseline"), obj: deployment, group: "apps", resource: "deployments", warned: "would violate PodSecurity"},
		"an update of nothing that matters":    {in: labelledNamespace("enforce", "baseline"), obj: relabelled, old: securityPod(true), resource: "pods"},
		"an update for the worse":              {in: labelledNamespace("enforce", "baseline"), obj: worse, old: securityPod(false), resource: "pods", subresource: "ephemeralcontainers", code: http.StatusForbidden, refused: "violates PodSecurity"},
		"a status":                             {in: labelledNamespace("enforce", "baseline"), obj: securityPod(true), old: securityPod(false), resource: "pods", subresource: "status"},
		"a label that means nothing":           {obj: labelledNamespace("enforce", "strict"), resource: "namespaces", code: http.StatusUnprocessableEntity, refused: "must be one of privileged, baseline, restricted"},
		"pods that a new label would refuse":   {obj: labelledNamespace("enforce", "baseline"), old: labelledNamespace(), resource: "namespaces", warned: "existing pods in namespace \"ns\" violate"},
		"a configured default":                 {config: "defaults: {enforce: baseline}", in: labelledNamespace(), obj: securityPod(true), resource: "pods", code: http.StatusForbidden, refused: "violates PodSecurity"},
		"somebody exempt":                      {config: "exemptions: {usernames: [trusted]}", in: labelledNamespace("enforce", "baseline"), obj: securityPod(true), named: "trusted", resource: "pods"},
		"what has nothing to do with it":       {in: labelledNamespace("enforce", "baseline"), obj: &corev1.ConfigMap{}, resource: "configmaps"},
		"a label that is kept although it was": {obj: labelledNamespace("enforce", "strict", "warn", "baseline"), old: labelledNamespace("enforce", "strict"), resource: "namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			get := func(context.Context, string) (*corev1.Namespace, error) { return c.in, nil }
			clients := fake.NewClientset(securityPod(true))
			var config io.Reader
			if c.config != "" {
				config = strings.NewReader("apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\n" + c.config)
			}
			p, err := newPodSecurity(config, get, clients)
			if err != nil {
				t.Fatal(err)
			}
			operation := admission.Create
			if c.old != nil {
				operation = admission.Update
			}
			gv := corev1.SchemeGroupVersion
			gv.Group = c.group
			a := admission.NewAttributesRecord(c.obj, c.old, gv.WithKind(""), "ns", "p", gv.WithResource(c.resource), c.subresource, operation, nil, false,
				&user.DefaultInfo{Name: c.named})
			var said warnings
			err = p.Validate(warning.WithWarningRecorder(t.Context(), &said), a, nil)
			if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Fatalf("Validate error = %v, want an error that contains %q (empty: no error)", err, c.refused)
			}
			if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Code != c.code {
				t.Errorf("code of the error = %d, want %d", status.Status().Code, c.code)
			}
			if text := strings.Join(said, "\n"); (text == "") != (c.warned == "") || !strings.Contains(text, c.warned) {
				t.Errorf("warnings = %q, want %q", text, c.warned)
			}
		})
	}
}

func TestInvalidPodSecurityConfigurationIsRejected(t *testing.T) {
	for name, config := range map[string]string{
		"no such level": "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\ndefaults: {enforce: strict}",
		"another kind":  "apiVersion: v1\nkind: Pod",
	} {
		if _, err := newPodSecurity(strings.NewReader(config), nil, fake.NewClientset()); err == nil {
			t.Errorf("newPodSecurity of %s returned no error, want an error", name)
		}
	}
}
