package coreapi

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAPIServiceWritesWarnOfConflictingObjects(t *testing.T) {
	s := startCRDServer(t)
	client := s.typed(t, admin)
	namespace(t, client, "work")
	s.define(t, boats)
	_, err := client.CoreV1().Services("work").Create(within(t), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "there"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for situation, c := range map[string]struct {
		version, group, service string
		warnings                []string
		managed                 string // the value of the label automanaged
	}{
		"nothing to say":                        {"v1", "land.example.com", "there", nil, ""},
		"a definition serves the group-version": {"v1", "sea.example.com", "there", []string{"CustomResourceDefinition boats.sea.example.com serves sea.example.com/v1 too"}, ""},
		"the service is missing":                {"v1", "air.example.com", "gone", []string{"service work/gone does not exist"}, ""},
		"both":                                  {"v1", "sea.example.com", "gone", []string{"boats.sea.example.com", "work/gone"}, ""},
		"reverted, a definition serves it": {"v1", "sea.example.com", "gone", []string{
			"automanaged=true this server makes this APIService local again at once, because CustomResourceDefinition boats.sea.example.com serves sea.example.com/v1"}, "true"},
		"deleted, no definition serves it": {"v1", "air.example.com", "gone", []string{
			"automanaged=true this server deletes this APIService at once, because no CustomResourceDefinition serves air.example.com/v1"}, "true"},
		"reverted at the next start": {"v1", "apps", "there", []string{
			"automanaged=onstart this server makes this APIService local again at its next start, because it serves apps/v1 itself"}, "onstart"},
		"of a built-in group as if it were of a definition": {"v1", "apps", "there", []string{
			"automanaged=true this server makes this APIService local again at its next start", "whoever can answer in place of the service"}, "true"},
		"a label of another value":                  {"v1", "air.example.com", "gone", []string{"service work/gone does not exist"}, "no"},
		"a version that the definition has not got": {"v2", "sea.example.com", "there", nil, ""},
	} {
		t.Run(situation, func(t *testing.T) {
			labels, unverified := "", "false"
			if c.managed != "" {
				labels = `,"labels":{"kube-aggregator.kubernetes.io/automanaged":"` + c.managed + `"}`
			}
			if c.managed == "true" { // the warning requires a service that receives requests
				unverified = "true"
			}
			body := `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"` + c.version + `.` + c.group + `"` + labels + `},"spec":{` +
				`"group":"` + c.group + `","version":"` + c.version + `","groupPriorityMinimum":1000,"versionPriority":15,"insecureSkipTLSVerify":` + unverified + `,` +
				`"service":{"namespace":"work","name":"` + c.service + `"}}}`
			result := rawClient(t, s.testServer).Post().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").
				Param("dryRun", "All").SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(within(t))
			if err := result.Error(); err != nil {
				t.Fatalf("create of the APIService failed: %v, want no error", err)
			}
			var got []string
			for _, w := range result.Warnings() {
				got = append(got, w.Text)
			}
			if !slices.EqualFunc(got, c.warnings, strings.Contains) {
				t.Fatalf("warnings = %q, want %q", got, c.warnings)
			}
		})
	}
}
