package doctor

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

func TestServiceOfAvailableAPIServiceIsNotChanged(t *testing.T) {
	const targetPort = "kubectl -n shop patch service orders --type=json"
	for _, c := range []struct {
		situation string
		service   string
		port      int32
		available apiregistrationv1.ConditionStatus
		want      string // the last command
		spared    bool
	}{
		{"another port", "orders", 8443, apiregistrationv1.ConditionTrue,
			`kubectl patch apiservice v1.shop.example.com --type=merge -p '{"spec":{"service":{"port":8443}}}'`, true},
		{"same port", "orders", 443, apiregistrationv1.ConditionTrue, "kubectl describe apiservice v1.other.example.com", true},
		{"not available either", "orders", 8443, apiregistrationv1.ConditionFalse, targetPort, false},
		{"another Service", "customers", 443, apiregistrationv1.ConditionTrue, targetPort, false},
	} {
		w := newTestCluster(t)
		w.slice.Ports[0].Port = new(closedPort(t))
		w.objects = append(w.objects, &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: "v1.other.example.com"},
			Spec: apiregistrationv1.APIServiceSpec{
				Group: "other.example.com", Version: "v1", Service: &apiregistrationv1.ServiceReference{Namespace: "shop", Name: c.service, Port: new(c.port)},
			},
			Status: apiregistrationv1.APIServiceStatus{Conditions: []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: c.available}}},
		})
		w.open()
		d, err := New(w.cfg)
		if err != nil {
			t.Fatal(err)
		}
		report, err := d.Examine(t.Context(), name)
		d.Close()
		if err != nil || report.Broken == nil {
			t.Fatalf("%s: report = %+v, %v; want a broken hop", c.situation, report, err)
		}
		fix := report.Broken.Mend
		if last := fix[len(fix)-1]; !strings.HasPrefix(last, c.want) {
			t.Errorf("%s: last line of the fix = %s, want %s", c.situation, last, c.want)
		}
		changed := slices.ContainsFunc(fix, func(line string) bool { return strings.HasPrefix(line, targetPort) })
		named := strings.Contains(strings.Join(fix, "\n"), "APIService v1.other.example.com uses it too")
		if changed == c.spared || named != c.spared {
			t.Errorf("%s: fix =\n%s\nwant a change of the Service = %v, the other APIService named = %v", c.situation, strings.Join(fix, "\n"), !c.spared, c.spared)
		}
	}
}
