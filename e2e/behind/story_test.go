//go:build incumbent

package behind

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"portico.dev/e2e/programs"
	"portico.dev/internal/tools/drill/faulty"
)

// told is how the story went at one front door.
type told struct {
	FrontDoor string `json:"frontDoor"`
	// Gone is the time in seconds from the deletion of the namespace until it did not exist any more. 0: not while the server
	// was dead.
	Gone float64 `json:"gone,omitempty"`
	// Waited is how long the server was dead after the deletion, and Condition the namespace's condition then.
	Waited    float64 `json:"waited,omitempty"`
	Condition string  `json:"condition,omitempty"`
	// AfterReturn is the time in seconds from the server's return until the namespace did not exist any more.
	AfterReturn float64 `json:"afterReturn,omitempty"`
	// Get is kubectl's output for an object of the dead server, and APIResources the output of `kubectl api-resources` for its
	// kind.
	Get          string `json:"get"`
	APIResources string `json:"apiResources"`
}

// A server without storage dies. A namespace that never had objects of it is deleted.
func TestNamespaceWithADeadServer(t *testing.T) {
	t.Run("kube-apiserver", func(t *testing.T) {
		t.Parallel()
		k := control(t, false)
		story := tell(t, k.Kubeconfig)
		story.FrontDoor = theirs
		if story.Gone != 0 || !strings.Contains(story.Condition, "story.example.com/v1") {
			t.Errorf("story of kube-apiserver = %+v, want a namespace that is not deleted, as in docs/incumbent.md", story)
		}
		book.add(storyAt+story.FrontDoor, func() { book.Story = append(book.Story, story) })
	})
	t.Run("portico", func(t *testing.T) {
		t.Parallel()
		p, kubeconfig, err := programs.StartDev(binaries, t.TempDir(), nil)
		if p != nil {
			t.Cleanup(func() { p.Finish(t) })
		}
		if err != nil {
			t.Fatal(err)
		}
		story := tell(t, filepath.Clean(kubeconfig))
		story.FrontDoor = ours
		if story.Gone == 0 || story.Gone > 10 {
			t.Errorf("story of the front door = %+v, want the namespace deleted within 10 s", story)
		}
		book.add(storyAt+story.FrontDoor, func() { book.Story = append(book.Story, story) })
	})
}

// heldUp is how long the server stays dead for a namespace that does not go.
const heldUp = time.Minute

func tell(t *testing.T, kubeconfig string) told {
	t.Helper()
	r := registration{group: "story.example.com", namespace: "home", service: "readings", address: "localhost"}
	server, err := faulty.New(faulty.Config{Group: r.group, ServerName: "readings.home.svc", Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	runServer(t, server, &r)
	kubectl(t, kubeconfig, "", "create", "namespace", "home")
	kubectl(t, kubeconfig, r.yaml(), "apply", "-f", "-")
	eventually(t, "kubectl get readings", func() error {
		if out := runProgram(t, kubeconfig, "", "kubectl", "get", "readings", "-n", "home"); out.code != 0 {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	kubectl(t, kubeconfig, "", "create", "namespace", "doomed")
	kubectl(t, kubeconfig, "", "create", "configmap", "a", "-n", "doomed")
	if err := server.SetFault(faulty.Refuse); err != nil {
		t.Fatal(err)
	}
	kubectl(t, kubeconfig, "", "wait", "--for=condition=Available=False", "apiservice/"+r.apiService(), "--timeout=2m")
	var story told
	get := runProgram(t, kubeconfig, "", "kubectl", "get", "readings", "-n", "home")
	story.Get = strings.TrimSpace(get.stderr)
	kinds := runProgram(t, kubeconfig, "", "kubectl", "api-resources")
	story.APIResources = fmt.Sprintf("it is left out, exit status %d", kinds.code)
	if strings.Contains(kinds.stdout, "story.example.com/v1") {
		story.APIResources = fmt.Sprintf("it is there, exit status %d", kinds.code)
	}

	kubectl(t, kubeconfig, "", "delete", "namespace", "doomed", "--wait=false")
	if story.Gone = gone(t, kubeconfig, heldUp); story.Gone != 0 {
		return story
	}
	story.Waited = heldUp.Seconds()
	story.Condition = kubectl(t, kubeconfig, "", "get", "namespace", "doomed", "-o",
		`jsonpath={range .status.conditions[?(@.status=="True")]}{.type}: {.message}{"\n"}{end}`)
	if err := server.SetFault(faulty.Healthy); err != nil {
		t.Fatal(err)
	}
	if story.AfterReturn = gone(t, kubeconfig, programs.Patience); story.AfterReturn == 0 {
		t.Errorf("the namespace exists %s after the return of the server, want it deleted", programs.Patience)
	}
	return story
}
