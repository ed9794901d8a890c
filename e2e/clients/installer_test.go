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

// installer is e2e/clients/installer, run once for each Helm operation.
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
		t.Errorf("%d Secrets of releases after the uninstallation, %v; want 0", len(left.Items), err)
	}
	if _, err := w.typed.AppsV1().Deployments(namespace).Get(context.Background(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get of the Deployment after the uninstallation = %v, want NotFound", err)
	}
	// One more release, which exists when its namespace is deleted.
	i.says(t, w, fmt.Sprintf("%s-kept revision 1 is deployed\n", name), namespace, "install", name+"-kept", i.chart)
}

// has checks the objects of a release.
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
		t.Errorf("data of the ConfigMap of %s = %v, want the values of the release", name, made.Data)
	}
	deployment, err := w.typed.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if image := deployment.Spec.Template.Spec.Containers[0].Image; image != "web:"+color {
		t.Errorf("image of the Deployment of %s = %s, want the color of the release", name, image)
	}
	_, err = w.typed.CoreV1().Secrets(namespace).Get(ctx, name+"-blue", metav1.GetOptions{})
	if (err == nil) != (color == "blue") {
		t.Errorf("Get of the Secret of %s = %v, want it only with the color blue", name, err)
	}
	if _, err := w.typed.CoreV1().Secrets(namespace).Get(ctx, fmt.Sprintf("sh.helm.release.v1.%s.v%d", name, revision), metav1.GetOptions{}); err != nil {
		t.Errorf("Get of the Secret with Helm's record of %s failed: %v, want no error", name, err)
	}
}

// emptied deletes the namespace of the releases with Helm's records.
func (i *installer) emptied(t *testing.T, w *testEnv, namespace, _ string) {
	w.empty(t, namespace+"-helm")
}
