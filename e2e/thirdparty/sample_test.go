package thirdparty

import (
	"context"
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"portico.dev/e2e/compat"
)

const (
	sampleReady     = "becomes ready: informers of ten resources, admission, API Priority and Fairness"
	sampleObjects   = "create, get, list in pages, update, JSON and merge patch, delete, deletecollection"
	sampleApply     = "server-side apply, with conflicts"
	sampleKubectl   = "kubectl apply, diff, label, get as Table, delete"
	sampleVersions  = "one object in both API versions"
	sampleAdmission = "the server's admission plugin and validation"
	sampleRights    = "delegated authorization: 403"
	sampleExplain   = "kubectl explain"
	sampleWatch     = "watch: events, bookmarks, resumption"
	sampleWatchList = "an informer with WatchList"
	sampleWebsocket = "watch over WebSocket; 403 without an Origin header"
	sampleNamespace = "deletion of a namespace with its objects"
)

var sampleAPIServer = &compat.Party{
	Name: "sample-apiserver", Module: "k8s.io/sample-apiserver", In: "e2e/thirdparty/sampleapiserver",
	Is: "Kubernetes' example of an extension server that stores objects. All flags have their defaults; it has its own etcd.",
	Steps: life(
		compat.Step{What: sampleReady}, compat.Step{What: sampleObjects}, compat.Step{What: sampleApply}, compat.Step{What: sampleKubectl},
		compat.Step{What: sampleVersions}, compat.Step{What: sampleAdmission}, compat.Step{What: sampleRights}, compat.Step{What: sampleExplain},
		compat.Step{What: sampleWatch}, compat.Step{What: sampleWatchList}, compat.Step{What: sampleWebsocket}, compat.Step{What: sampleNamespace},
	),
}

var (
	wardleAlpha = schema.GroupVersion{Group: "wardle.example.com", Version: "v1alpha1"}
	wardleBeta  = schema.GroupVersion{Group: "wardle.example.com", Version: "v1beta1"}
	flunders    = wardleAlpha.WithResource("flunders")
	fischers    = wardleAlpha.WithResource("fischers")
)

func newSample(t *testing.T, d *frontDoor) *third {
	watched := []string{"get", "list", "watch"}
	s := newThird(t, d, sampleAPIServer, "sample", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: watched},
		{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"*"}, Verbs: watched},
		{APIGroups: []string{"flowcontrol.apiserver.k8s.io"}, Resources: []string{"prioritylevelconfigurations", "flowschemas"}, Verbs: watched},
	}, wardleAlpha, wardleBeta)
	s.program("sample-apiserver", "--kubeconfig", s.kubeconfig(), "--etcd-servers", startEtcd(t))
	s.serves = func(ctx context.Context, config *rest.Config) error {
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return err
		}
		made, err := client.Resource(flunders).Namespace("default").Create(ctx, flunder("", nil), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		return client.Resource(flunders).Namespace("default").Delete(ctx, made.GetName(), metav1.DeleteOptions{})
	}
	s.keep = func(ctx context.Context) error {
		_, err := d.dynamic.Resource(flunders).Namespace(s.name).Create(ctx, flunder("own", nil), metav1.CreateOptions{})
		return err
	}
	s.kept = func(ctx context.Context) error {
		return gone(d.dynamic.Resource(flunders).Namespace(s.name).Get(ctx, "own", metav1.GetOptions{}))
	}
	return s
}

// flunder is a Flunder of that name, or of a generated one.
func flunder(name string, labels map[string]string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(wardleAlpha.WithKind("Flunder"))
	u.SetName(name)
	if name == "" {
		u.SetGenerateName("flunder-")
	}
	u.SetLabels(labels)
	return u
}

