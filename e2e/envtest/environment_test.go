// Package envtest runs controller-runtime's envtest, unchanged, on the programs of cmd/envtest.
package envtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// patience bounds every wait.
const patience = time.Minute

// assets is the directory of the programs, which every environment finds in KUBEBUILDER_ASSETS.
var assets string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
		dir, err := os.MkdirTemp("", "envtest-assets-")
		if err == nil {
			defer os.RemoveAll(dir)
			assets, err = filepath.EvalSymlinks(dir) // as /proc has it
		}
		if err == nil {
			err = build(assets)
		}
		if err == nil {
			err = os.Setenv("KUBEBUILDER_ASSETS", assets)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// build builds both programs, in the module that they are in.
func build(dir string) error {
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", dir+string(filepath.Separator), "./cmd/envtest/...")
	cmd.Dir, cmd.Env = filepath.Join("..", ".."), append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}

// start starts an environment, and stops it when the test ends unless the test has.
func start(t *testing.T, env *envtest.Environment) *rest.Config {
	t.Helper()
	env.UseExistingCluster = new(false)
	patient(env)
	config, err := env.Start()
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("Stop of the environment failed: %v, want no error", err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// patient gives an environment more time than its own 10 and 20 seconds, which a busy machine may need.
func patient(env *envtest.Environment) {
	env.ControlPlaneStartTimeout, env.ControlPlaneStopTimeout = patience, patience
	env.CRDInstallOptions.MaxTime, env.WebhookInstallOptions.MaxTime = patience, patience
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// running are the processes of the programs, by their command lines.
func running(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		if strings.HasPrefix(string(line), assets) {
			all = append(all, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return all
}

var gadgetKind = schema.GroupVersionKind{Group: "envtest.portico.dev", Version: "v1", Kind: "Gadget"}

// newGadget is of the kind in testdata/crds.
func newGadget(name, color string) *unstructured.Unstructured {
	g := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"color": color}}}
	g.SetGroupVersionKind(gadgetKind)
	g.SetNamespace("default")
	g.SetName(name)
	return g
}

// seen is the status of a gadget.
func seen(g *unstructured.Unstructured) string {
	text, _, _ := unstructured.NestedString(g.Object, "status", "seen")
	return text
}
