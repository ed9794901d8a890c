package columns

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func containerNames() metav1.TableColumnDefinition {
	return text("Containers", "Names of each container in the template.")
}

func containerImages() metav1.TableColumnDefinition {
	return text("Images", "Images referenced by each container in the template.")
}

// containersOf are the cells of containerNames and containerImages.
func containersOf(spec *corev1.PodSpec) (names, images string) {
	all, from := make([]string, len(spec.Containers)), make([]string, len(spec.Containers))
	for i := range spec.Containers {
		all[i], from[i] = spec.Containers[i].Name, spec.Containers[i].Image
	}
	return strings.Join(all, ","), strings.Join(from, ",")
}

// replicas is a number that defaulting has set; 0 on the way of an object that was never read.
func replicas(n *int32) int64 {
	if n == nil {
		return 0
	}
	return int64(*n)
}

func DeploymentColumns() Printer {
	spec, status := appsv1.DeploymentSpec{}.SwaggerDoc(), appsv1.DeploymentStatus{}.SwaggerDoc()
	return show(func(d *appsv1.Deployment, now time.Time) []any {
		names, images := containersOf(&d.Spec.Template.Spec)
		selector := "<invalid>"
		if parsed, err := metav1.LabelSelectorAsSelector(d.Spec.Selector); err == nil {
			selector = parsed.String()
		}
		return []any{
			d.Name, fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, replicas(d.Spec.Replicas)), int64(d.Status.UpdatedReplicas),
			int64(d.Status.AvailableReplicas), ageOf(d, now), names, images, selector,
		}
	}, name(), text("Ready", "Number of the pod with ready state"), text("Up-to-date", status["updatedReplicas"]),
		text("Available", status["availableReplicas"]), age(), wide(containerNames()), wide(containerImages()),
		wide(text("Selector", spec["selector"])))
}

func ReplicaSetColumns() Printer {
	spec, status := appsv1.ReplicaSetSpec{}.SwaggerDoc(), appsv1.ReplicaSetStatus{}.SwaggerDoc()
	return show(func(s *appsv1.ReplicaSet, now time.Time) []any {
		names, images := containersOf(&s.Spec.Template.Spec)
		return []any{
			s.Name, replicas(s.Spec.Replicas), int64(s.Status.Replicas), int64(s.Status.ReadyReplicas), ageOf(s, now),
			names, images, metav1.FormatLabelSelector(s.Spec.Selector),
		}
	}, name(), number("Desired", spec["replicas"]), number("Current", status["replicas"]), number("Ready", status["readyReplicas"]),
		age(), wide(containerNames()), wide(containerImages()), wide(text("Selector", spec["selector"])))
}

func StatefulSetColumns() Printer {
	return show(func(s *appsv1.StatefulSet, now time.Time) []any {
		names, images := containersOf(&s.Spec.Template.Spec)
		return []any{s.Name, fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, replicas(s.Spec.Replicas)), ageOf(s, now), names, images}
	}, name(), text("Ready", "Number of the pod with ready state"), age(), wide(containerNames()), wide(containerImages()))
}

func DaemonSetColumns() Printer {
	status := appsv1.DaemonSetStatus{}.SwaggerDoc()
	return show(func(s *appsv1.DaemonSet, now time.Time) []any {
		names, images := containersOf(&s.Spec.Template.Spec)
		return []any{
			s.Name, int64(s.Status.DesiredNumberScheduled), int64(s.Status.CurrentNumberScheduled), int64(s.Status.NumberReady),
			int64(s.Status.UpdatedNumberScheduled), int64(s.Status.NumberAvailable),
			labels.FormatLabels(s.Spec.Template.Spec.NodeSelector), ageOf(s, now), names, images,
			metav1.FormatLabelSelector(s.Spec.Selector),
		}
	}, name(), number("Desired", status["desiredNumberScheduled"]), number("Current", status["currentNumberScheduled"]),
		number("Ready", status["numberReady"]), number("Up-to-date", status["updatedNumberScheduled"]),
		number("Available", status["numberAvailable"]), text("Node Selector", corev1.PodSpec{}.SwaggerDoc()["nodeSelector"]),
		age(), wide(containerNames()), wide(containerImages()),
		wide(text("Selector", appsv1.DaemonSetSpec{}.SwaggerDoc()["selector"])))
}

func ControllerRevisionColumns() Printer {
	return show(func(r *appsv1.ControllerRevision, now time.Time) []any {
		return []any{r.Name, controllerOf(r), r.Revision, ageOf(r, now)}
	}, name(), text("Controller", "Controller of the object"),
		text("Revision", appsv1.ControllerRevision{}.SwaggerDoc()["revision"]), age())
}

// controllerOf is the owner that manages an object, as kubectl would accept it: deployment.apps/web.
func controllerOf(object metav1.Object) string {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return none
	}
	kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
	if kind.Empty() {
		return owner.Name
	}
	return strings.ToLower(kind.String()) + "/" + owner.Name
}

func PodTemplateColumns() Printer {
	return show(func(t *corev1.PodTemplate, _ time.Time) []any {
		names, images := containersOf(&t.Template.Spec)
		return []any{t.Name, names, images, labels.FormatLabels(t.Template.Labels)}
	}, name(), containerNames(), containerImages(), text("Pod Labels", "The labels for the pod template."))
}

func ReplicationControllerColumns() Printer {
	spec, status := corev1.ReplicationControllerSpec{}.SwaggerDoc(), corev1.ReplicationControllerStatus{}.SwaggerDoc()
	return show(func(c *corev1.ReplicationController, now time.Time) []any {
		var names, images string
		if c.Spec.Template != nil {
			names, images = containersOf(&c.Spec.Template.Spec)
		}
		return []any{
			c.Name, replicas(c.Spec.Replicas), int64(c.Status.Replicas), int64(c.Status.ReadyReplicas), ageOf(c, now),
			names, images, labels.FormatLabels(c.Spec.Selector),
		}
	}, name(), number("Desired", spec["replicas"]), number("Current", status["replicas"]), number("Ready", status["readyReplicas"]),
		age(), wide(containerNames()), wide(containerImages()), wide(text("Selector", spec["selector"])))
}