func exerciseSample(t *testing.T, s *third) {
	step := func(what string, run func(t *testing.T)) { book.Step(t, sampleAPIServer, what, run) }
	if !book.Step(t, sampleAPIServer, sampleReady, func(t *testing.T) { sampleIsReady(t, s) }) {
		return
	}
	step(sampleObjects, func(t *testing.T) { sampleCycle(t, s.frontDoor) })
	step(sampleApply, func(t *testing.T) { sampleApplies(t, s.frontDoor) })
	step(sampleKubectl, func(t *testing.T) { sampleByKubectl(t, s.frontDoor) })
	step(sampleVersions, func(t *testing.T) { sampleInVersions(t, s.frontDoor) })
	step(sampleAdmission, func(t *testing.T) { sampleAdmits(t, s.frontDoor) })
	step(sampleRights, func(t *testing.T) { sampleRefuses(t, s) })
	step(sampleExplain, func(t *testing.T) {
		expect(t, s.frontDoor, `(?s)KIND: +Flunder.*referenceType\s+<string>`, "explain", "flunders", "--recursive")
		expect(t, s.frontDoor, `disallowedFlunders holds a list|DisallowedFlunders holds a list`, "explain", "fischers.disallowedFlunders")
	})
	step(sampleWatch, func(t *testing.T) { sampleIsWatched(t, s.frontDoor) })
	step(sampleWatchList, func(t *testing.T) { sampleInforms(t, s.frontDoor) })
	step(sampleWebsocket, func(t *testing.T) { sampleOverWebsocket(t, s.frontDoor) })
	step(sampleNamespace, func(t *testing.T) { sampleNamespaceGoes(t, s.frontDoor) })
}

// sampleIsReady sends requests to the server directly: it is ready when all its informers have synchronized.
func sampleIsReady(t *testing.T, s *third) {
	s.awaitAvailable(t)
	eventually(t, "it is ready", func() error {
		code, body, err := s.direct(t.Context(), s.frontDoor.proxyCA, "/readyz?verbose")
		if err == nil && (code != 200 || !matches(`\[\+\]informer-sync ok`, body) || !matches(`priority-and-fairness-config-consumer ok`, body)) {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
}

func sampleInVersions(t *testing.T, d *frontDoor) {
	ctx := t.Context()
	old := d.dynamic.Resource(flunders).Namespace("default")
	u := flunder("in-versions", nil)
	u.Object["spec"] = map[string]any{"reference": "other", "referenceType": "Flunder"}
	if _, err := old.Create(ctx, u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	newer, err := d.dynamic.Resource(wardleBeta.WithResource("flunders")).Namespace("default").Get(ctx, "in-versions", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, _, _ := unstructured.NestedString(newer.Object, "spec", "flunderReference"); got != "other" || newer.GetAPIVersion() != wardleBeta.String() {
		t.Errorf("object in v1beta1 = %v, want the reference other", newer.Object)
	}
}

func sampleAdmits(t *testing.T, d *frontDoor) {
	ctx := t.Context()
	fischer := &unstructured.Unstructured{Object: map[string]any{"disallowedFlunders": []any{"banned"}}}
	fischer.SetGroupVersionKind(wardleAlpha.WithKind("Fischer"))
	fischer.SetName("censor")
	if _, err := d.dynamic.Resource(fischers).Create(ctx, fischer, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a banned name is refused", func() error { // the plugin receives it through an informer
		_, err := d.dynamic.Resource(flunders).Namespace("default").Create(ctx, flunder("banned", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("want 403, got %w", err)
		}
		return nil
	})
	u := flunder("wrong", nil)
	u.SetAPIVersion(wardleBeta.String())
	u.Object["spec"] = map[string]any{"flunderReference": "x", "fischerReference": "y"}
	if _, err := d.dynamic.Resource(wardleBeta.WithResource("flunders")).Namespace("default").Create(ctx, u, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("Create of an invalid flunder = %v, want the server's 422", err)
	}
}

// sampleRefuses sends requests to the server directly too: a user without rights never gets through the front door.
func sampleRefuses(t *testing.T, s *third) {
	nobody, err := s.frontDoor.newUser()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.serves(t.Context(), nobody); !apierrors.IsForbidden(err) {
		t.Errorf("GET by a user without rights = %v, want Forbidden", err)
	}
	code, body, err := s.directAs(t.Context(), s.frontDoor.proxyCA, "/apis/wardle.example.com/v1alpha1/flunders", "nobody", "nobodies")
	if err != nil || code != 403 || !matches(`flunders\.wardle\.example\.com is forbidden: User \\"nobody\\" cannot list`, body) {
		t.Errorf("direct GET by a user without rights = %d %s, %v; want 403", code, body, err)
	}
}
