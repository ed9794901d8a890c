package coreapi

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWritingAnAPIServiceWarnsOfItsNeighbours(t *testing.T) {
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
	}{
		"nothing to say":                            {"v1", "land.example.com", "there", nil},
		"a definition serves the group-version":     {"v1", "sea.example.com", "there", []string{"CustomResourceDefinition boats.sea.example.com serves sea.example.com/v1 too"}},
		"the service is missing":                    {"v1", "air.example.com", "gone", []string{"service work/gone does not exist"}},
		"both":                                      {"v1", "sea.example.com", "gone", []string{"boats.sea.example.com", "work/gone"}},
		"a version that the definition has not got": {"v2", "sea.example.com", "there", nil},
	} {
		t.Run(situation, func(t *testing.T) {
			body := `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"` + c.version + `.` + c.group + `"},"spec":{` +
				`"group":"` + c.group + `","version":"` + c.version + `","groupPriorityMinimum":1000,"versionPriority":15,"caBundle":"",` +
				`"service":{"namespace":"work","name":"` + c.service + `"}}}`
			result := rawClient(t, s.testServer).Post().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").
				Param("dryRun", "All").SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(within(t))
			if err := result.Error(); err != nil {
				t.Fatalf("refused: %v", err)
			}
			var got []string
			for _, w := range result.Warnings() {
				got = append(got, w.Text)
			}
			if !slices.EqualFunc(got, c.warnings, strings.Contains) {
				t.Fatalf("got %q, want %q", got, c.warnings)
			}
		})
	}
}
