package aggregator

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	cliflag "k8s.io/component-base/cli/flag"
)

// A group that is off by default is in all documents after it is turned on, beside the other groups.
func TestOptInGroupIsServedAndDescribed(t *testing.T) {
	t.Parallel()
	admin, stop := open(t, t.TempDir(), func(c *Config) {
		c.RuntimeConfig = cliflag.ConfigurationMap{"clusters.portico.dev/v1alpha1": "true"}
	})
	for path, text := range map[string]string{
		"/apis/clusters.portico.dev/v1alpha1": `"name":"clusters/status"`,
		"/apis":                               `"clusters.portico.dev/v1alpha1"`,
		"/openapi/v3":                         `"apis/clusters.portico.dev/v1alpha1"`,
		"/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.clusters.portico.dev": `"type":"Available"`,
		"/openapi/v3/apis/clusters.portico.dev/v1alpha1":                            "dev.portico.clusters.v1alpha1.RateLimit",
	} {
		eventually(t, "that the group is served", func() error { return answers(t, admin, path, http.StatusOK, text) })
	}
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "that the OpenAPI v2 document has the group", func() error {
		body, err := client.Discovery().RESTClient().Get().AbsPath("/openapi/v2").SetHeader("Accept", "application/json").DoRaw(t.Context())
		if err != nil {
			return err
		}
		for _, part := range []string{`"/apis/clusters.portico.dev/v1alpha1/clusters/{name}"`, `"dev.portico.clusters.v1alpha1.Cluster"`, `"/apis/apps/v1/deployments"`} {
			if !strings.Contains(string(body), part) {
				return fmt.Errorf("/openapi/v2 without %s", part)
			}
		}
		if strings.Contains(string(body), "DeleteOptions_v2") {
			return fmt.Errorf("/openapi/v2 has two definitions of DeleteOptions, want one")
		}
		return nil
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
