//go:build incumbent

package behind

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"portico.dev/e2e/programs"
)

const crontabs = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: crontabs.front.example.com
spec:
  group: front.example.com
  names: {kind: CronTab, listKind: CronTabList, plural: crontabs, singular: crontab}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              schedule: {type: string, description: when it runs}
`

const crontab = `apiVersion: front.example.com/v1
kind: CronTab
metadata:
  name: nightly
spec:
  schedule: "0 3 * * *"
`

const unreachable = `apiVersion: v1
kind: Service
metadata:
  name: unreachable
  namespace: default
spec:
  clusterIP: None
  ports: [{port: 443}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata:
  name: v1.dead.example.com
spec:
  group: dead.example.com
  version: v1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {namespace: default, name: unreachable}
`

// `aggregator front` in front of an unmodified kube-apiserver. kubectl works as without it, names the cause of a dead aggregated API,
// and knows the resource types while kube-apiserver is away.
func TestFront(t *testing.T) {
	k, server := kubeAPIServer(t)
	front := startFront(t, k.Kubeconfig)

	t.Run("kubectl reads and writes as without a front", func(t *testing.T) {
		kubectl(t, front, crontabs, "apply", "-f", "-")
		kubectl(t, front, "", "wait", "--for=condition=established", "crd/crontabs.front.example.com")
		eventually(t, "the resource type is served", func() error {
			return succeeds(t, front, crontab, "", "apply", "--server-side", "-f", "-")
		})
		eventually(t, "it is described", func() error {
			return succeeds(t, front, "", "when it runs", "explain", "crontab.spec.schedule")
		})
		for _, args := range [][]string{
			{"get", "namespaces", "-o", "yaml"}, {"get", "crontabs", "-A"}, {"api-resources"}, {"api-versions"}, {"get", "--raw", "/version"},
			{"get", "--raw", "/openapi/v3"}, {"get", "--raw", "/readyz"}, {"get", "--raw", "/apis/apps/v1"}, {"auth", "whoami"},
		} {
			if got, want := kubectl(t, front, "", args...), kubectl(t, k.Kubeconfig, "", args...); got != want {
				t.Errorf("kubectl %q through the front = %s, want %s as without it", args, got, want)
			}
		}
		if out := runProgram(t, front, "", "kubectl", "--as", "bob", "get", "secrets"); out.code != 1 || !strings.Contains(out.stderr, `User "bob" cannot list resource "secrets"`) {
			t.Errorf("kubectl --as bob = %s, want the refusal of kube-apiserver", out)
		}
	})

	t.Run("a dead aggregated API is refused with its cause", func(t *testing.T) {
		kubectl(t, front, unreachable, "apply", "-f", "-")
		eventually(t, "the cause", func() error {
			out := runProgram(t, front, "", "kubectl", "get", "--raw", "/apis/dead.example.com/v1/things")
			if want := "APIService v1.dead.example.com is unavailable (EndpointsNotFound since "; out.code != 1 || !strings.Contains(out.stderr, want) {
				return fmt.Errorf("%s; want %q", out, want)
			}
			return nil
		})
		kubectl(t, k.Kubeconfig, "", "delete", "apiservice", "v1.dead.example.com")
	})

	t.Run("discovery is available while kube-apiserver is away", func(t *testing.T) {
		if err := server.stop(); err != nil {
			t.Fatal(err)
		}
		out := runProgram(t, front, "", "kubectl", "api-resources")
		if out.code != 0 || !strings.Contains(out.stdout, "crontabs") || !strings.Contains(out.stderr, "does not answer; this document is of ") {
			t.Errorf("kubectl api-resources = %s, want crontabs and a warning", out)
		}
		if out := runProgram(t, front, "", "kubectl", "get", "crontabs"); out.code != 1 || !strings.Contains(out.stderr, "it refused the connection") {
			t.Errorf("kubectl get crontabs = %s, want the cause", out)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := server.start(ctx); err != nil {
			t.Fatal(err)
		}
		eventually(t, "requests are served again", func() error {
			return succeeds(t, front, "", "nightly", "get", "crontab", "nightly")
		})
	})
}

// succeeds returns an error if kubectl fails, or does not print text.
func succeeds(t *testing.T, kubeconfig, input, text string, args ...string) error {
	if out := runProgram(t, kubeconfig, input, "kubectl", args...); out.code != 0 || !strings.Contains(out.stdout, text) {
		return fmt.Errorf("%s; want exit status 0 and %q", out, text)
	}
	return nil
}

// startFront starts a front until the test ends, and returns its kubeconfig.
func startFront(t *testing.T, kubeconfig string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "front.kubeconfig")
	p, err := programs.Start("front", dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, nil, filepath.Join(binaries, "aggregator"),
		"front", "--kubeconfig", kubeconfig, "--write-kubeconfig", file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Show(t)
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the front is ready", func() error {
		if out := p.Output(); !strings.Contains(out, "is a front for") {
			return fmt.Errorf("output: %s", out)
		}
		return nil
	})
	return file
}
