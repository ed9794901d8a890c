package validate

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	Namespaced    = true
	ClusterScoped = false
)

// ObjectMeta checks the metadata of the kinds that also ask for well-known names of finalizers.
func ObjectMeta(m *metav1.ObjectMeta, scope bool, name validation.ValidateNameFunc) field.ErrorList {
	errs := PlainMeta(m, scope, name)
	path := field.NewPath("metadata", "finalizers")
	for i, finalizer := range m.Finalizers {
		errs = append(errs, StandardFinalizer(finalizer, path.Index(i))...)
	}
	return errs
}

func PlainMeta(m *metav1.ObjectMeta, scope bool, name validation.ValidateNameFunc) field.ErrorList {
	return validation.ValidateObjectMeta(m, scope, name, field.NewPath("metadata"))
}

// StandardFinalizer refuses a finalizer without a domain unless it is one of the few that have none: nobody would know
// whose it is, and the object could never be deleted.
func StandardFinalizer(name string, path *field.Path) field.ErrorList {
	switch name {
	case string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents:
		return nil
	}
	if strings.Contains(name, "/") {
		return nil
	}
	return field.ErrorList{field.Invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified")}
}

// finalizersOnUpdate asks for well-known names in updates of kinds whose rules for updates do not look at metadata.
func finalizersOnUpdate(obj runtime.Object) field.ErrorList {
	switch obj.(type) {
	case *corev1.Namespace, *corev1.PodTemplate, *corev1.ReplicationController, *corev1.ResourceQuota, *eventsv1.Event,
		*appsv1.Deployment, *appsv1.ReplicaSet, *appsv1.StatefulSet, *appsv1.DaemonSet, *autoscalingv2.HorizontalPodAutoscaler,
		*batchv1.Job, *batchv1.CronJob, *networkingv1.NetworkPolicy, *networkingv1.ServiceCIDR, *schedulingv1.PriorityClass:
	default:
		return nil
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return field.ErrorList{field.InternalError(field.NewPath("metadata"), err)}
	}
	var errs field.ErrorList
	for i, finalizer := range m.GetFinalizers() {
		errs = append(errs, StandardFinalizer(finalizer, field.NewPath("metadata", "finalizers").Index(i))...)
	}
	return errs
}

// Invalid turns the messages of one of the library's string checks into errors.
func Invalid(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, message := range messages {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}

func DnsLabel(value string, path *field.Path) field.ErrorList {
	return Invalid(path, value, utilvalidation.IsDNS1123Label(value))
}

func DnsSubdomain(value string, path *field.Path) field.ErrorList {
	return Invalid(path, value, utilvalidation.IsDNS1123Subdomain(value))
}

func PortNumber(port int32, path *field.Path) field.ErrorList {
	return Invalid(path, port, utilvalidation.IsValidPortNum(int(port)))
}

// OneOf refuses a value that is not in the list; an absent one has to be asked for by required.
func OneOf[T ~string](value T, path *field.Path, allowed ...T) field.ErrorList {
	for _, v := range allowed {
		if value == v {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

func Required[T ~string](value T, path *field.Path, allowed ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return OneOf(value, path, allowed...)
}

func Protocol(p corev1.Protocol, path *field.Path) field.ErrorList {
	return Required(p, path, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

func Immutable(value, old any, path *field.Path) field.ErrorList {
	return validation.ValidateImmutableField(value, old, path)
}
