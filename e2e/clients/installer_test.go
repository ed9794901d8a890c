package clients

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/e2e/compat"
)

// installer is e2e/clients/installer, run once for each thing that Helm does.
type installer struct {
	tool
	chart string
}

func (*installer) party() *compat.Party { return helm }

func (i *installer) begin(t *testing.T, w *testEnv) {
	var err error
	if i.chart, err = filepath.Abs("installer/chart"); err != nil {
		t.Fatal(err)
	}
	i.tool = tool{program: "installer", args: []string{w.path("admin.kubeconfig")}, log: w.path("installer.log")}
	helm.LogsIn(i.log)
	book.Step(t, helm, cycle, func(t *testing.T) { i.works(t, w, "begun", "begun") })
}

func (i *installer) works(t *testing.T, w *testEnv, namespace, name string) {
	namespace += "-helm"
	release := func(revision, status string) string {
		return fmt.Sprintf("%s revision %s is %s\n", name, revision, status)
	}
	i.says(t, w, release("1", "deployed"), namespace, "install", name, i.chart)
	i.has(t, w, namespace, name, "red", 1)
	i.says(t, w, release("2", "deployed"), namespace, "upgrade", name, i.chart, "color=blue", "replicas=2")
	i.has(t, w, namespace, name, "blue", 2)
	i.says(t, w, release("3", "deployed"), namespace, "rollback", name, "1")
	i.has(t, w, namespace, name, "red", 3)
	i.says(t, w, release("1", "superseded")+release("2", "superseded")+release("3", "deployed"), namespace, "history", name)
	i.says(t, w, release("3", "deployed"), namespace, "list")
	i.says(t, w, name+" uninstalled\n", namespace, "uninstall", name)
	left, err := w.typed.CoreV1().Secrets(namespace).List(context.Background(), metav1.ListOptions{LabelSelector: "owner=helm"})
	if err != nil || len(left.Items) != 0 {
		t.Errorf("%d releases are left, %v", len(left.Items), err)
	}
	if _, err := w.typed.AppsV1().Deployments(namespace).Get(context.Background(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Deployment: %v", err)
	}
	// One more, which is there when its namespace goes.
	i.says(t, w, fmt.Sprintf("%s-kept revision 1 is deployed\n", name), namespace, "install", name+"-kept", i.chart)
}

// has sees what a release has made.
func (i *installer) has(t *testing.T, w *testEnv, namespace, name, color string, revision int) {
	t.Helper()
	ctx := context.Background()
	made, err := w.typed.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rendered := 1
	if color == "blue" {
		rendered = revision
	}
	if made.Data["color"] != color || made.Data["revision"] != fmt.Sprint(rendered) || made.Data["autoscaling"] != "true" || made.Data["default"] != "default" {
		t.Errorf("the ConfigMap of %s holds %v", name, made.Data)
	}
	deployment, err := w.typed.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if image := deployment.Spec.Template.Spec.Containers[0].Image; image != "web:"+color {
		t.Errorf("the Deployment of %s runs %s", name, image)
	}
	_, err = w.typed.CoreV1().Secrets(namespace).Get(ctx, name+"-blue", metav1.GetOptions{})
	if (err == nil) != (color == "blue") {
		t.Errorf("the Secret of %s: %v", name, err)
	}
	if _, err := w.typed.CoreV1().Secrets(namespace).Get(ctx, fmt.Sprintf("sh.helm.release.v1.%s.v%d", name, revision), metav1.GetOptions{}); err != nil {
		t.Errorf("what Helm remembers of %s: %v", name, err)
	}
}

// emptied deletes the namespace that the releases are in, and with it what Helm knows of them.
func (i *installer) emptied(t *testing.T, w *testEnv, namespace, _ string) {
	w.empty(t, namespace+"-helm")
}
