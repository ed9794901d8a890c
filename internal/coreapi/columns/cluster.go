package columns

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
)

func yesNo(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "boolean", Description: description}
}

func ResourceQuotaColumns() Printer {
	return show(func(q *corev1.ResourceQuota, now time.Time) []any {
		var requests, limits []string
		for _, name := range slices.Sorted(maps.Keys(q.Status.Hard)) {
			used, hard := q.Status.Used[name], q.Status.Hard[name]
			shown := fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String())
			if strings.HasPrefix(string(name), "limits.") {
				limits = append(limits, shown)
			} else {
				requests = append(requests, shown)
			}
		}
		return []any{q.Name, strings.Join(requests, ", "), strings.Join(limits, ", "), ageOf(q, now)}
	}, name(), text("Request", "What is used of what may be requested, and how many objects there are"),
		text("Limit", "What is used of what containers may be limited to"), age())
}

func PriorityClassColumns() Printer {
	doc := schedulingv1.PriorityClass{}.SwaggerDoc()
	return show(func(c *schedulingv1.PriorityClass, now time.Time) []any {
		policy := ""
		if c.PreemptionPolicy != nil {
			policy = string(*c.PreemptionPolicy)
		}
		return []any{c.Name, int64(c.Value), c.GlobalDefault, ageOf(c, now), policy}
	}, name(), number("Value", doc["value"]), yesNo("Global-Default", doc["globalDefault"]), age(),
		text("PreemptionPolicy", doc["preemptionPolicy"]))
}

func RuntimeClassColumns() Printer {
	return show(func(c *nodev1.RuntimeClass, now time.Time) []any {
		return []any{c.Name, c.Handler, ageOf(c, now)}
	}, name(), text("Handler", nodev1.RuntimeClass{}.SwaggerDoc()["handler"]), age())
}

func CertificateSigningRequestColumns() Printer {
	doc := certificatesv1.CertificateSigningRequestSpec{}.SwaggerDoc()
	return show(func(r *certificatesv1.CertificateSigningRequest, now time.Time) []any {
		asked := none
		if seconds := r.Spec.ExpirationSeconds; seconds != nil {
			asked = duration.HumanDuration(time.Duration(*seconds) * time.Second)
		}
		return []any{r.Name, ageOf(r, now), orElse(r.Spec.SignerName, none), r.Spec.Username, asked, certificateState(r)}
	}, name(), age(), text("SignerName", doc["signerName"]), text("Requestor", doc["request"]),
		text("RequestedDuration", doc["expirationSeconds"]),
		text("Condition", certificatesv1.CertificateSigningRequestStatus{}.SwaggerDoc()["conditions"]))
}

func ClusterTrustBundleColumns() Printer {
	return show(func(b *certificatesv1.ClusterTrustBundle, _ time.Time) []any {
		return []any{b.Name, orElse(b.Spec.SignerName, none)}
	}, name(), text("SignerName", certificatesv1.ClusterTrustBundleSpec{}.SwaggerDoc()["signerName"]))
}

func PodCertificateRequestColumns() Printer {
	doc := certificatesv1.PodCertificateRequestSpec{}.SwaggerDoc()
	return show(func(r *certificatesv1.PodCertificateRequest, _ time.Time) []any {
		state := "Pending"
		for _, c := range r.Status.Conditions {
			state = c.Type
		}
		return []any{r.Name, r.Spec.PodName, r.Spec.ServiceAccountName, string(r.Spec.NodeName), r.Spec.SignerName, state,
			labels.FormatLabels(r.Spec.UnverifiedUserAnnotations)}
	}, name(), text("PodName", doc["podName"]), text("ServiceAccountName", doc["serviceAccountName"]), text("NodeName", doc["nodeName"]),
		text("SignerName", doc["signerName"]), text("State", "Is the request Pending, Issued, Denied, or Failed?"),
		wide(text("UnverifiedUserAnnotations", doc["unverifiedUserAnnotations"])))
}

// certificateState says what has become of a request: a denial weighs more than an approval.
func certificateState(r *certificatesv1.CertificateSigningRequest) string {
	has := func(kind certificatesv1.RequestConditionType) bool {
		return slices.ContainsFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == kind })
	}
	state := "Pending"
	switch {
	case has(certificatesv1.CertificateDenied):
		state = "Denied"
	case has(certificatesv1.CertificateApproved):
		state = "Approved"
	}
	if has(certificatesv1.CertificateFailed) {
		state += ",Failed"
	}
	if len(r.Status.Certificate) > 0 {
		state += ",Issued"
	}
	return state
}

func ComponentStatusColumns() Printer {
	return show(func(c *corev1.ComponentStatus, _ time.Time) []any {
		for _, condition := range c.Conditions {
			if condition.Type != corev1.ComponentHealthy {
				continue
			}
			status := "Unhealthy"
			if condition.Status == corev1.ConditionTrue {
				status = "Healthy"
			}
			return []any{c.Name, status, condition.Message, condition.Error}
		}
		return []any{c.Name, "Unknown", "", ""}
	}, name(), text("Status", "Whether the component is healthy"), text("Message", "What it says"), text("Error", "What is wrong with it"))
}
