package coreapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

var configMapsGVR = corev1.SchemeGroupVersion.WithResource("configmaps")

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "work"}, Data: data}
}

func mustCreate(t *testing.T, client kubernetes.Interface, cm *corev1.ConfigMap) *corev1.ConfigMap {
	t.Helper()
	created, err := client.CoreV1().ConfigMaps(cm.Namespace).Create(within(t), cm, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func TestObjects(t *testing.T) {
	t.Parallel()
	h := start(t)
	client := h.typed(t, admin)
	namespace(t, client, "work")
	maps := client.CoreV1().ConfigMaps("work")
	ctx := within(t)

	t.Run("an update with an old version conflicts", func(t *testing.T) {
		first := mustCreate(t, client, configMap("versions", map[string]string{"k": "1"}))
		second := first.DeepCopy()
		second.Data["k"] = "2"
		if _, err := maps.Update(ctx, second, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := maps.Update(ctx, first, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Fatalf("update with an old version: error = %v, want Conflict", err)
		}
	})
	t.Run("a second object of a name is refused", func(t *testing.T) {
		mustCreate(t, client, configMap("twice", nil))
		_, err := maps.Create(ctx, configMap("twice", nil), metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			t.Fatalf("second create with the same name: error = %v, want AlreadyExists", err)
		}
	})
	t.Run("a dry run stores nothing", func(t *testing.T) {
		if _, err := maps.Create(ctx, configMap("dry", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			t.Fatal(err)
		}
		if _, err := maps.Get(ctx, "dry", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Fatalf("GET after a create with dryRun: error = %v, want NotFound", err)
		}
	})
	t.Run("a generated name begins as asked", func(t *testing.T) {
		created := mustCreate(t, client, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-", Namespace: "work"}})
		if !strings.HasPrefix(created.Name, "made-") || len(created.Name) == len("made-") {
			t.Fatalf("generated name = %q, want the prefix made- and a suffix", created.Name)
		}
	})
	t.Run("a deletion with the UID of another is refused", func(t *testing.T) {
		mustCreate(t, client, configMap("precious", nil))
		other := types.UID("other")
		err := maps.Delete(ctx, "precious", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
		if !apierrors.IsConflict(err) {
			t.Fatalf("delete with the UID of another object: error = %v, want Conflict", err)
		}
	})
	t.Run("a finalizer keeps a deleted object until it is taken away", func(t *testing.T) {
		cm := configMap("finalized", nil)
		cm.Finalizers = []string{"example.com/wait"}
		mustCreate(t, client, cm)
		if err := maps.Delete(ctx, "finalized", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		kept, err := maps.Get(ctx, "finalized", metav1.GetOptions{})
		if err != nil || kept.DeletionTimestamp == nil {
			t.Fatalf("GET of the deleted object with a finalizer = %v, %v, want a deletionTimestamp", kept, err)
		}
		kept.Finalizers = nil
		if _, err := maps.Update(ctx, kept, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := maps.Get(ctx, "finalized", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Fatalf("GET after the removal of the finalizer: error = %v, want NotFound", err)
		}
	})
	t.Run("a collection is deleted by label", func(t *testing.T) {
		for _, name := range []string{"red-1", "red-2", "blue-1"} {
			cm := configMap(name, nil)
			cm.Labels = map[string]string{"color": name[:len(name)-2]}
			mustCreate(t, client, cm)
		}
		if err := maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "color=red"}); err != nil {
			t.Fatal(err)
		}
		left, err := maps.List(ctx, metav1.ListOptions{LabelSelector: "color"})
		if err != nil || len(left.Items) != 1 || left.Items[0].Name != "blue-1" {
			t.Fatalf("list after the deletecollection = %v, %v, want only blue-1", left, err)
		}
	})
	t.Run("an unknown field selector is a bad request", func(t *testing.T) {
		_, err := maps.List(ctx, metav1.ListOptions{FieldSelector: "data.k=1"})
		if !apierrors.IsBadRequest(err) {
			t.Fatalf("list by the field data.k: error = %v, want BadRequest", err)
		}
	})
	t.Run("secrets are selected by type", func(t *testing.T) {
		secrets := client.CoreV1().Secrets("work")
		for name, kind := range map[string]corev1.SecretType{"plain": corev1.SecretTypeOpaque, "token": "example.com/token"} {
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: kind, StringData: map[string]string{"k": "v"}}
			created, err := secrets.Create(ctx, s, metav1.CreateOptions{})
			if err != nil || string(created.Data["k"]) != "v" || len(created.StringData) > 0 {
				t.Fatalf("create of a secret with stringData = %v, %v, want the value in data and no stringData", created, err)
			}
		}
		found, err := secrets.List(ctx, metav1.ListOptions{FieldSelector: "type=example.com/token"})
		if err != nil || len(found.Items) != 1 || found.Items[0].Name != "token" {
			t.Fatalf("list of secrets by type = %v, %v, want only token", found, err)
		}
	})
	t.Run("pages make up the whole", func(t *testing.T) {
		all, err := maps.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for options := (metav1.ListOptions{Limit: 2}); ; {
			page, err := maps.List(ctx, options)
			if err != nil {
				t.Fatal(err)
			}
			if len(page.Items) > 2 {
				t.Fatalf("a page has %d objects, want at most 2", len(page.Items))
			}
			for _, item := range page.Items {
				names[item.Name] = true
			}
			if options.Continue = page.Continue; options.Continue == "" {
				break
			}
		}
		if len(names) != len(all.Items) {
			t.Fatalf("all pages have %d objects, want %d as in the list", len(names), len(all.Items))
		}
	})
}

func TestPatches(t *testing.T) {
	t.Parallel()
	h := start(t)
	client := h.typed(t, admin)
	namespace(t, client, "work")
	ctx := within(t)
	for _, patch := range []struct {
		name, body string
		kind       types.PatchType
	}{
		{"json patch", `[{"op":"replace","path":"/data/k","value":"new"}]`, types.JSONPatchType},
		{"merge patch", `{"data":{"k":"new"}}`, types.MergePatchType},
		{"strategic merge patch", `{"data":{"k":"new"}}`, types.StrategicMergePatchType},
	} {
		t.Run(patch.name, func(t *testing.T) {
			name := strings.ReplaceAll(patch.name, " ", "-")
			mustCreate(t, client, configMap(name, map[string]string{"k": "old", "other": "kept"}))
			got, err := client.CoreV1().ConfigMaps("work").Patch(ctx, name, patch.kind, []byte(patch.body), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Data["k"] != "new" || got.Data["other"] != "kept" {
				t.Fatalf("data after the patch = %v, want k=new and other=kept", got.Data)
			}
		})
	}
	t.Run("strategic merge patch finds a port by its key", func(t *testing.T) {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: corev1.ServiceSpec{
			Ports: []corev1.ServicePort{{Name: "a", Port: 80}, {Name: "b", Port: 81}},
		}}
		if _, err := client.CoreV1().Services("work").Create(ctx, service, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		got, err := client.CoreV1().Services("work").Patch(ctx, "s", types.StrategicMergePatchType,
			[]byte(`{"spec":{"ports":[{"port":81,"name":"renamed"}]}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Spec.Ports) != 2 || got.Spec.Ports[0].Protocol != corev1.ProtocolTCP {
			t.Fatalf("ports after the patch = %v, want 2, the first with TCP", got.Spec.Ports)
		}
	})
}

func TestServerSideApply(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	h := start(t)
	client := h.typed(t, admin)
	namespace(t, client, "work")
	dyn, err := dynamic.NewForConfig(h.ClientConfig(admin))
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t)
	apply := func(manager, value string, force bool) (*unstructured.Unstructured, error) {
		return dyn.Resource(configMapsGVR).Namespace("work").Apply(ctx, "shared", &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "shared"}, "data": map[string]any{"k": value},
		}}, metav1.ApplyOptions{FieldManager: manager, Force: force})
	}
	if _, err := apply("one", "1", false); err != nil {
		t.Fatal(err)
	}
	if _, err := apply("two", "2", false); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "one"`) {
		t.Fatalf("apply of a field of another manager: error = %v, want Conflict with the manager one", err)
	}
	got, err := apply("two", "2", true)
	if err != nil {
		t.Fatal(err)
	}
	if value, _, _ := unstructured.NestedString(got.Object, "data", "k"); value != "2" {
		t.Fatalf("data after the forced apply = %v, want k=2", got.Object["data"])
	}
	for _, entry := range got.GetManagedFields() {
		if entry.Manager == "one" && strings.Contains(entry.FieldsV1.GetRawString(), `"f:k"`) {
			t.Fatal("the first manager owns data.k after a forced apply by the second, want it removed")
		}
	}

	t.Run("lists merge by their keys", func(t *testing.T) {
		services := dyn.Resource(corev1.SchemeGroupVersion.WithResource("services")).Namespace("work")
		for manager, port := range map[string]int64{"one": 80, "two": 81} {
			_, err := services.Apply(ctx, "web", &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "web"},
				"spec": map[string]any{"ports": []any{map[string]any{"name": "p" + manager, "port": port}}},
			}}, metav1.ApplyOptions{FieldManager: manager})
			if err != nil {
				t.Fatal(err)
			}
		}
		web, err := client.CoreV1().Services("work").Get(ctx, "web", metav1.GetOptions{})
		if err != nil || len(web.Spec.Ports) != 2 {
			t.Fatalf("ports after both applies = %v, %v, want 2", web.Spec.Ports, err)
		}
	})

	// Apply replaces the reference of a field as a whole and defaults it again. The object does not change.
	t.Run("what changes nothing writes nothing", func(t *testing.T) {
		var version string
		for round := range 3 {
			pod, err := client.CoreV1().Pods("work").Patch(ctx, "told", types.ApplyPatchType, []byte(`{
				"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "told"},
				"spec": {"containers": [{"name": "c", "image": "i", "env": [
					{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}]}}`),
				metav1.PatchOptions{FieldManager: "one"})
			if err != nil {
				t.Fatal(err)
			}
			if round > 0 && pod.ResourceVersion != version {
				t.Errorf("round %d: version %s became %s, want no change", round, version, pod.ResourceVersion)
			}
			version = pod.ResourceVersion
			wait := time.NewTimer(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // the times of managers have a resolution of one second
			<-wait.C
		}
	})
}

func TestClientsGetTheirRequestedEncoding(t *testing.T) {
	t.Parallel()
	h := start(t)
	client := h.typed(t, admin)
	namespace(t, client, "work")
	mustCreate(t, client, configMap("a", map[string]string{"k": "v"}))
	ctx := within(t)

	t.Run("typed clients protobuf", func(t *testing.T) {
		var media []string
		config := h.ClientConfig(admin)
		config.Wrap(func(inner http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				answer, err := inner.RoundTrip(r)
				if err == nil {
					media = append(media, r.Header.Get("Content-Type"), answer.Header.Get("Content-Type"))
				}
				return answer, err
			})
		})
		_, err := clientFor(t, config).CoreV1().ConfigMaps("work").Create(ctx, configMap("pb", nil), metav1.CreateOptions{})
		pb := "application/vnd.kubernetes.protobuf"
		if err != nil || !slices.Equal(media, []string{pb, pb}) {
			t.Fatalf("media types of a create = %q, %v, want %q twice", media, err, pb)
		}
		if err := client.CoreV1().ConfigMaps("work").Delete(ctx, "pb", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("dynamic clients JSON", func(t *testing.T) {
		dyn, err := dynamic.NewForConfig(h.ClientConfig(admin))
		if err != nil {
			t.Fatal(err)
		}
		got, err := dyn.Resource(configMapsGVR).Namespace("work").Get(ctx, "a", metav1.GetOptions{})
		if err != nil || got.GetKind() != "ConfigMap" || got.GetAPIVersion() != "v1" {
			t.Fatalf("GET with the dynamic client = %v, %v, want a v1 ConfigMap", got, err)
		}
	})
	t.Run("metadata clients only metadata", func(t *testing.T) {
		meta, err := metadata.NewForConfig(h.ClientConfig(admin))
		if err != nil {
			t.Fatal(err)
		}
		list, err := meta.Resource(configMapsGVR).Namespace("work").List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 || list.Items[0].Name != "a" {
			t.Fatalf("list with the metadata client = %v, %v, want only a", list, err)
		}
	})
	t.Run("YAML is read and written", func(t *testing.T) {
		raw := rawClient(t, h)
		body := []byte("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: from-yaml\ndata:\n  k: v\n")
		got, err := raw.Post().AbsPath("/api/v1/namespaces/work/configmaps").SetHeader("Content-Type", "application/yaml").
			SetHeader("Accept", "application/yaml").Body(body).DoRaw(ctx)
		if err != nil || !strings.Contains(string(got), "\nkind: ConfigMap\n") {
			t.Fatalf("POST of YAML = %s, %v, want YAML with the kind ConfigMap", got, err)
		}
	})
	t.Run("etcd holds protobuf where kube-apiserver looks for it", func(t *testing.T) {
		got, err := h.store.Client().KV.Get(ctx, "/registry/configmaps/work/a")
		if err != nil || len(got.Kvs) != 1 || !strings.HasPrefix(string(got.Kvs[0].Value), "k8s\x00") {
			t.Fatalf("/registry/configmaps/work/a in etcd = %v, %v, want one protobuf value", got, err)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// rawClient sends a request without changes and does not decode the response.
func rawClient(t *testing.T, h *testServer) rest.Interface {
	t.Helper()
	return rawClientOf(t, h.ClientConfig(admin))
}

func rawClientOf(t *testing.T, config *rest.Config) rest.Interface {
	t.Helper()
	config.ContentType = "application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.CoreV1().RESTClient()
}

func TestTables(t *testing.T) {
	t.Parallel()
	h := start(t)
	client := h.typed(t, admin)
	namespace(t, client, "work")
	mustCreate(t, client, configMap("a", map[string]string{"k": "v", "l": "w"}))
	for path, columns := range map[string][]string{
		"/api/v1/namespaces":                          {"Name", "Status", "Age"},
		"/api/v1/namespaces/work/configmaps":          {"Name", "Data", "Age"},
		"/apis/apiregistration.k8s.io/v1/apiservices": {"Name", "Service", "Available", "Age"},
		"/apis/events.k8s.io/v1/events":               {"Last Seen", "Type", "Reason", "Object"},
	} {
		t.Run(path, func(t *testing.T) {
			body, err := rawClient(t, h).Get().AbsPath(path).
				SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json").DoRaw(within(t))
			if err != nil {
				t.Fatal(err)
			}
			var table metav1.Table
			if err := json.Unmarshal(body, &table); err != nil || table.Kind != "Table" {
				t.Fatalf("response = %s, %v, want a Table", body, err)
			}
			var names []string
			for _, c := range table.ColumnDefinitions {
				if c.Priority == 0 {
					names = append(names, c.Name)
				}
			}
			if got, want := strings.Join(names, " "), strings.Join(columns, " "); !strings.HasPrefix(got, want) {
				t.Fatalf("columns = %q, want the prefix %q", got, want)
			}
		})
	}
}

func TestFieldValidation(t *testing.T) {
	t.Parallel()
	h := start(t)
	namespace(t, h.typed(t, admin), "work")
	for how, refused := range map[string]bool{"Strict": true, "Warn": false, "Ignore": false} {
		t.Run(how, func(t *testing.T) {
			body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + strings.ToLower(how) + `"},"dato":{}}`
			result := rawClient(t, h).Post().AbsPath("/api/v1/namespaces/work/configmaps").Param("fieldValidation", how).
				SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(within(t))
			if err := result.Error(); refused != apierrors.IsBadRequest(err) || !refused && err != nil {
				t.Fatalf("create of an object with an unknown field: error = %v, want BadRequest %v", err, refused)
			}
			if warned := len(result.Warnings()) > 0; warned != (how == "Warn") {
				t.Fatalf("warnings = %v, want some only with fieldValidation Warn", result.Warnings())
			}
		})
	}
}

func TestMissingResourcesReturn404(t *testing.T) {
	t.Parallel()
	h := start(t)
	for path, code := range map[string]int{
		"/api/v1/unknown":                       404,
		"/apis/rbac.authorization.k8s.io/v1/un": 404,
		"/apis/unknown.example.com/v1":          404,
		"/api/v1/namespaces/nowhere":            404,
		"/apis":                                 404,
	} {
		err := rawClient(t, h).Get().AbsPath(path).Do(within(t)).Error()
		var status apierrors.APIStatus
		if !errors.As(err, &status) || int(status.Status().Code) != code {
			t.Errorf("GET %s: error = %v, want the status code %d", path, err, code)
		}
		w := httptest.NewRecorder()
		asUser(admin, h.Handler(), h.awaitReady).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != code || !strings.Contains(w.Body.String(), `"kind":"Status"`) {
			t.Errorf("GET %s over HTTP = %d %s, want %d and a Status", path, w.Code, w.Body, code)
		}
	}
}

func TestGenerationIncrementsOnSpecChangeOnly(t *testing.T) {
	t.Parallel()
	h := start(t)
	client := h.typed(t, admin)
	namespace(t, client, "work")
	ctx := within(t)
	pods := client.CoreV1().Pods("work")
	pod, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "one"}},
	}}, metav1.CreateOptions{})
	if err != nil || pod.Generation != 1 || pod.Status.Phase != corev1.PodPending {
		t.Fatalf("create of a pod = %+v, %v, want generation 1 and the phase Pending", pod, err)
	}
	pod.Labels = map[string]string{"a": "b"}
	if pod, err = pods.Update(ctx, pod, metav1.UpdateOptions{}); err != nil || pod.Generation != 1 {
		t.Fatalf("after a label: generation %d, %v, want 1", pod.Generation, err)
	}
	pod.Spec.Containers[0].Image = "two"
	pod.Status.Phase = corev1.PodRunning // ignored by this resource
	if pod, err = pods.Update(ctx, pod, metav1.UpdateOptions{}); err != nil || pod.Generation != 2 || pod.Status.Phase != corev1.PodPending {
		t.Fatalf("after a new image: generation %d, phase %s, %v, want 2 and Pending", pod.Generation, pod.Status.Phase, err)
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Spec.Containers[0].Image = "three" // ignored by this subresource
	if pod, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil || pod.Generation != 2 ||
		pod.Status.Phase != corev1.PodRunning || pod.Spec.Containers[0].Image != "two" {
		t.Fatalf("after a status update: %+v, %v, want generation 2, the phase Running and the image two", pod, err)
	}
}

func TestClusterRoleIsCreatedByPut(t *testing.T) {
	h := start(t)
	client := h.typed(t, admin)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}}}
	if _, err := client.RbacV1().ClusterRoles().Update(within(t), role, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("PUT of a missing ClusterRole failed: %v, want no error", err)
	}
}
