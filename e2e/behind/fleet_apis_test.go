//go:build incumbent

package behind

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/e2e/programs"
)

const (
	statsGroup = "stats.example.com"
	statsAPI   = "v1." + statsGroup
	// queue is the path of the object of the extension server.
	queue = "/apis/" + statsGroup + "/v1/namespaces/shop/queues/orders"
)

// startExtension starts an extension server of the front door, and adds its API to both clusters.
func (f *fleet) startExtension(t *testing.T, admin string) *programs.Process {
	t.Helper()
	dir := t.TempDir()
	data, resources := filepath.Join(dir, "queues.json"), filepath.Join(dir, "queues.yaml")
	for file, text := range map[string]string{data: `{"data": [{"id": "orders", "team": "shop", "depth": 3}]}`, resources: fmt.Sprintf(declaration, data)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server, err := programs.Start("extserver", dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, nil, filepath.Join(binaries, "extserver"),
		"serve", "--kubeconfig", f.through(t, admin, 0, 1), "--bind-address", "127.0.0.1", "--secure-port", "0", "--metrics-source", "none", "--resources", resources)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Finish(t)
		server.Show(t)
	})
	eventually(t, "the APIService is available", func() error {
		return succeeds(t, admin, "", "condition met", "wait", "--for=condition=Available", "--timeout=1s", "apiservice/"+statsAPI)
	})
	kubectl(t, admin, "", "create", "clusterrole", "queues", "--verb", "get,list,watch", "--resource", "queues."+statsGroup)
	kubectl(t, admin, "", "create", "clusterrolebinding", "queues", "--clusterrole", "queues", "--group", team)
	for name := range f.clusters {
		kubectl(t, admin, "", "patch", "cluster", name, "--type", "merge", "-p", fmt.Sprintf(`{"spec":{"apiServices":[%q]}}`, statsAPI))
		for way, kubeconfig := range f.ways(t, name) {
			eventually(t, "cluster "+name+" has the API "+way, func() error {
				return succeeds(t, kubeconfig, "", "orders", "get", "--raw", queue)
			})
		}
	}
	return server
}

// extensionAPI uses the API as kubectl does.
func (f *fleet) extensionAPI(t *testing.T, admin string) {
	for name, c := range f.clusters {
		for way, kubeconfig := range f.ways(t, name) {
			for want, args := range map[string][]string{
				"shop orders 3":                          {"get", "queues", "-A"},
				"queues stats.example.com/v1 true Queue": {"api-resources", "--api-group", statsGroup},
				"FIELD: depth <integer>":                 {"explain", "queue.status.depth"},
				"configmaps":                             {"api-resources", "--api-group", ""},
			} {
				if got := kubectl(t, kubeconfig, "", args...); !strings.Contains(strings.Join(strings.Fields(got), " "), want) {
					t.Errorf("cluster %s, %s: kubectl %q = %s, want %s", name, way, args, got, want)
				}
			}
		}
		if out := runProgram(t, c.Kubeconfig, "", "kubectl", "get", "--raw", queue); out.code == 0 {
			t.Errorf("cluster %s: the object without the front door = %s, want none", name, out)
		}
		// Bob has the rights at the front door, and none in the cluster.
		want := fmt.Sprintf("User \"bob\" cannot list resource \"queues\" in API group %q", statsGroup)
		if out := runProgram(t, f.kubeconfig(t, name, "bob", team), "", "kubectl", "get", "queues", "-A"); out.code != 1 || !strings.Contains(out.stderr, want) {
			t.Errorf("cluster %s: kubectl get queues as bob = %s, want the refusal %s", name, out, want)
		}
	}
	if got := f.discovered(t, admin); got.freshness != "Current" {
		t.Errorf("the group in the discovery of the front door = %+v, want Current", got)
	}
}

// extensionKilled kills the extension server, and checks the responses about its API and about others.
func (f *fleet) extensionKilled(t *testing.T, admin string, server *programs.Process) {
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	kubectl(t, admin, "", "wait", "--for=condition=Available=False", "--timeout=1m", "apiservice/"+statsAPI)
	want := f.discovered(t, admin)
	if !strings.Contains(want.resources, "queues") || want.freshness != "Current" {
		t.Errorf("the API in the discovery of the front door = %+v, want Current with its last resources, because none can be deleted", want)
	}
	for name := range f.clusters {
		for way, kubeconfig := range f.ways(t, name) {
			eventually(t, fmt.Sprintf("the discovery of cluster %s is that of the front door %s", name, way), func() error {
				if got := f.discovered(t, kubeconfig); got != want {
					return fmt.Errorf("it is %+v, want %+v", got, want)
				}
				return nil
			})
			if out := runProgram(t, kubeconfig, "", "kubectl", "get", "--raw", queue); out.code != 1 || !strings.Contains(out.stderr, "ServiceUnavailable") || !strings.Contains(out.stderr, statsAPI) {
				t.Errorf("cluster %s, %s: the object = %s, want the 503 that names %s", name, way, out, statsAPI)
			}
			if got := kubectl(t, kubeconfig, "", "get", "crontabs"); !strings.Contains(got, "nightly") {
				t.Errorf("cluster %s, %s: kubectl get crontabs = %s, want the objects of the cluster", name, way, got)
			}
		}
	}
}

// discovered is the API in aggregated discovery.
type discovered struct{ freshness, resources string }

func (f *fleet) discovered(t *testing.T, kubeconfig string) discovered {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	var all apidiscoveryv2.APIGroupDiscoveryList
	body, err := client.RESTClient().Get().AbsPath("/apis").SetHeader("Accept", discovery.AcceptV2).DoRaw(t.Context())
	if err == nil {
		err = json.Unmarshal(body, &all)
	}
	if err != nil {
		t.Fatalf("GET /apis: %v, want aggregated discovery: %.300s", err, body)
	}
	for _, group := range all.Items {
		if group.Name == statsGroup && len(group.Versions) == 1 {
			return discovered{string(group.Versions[0].Freshness), fmt.Sprint(group.Versions[0].Resources)}
		}
	}
	return discovered{freshness: "missing"}
}
