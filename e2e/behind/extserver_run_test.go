//go:build incumbent

package behind

import (
	"fmt"
	"strings"
	"testing"
)

// extserver, installed by its own manifests and running as its own service account, behind an unmodified kube-apiserver.
// Every step is of use only after the one before it.
func TestExtensionServer(t *testing.T) {
	k := control(t, false)
	s := install(t, k)
	steps := book.steps(t)
	steps.does("registers itself, and all its APIServices become available", func(t *testing.T) {
		eventually(t, "available", func() error { return s.available(t) })
	})
	steps.does("serves kubectl top", s.top)
	steps.does("serves custom and external metrics", s.metrics)
	steps.does("scales a Deployment: the HorizontalPodAutoscaler of kube-controller-manager reads an external metric", s.autoscale)
	steps.does("serves the resources that a YAML file declares, with Table and OpenAPI", s.declared)
	steps.does("shows each caller their own projects", s.projects)
	steps.does("authenticates and authorizes callers with kube-apiserver (TokenReview, SubjectAccessReview)", s.reviews)
	steps.does("accepts X-Remote headers only from the front proxy", s.forged)
	steps.does("serves a watch that an informer resumes after a restart of either side", s.informer)
	steps.does("follows the replacement of the front-proxy authority", s.rotate)
	steps.does("registers a new serving authority after the old one is lost", s.newAuthority)
	steps.does("gets the full score from aggregator conformance for its resources", s.examined)
}

func (s *installed) top(t *testing.T) {
	eventually(t, "kubectl top node", func() error {
		out := runProgram(t, s.Kubeconfig, "", "kubectl", "top", "node")
		if fields := strings.Fields(lineOf(out.stdout, "n1")); out.code != 0 || len(fields) != 5 || !strings.HasSuffix(fields[2], "%") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	if out := kubectl(t, s.Kubeconfig, "", "top", "pod", "-n", "host"); !strings.Contains(out, "Mi") {
		t.Errorf("kubectl top pod = %s, want the memory in Mi", out)
	}
}

// lineOf is the line of a table that begins with a word.
func lineOf(table, word string) string {
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, word+" ") {
			return line
		}
	}
	return ""
}

func (s *installed) metrics(t *testing.T) {
	for path, want := range map[string]string{
		"/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue_depth?labelSelector=queue%3Dmail": `"value":"12"`,
		"/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/metrics/tickets":                          `"value":"5"`,
		"/apis/custom.metrics.k8s.io/v1beta1/namespaces/shop/metrics/tickets":                          `"metricName":"tickets"`,
		"/apis/custom.metrics.k8s.io/v1beta2":                                                          `"namespaces/tickets"`,
	} {
		eventually(t, path, func() error { return s.says(t, path, want) })
	}
}

func (s *installed) says(t *testing.T, path, want string) error {
	t.Helper()
	if out := runProgram(t, s.Kubeconfig, "", "kubectl", "get", "--raw", path); out.code != 0 || !strings.Contains(out.stdout, want) {
		return fmt.Errorf("%s: want %s in it", out, want)
	}
	return nil
}

// 12 letters wait and each mailer is to have 4.
func (s *installed) autoscale(t *testing.T) {
	kubectl(t, s.Kubeconfig, scaled, "create", "-f", "-")
	eventually(t, "three replicas", func() error {
		if out := kubectl(t, s.Kubeconfig, "", "-n", "shop", "get", "deployment", "mailer", "-o", "jsonpath={.spec.replicas}"); out != "3" {
			return fmt.Errorf("there are %s: %s", out, kubectl(t, s.Kubeconfig, "", "-n", "shop", "describe", "hpa", "mailer"))
		}
		return nil
	})
}

func (s *installed) declared(t *testing.T) {
	eventually(t, "kubectl get queues", func() error {
		out := runProgram(t, s.Kubeconfig, "", "kubectl", "get", "queues", "-A")
		if strings.Join(strings.Fields(lineOf(out.stdout, "shop")), " ") != "shop orders 3" {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	// kube-apiserver requests documents once per minute.
	eventually(t, "kubectl explain", func() error {
		if out := runProgram(t, s.Kubeconfig, "", "kubectl", "explain", "queues.status"); !strings.Contains(out.stdout, "depth") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

func (s *installed) projects(t *testing.T) {
	alice, bob := s.file("alice.kubeconfig"), s.file("bob.kubeconfig")
	for file, user := range map[string]string{alice: "alice", bob: "bob"} {
		if err := s.WriteKubeconfig(file, user, "guests"); err != nil {
			t.Fatal(err)
		}
	}
	kubectl(t, alice, "apiVersion: project.portico.dev/v1\nkind: ProjectRequest\nmetadata: {name: attic}\n", "create", "--validate=false", "-f", "-")
	eventually(t, "alice sees her project", func() error {
		if out := kubectl(t, alice, "", "get", "projects", "-o", "name"); out != "project.project.portico.dev/attic\n" {
			return fmt.Errorf("she sees %q", out)
		}
		return nil
	})
	if out := kubectl(t, bob, "", "get", "projects", "-o", "name"); out != "" {
		t.Errorf("projects of bob = %q, want none", out)
	}
	if out := kubectl(t, s.Kubeconfig, "", "get", "projects", "-o", "name"); !strings.Contains(out, "kube-system") {
		t.Errorf("projects of the administrator = %q, want kube-system", out)
	}
	if out := runProgram(t, bob, "", "kubectl", "-n", "attic", "get", "configmaps"); !strings.Contains(out.stderr, "Forbidden") {
		t.Errorf("ConfigMaps of alice's project for bob = %s, want Forbidden", out)
	}
	kubectl(t, alice, "", "-n", "attic", "create", "configmap", "mine")
}
