package coreapi

import (
	"slices"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/coreapi/admission"
	"portico.dev/internal/coreapi/admission/plugins"
	"portico.dev/internal/coreapi/kinds"
	"portico.dev/internal/coreapi/kinds/cluster"
	"portico.dev/internal/coreapi/registry"
)

// A front door without nodes does not have to serve the groups that only clusters with nodes use.
func TestBaseGroupsAreServedWithoutNodeGroups(t *testing.T) {
	// No controller creates service accounts in this test.
	active := slices.DeleteFunc(plugins.All(), func(p admission.Plugin) bool { return !p.Default || p.Name == "ServiceAccount" })
	h := start(t, func(c *Config) { c.Groups, c.Admission = kinds.Base(), admission.Config{Plugins: active} })
	left := []string{}
	for _, g := range cluster.All() {
		if !slices.ContainsFunc(kinds.Base(), func(b registry.Group) bool { return b.Version == g.Version }) {
			left = append(left, g.Version.Group)
		}
	}
	if len(left) != 11 {
		t.Errorf("groups outside the base: %v, want 11", left)
	}
	for _, g := range h.Discovery().Groups {
		if slices.Contains(left, g.Name) {
			t.Errorf("discovery lists the group %s, want no group outside the base", g.Name)
		}
	}
	for _, d := range h.PreparedDocuments() {
		for _, group := range left {
			if strings.Contains(d.Path, "/"+group+"/") {
				t.Errorf("OpenAPI document %s exists, want none for the group %s", d.Path, group)
			}
		}
	}
	swagger, err := h.PreparedSwagger().JSON()
	if err != nil || strings.Contains(string(swagger), `"/apis/apps/v1/`) || !strings.Contains(string(swagger), `"/apis/networking.k8s.io/v1/`) {
		t.Errorf("the OpenAPI v2 document has apps/v1 or lacks networking.k8s.io/v1 (error: %v), want only the paths that are served", err)
	}

	client := h.typed(t, admin)
	namespace(t, client, "work")
	mustCreate(t, client, configMap("a", nil))
	if _, err := client.AppsV1().Deployments("work").List(within(t), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("list of Deployments: error = %v, want NotFound", err)
	}
	service := aService("a")
	service.Namespace = "work"
	service, err = client.CoreV1().Services("work").Create(within(t), service, metav1.CreateOptions{})
	if err != nil || service.Spec.ClusterIP == "" {
		t.Errorf("create of a Service = %+v, %v, want a cluster IP and no error", service, err)
	}
	if _, err := client.CoreV1().Pods("work").Create(within(t), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Errorf("create of a Pod failed: %v, want no error", err)
	}
	labels := map[string]string{"app": "a"}
	controller := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.ReplicationControllerSpec{
		Template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	}}
	if _, err := client.CoreV1().ReplicationControllers("work").Create(within(t), controller, metav1.CreateOptions{}); err != nil {
		t.Errorf("create of a ReplicationController failed: %v, want no error", err)
	}
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "work"}, Spec: autoscalingv1.ScaleSpec{Replicas: 3}}
	if scale, err := client.CoreV1().ReplicationControllers("work").UpdateScale(within(t), "a", scale, metav1.UpdateOptions{}); err != nil || scale.Spec.Replicas != 3 {
		t.Errorf("update of the scale of a ReplicationController = %+v, %v, want 3 replicas and no error", scale, err)
	}
	if _, err := ParseRuntimeConfig(map[string]string{"apps/v1": "false"}, kinds.Base()); err == nil {
		t.Error("ParseRuntimeConfig(apps/v1=false) returned no error, want an error, because apps/v1 is not a base group")
	}
}
