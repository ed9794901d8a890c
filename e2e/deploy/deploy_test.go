package deploy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// The programs have every flag that the files in deploy use.
func TestDeployedFlagsExist(t *testing.T) {
	t.Parallel()
	flag := regexp.MustCompile(`--[a-z][a-z0-9-]+`)
	help := map[string]string{}
	for _, program := range []string{"aggregator", "extserver"} {
		out, err := exec.Command(filepath.Join(binaries, program), "serve", "--help").CombinedOutput()
		if err != nil {
			t.Fatalf("serve --help failed: %v: %s, want no error", err, out)
		}
		help[program] = string(out)
	}
	out, err := exec.Command(filepath.Join(binaries, "aggregator"), "gateway", "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("gateway --help failed: %v: %s, want no error", err, out)
	}
	help["aggregator gateway"] = string(out)
	tests := map[string]struct {
		program string
		line    *regexp.Regexp // lines that hold flags of the program
	}{
		"../../deploy/aggregator/base/front.yaml":              {"aggregator", regexp.MustCompile(`(?m)^ +- --.*$`)},
		"../../deploy/aggregator/overlays/replicas/flags.yaml": {"aggregator", regexp.MustCompile(`(?m)value: --.*$`)},
		"../../deploy/front/clusters/flags.yaml":               {"aggregator", regexp.MustCompile(`(?m)value: --.*$`)},
		"../../deploy/gateway/deployment.yaml":                 {"aggregator gateway", regexp.MustCompile(`(?m)^ +- --.*$`)},
		"../../deploy/systemd/aggregator.service":              {"aggregator", regexp.MustCompile(`(?m)^(ExecStart=|#   Environment=).*$`)},
		"../../deploy/systemd/extserver.service":               {"extserver", regexp.MustCompile(`(?m)^(ExecStart=|#   Environment=).*$`)},
		"../../deploy/extserver/base/deployment.yaml":          {"extserver", regexp.MustCompile(`(?m)^ +- --.*$`)},
		"../../deploy/extserver/base/kustomization.yaml":       {"extserver", regexp.MustCompile(`(?m)^# +extserver manifests .*$`)},
	}
	for file, tt := range tests {
		t.Run(strings.TrimPrefix(file, "../../deploy/"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			flags := flag.FindAllString(strings.Join(tt.line.FindAllString(string(data), -1), "\n"), -1)
			if len(flags) == 0 {
				t.Fatal("no flags in the file, want at least one: the test reads the wrong lines")
			}
			for _, f := range flags {
				if !regexp.MustCompile(regexp.QuoteMeta(f) + `\s`).MatchString(help[tt.program]) {
					t.Errorf("%s has no flag %s, want one", tt.program, f)
				}
			}
		})
	}
}

// The images start the programs with CMD lists.
func TestImagesStartWithFlagsThatExist(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../deploy/container/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	entry := regexp.MustCompile(`(?m)^ENTRYPOINT \["/(\w+)"\]\nCMD \["serve"(.*)\]$`)
	images := entry.FindAllStringSubmatch(string(data), -1)
	if len(images) != 2 {
		t.Fatalf("found %d images, want aggregator and extserver", len(images))
	}
	for _, image := range images {
		help, err := exec.Command(filepath.Join(binaries, image[1]), "serve", "--help").CombinedOutput()
		if err != nil {
			t.Fatalf("serve --help failed: %v: %s, want no error", err, help)
		}
		for _, f := range regexp.MustCompile(`--[a-z-]+`).FindAllString(image[2], -1) {
			if !strings.Contains(string(help), f+" ") {
				t.Errorf("%s has no flag %s, want one", image[1], f)
			}
		}
	}
}

// The kustomize base equals the output of `extserver manifests`.
func TestBaseMatchesManifests(t *testing.T) {
	t.Parallel()
	printed := objects(t, "extserver", "manifests", "--service-selector=app.kubernetes.io/name=portico-extserver")
	base := objects(t, "kubectl", "kustomize", "../../deploy/extserver/base")
	for id, want := range printed {
		if got, ok := base[id]; !ok {
			t.Errorf("the base has no %s, want one", id)
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\nbase:    %v\nwant the printed %v", id, got, want)
		}
	}
	own := map[string]bool{
		"ConfigMap/kube-system/portico-extserver-kubeconfig": true,
		"Deployment/kube-system/portico-extserver":           true,
	}
	for id := range base {
		if _, ok := printed[id]; !ok && !own[id] {
			t.Errorf("the base has %s, want only objects of `extserver manifests`", id)
		}
	}
}

// objects is the YAML documents that a command prints, by kind, namespace and name.
func objects(t *testing.T, program string, args ...string) map[string]map[string]any {
	t.Helper()
	cmd := exec.Command(filepath.Join(binaries, program), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("command %s %v = %v: %s; want no error", program, args, err, stderr.String())
	}
	found := map[string]map[string]any{}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(out), 4096)
	for {
		var o unstructured.Unstructured
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found[o.GetKind()+"/"+o.GetNamespace()+"/"+o.GetName()] = o.Object
	}
}
