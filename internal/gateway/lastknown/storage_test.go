package lastknown

import (
	"bytes"
	"crypto/rand"
	"strings"
	"testing"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestDocumentsAreStoredOnChange(t *testing.T) {
	client := fake.NewClientset()
	configMaps := client.CoreV1().ConfigMaps("portico-gateway")
	discovery := Storage{Client: configMaps, Key: Discovery, Logger: zap.NewNop()}
	openAPI := Storage{Client: configMaps, Key: OpenAPI, Packed: true, Logger: zap.NewNop()}
	writes := func() int {
		n := 0
		for _, a := range client.Actions() {
			if verb := a.GetVerb(); verb != "get" && verb != "list" && verb != "watch" {
				n++
			}
		}
		return n
	}
	save := func(s Storage, name, value string) {
		t.Helper()
		if err := s.Save(t.Context(), name, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	load := func(s Storage) map[string][]byte {
		t.Helper()
		all, err := s.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	const name = "v1beta1.metrics.k8s.io"
	save(discovery, name, `{"resources":[]}`)
	save(openAPI, name, "header\npacked")
	if n := writes(); n != 2 {
		t.Errorf("%d writes for two documents, want 2", n)
	}
	save(discovery, name, `{"resources":[]}`) // of the other replica
	if n := writes(); n != 2 {
		t.Errorf("%d writes after an unchanged document, want 2", n)
	}
	if d, o := load(discovery), load(openAPI); string(d[name]) != `{"resources":[]}` || string(o[name]) != "header\npacked" {
		t.Errorf("loaded documents = %q and %q, want the saved ones", d, o)
	}
	list, err := configMaps.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%d ConfigMaps for one APIService, %v; want 1", len(list.Items), err)
	}

	noise := make([]byte, maxStored)
	_, _ = rand.Read(noise)
	save(openAPI, name, string(noise))
	if got := load(openAPI)[name]; string(got) != "header\npacked" {
		t.Errorf("document after the save of one that is too large has %d bytes, want the former one", len(got))
	}
	save(openAPI, name, string(noise[:maxStored-200<<10]))
	save(discovery, name, string(noise[:300<<10]))
	if len(load(openAPI)) != 0 || !bytes.Equal(load(discovery)[name], noise[:300<<10]) {
		t.Error("OpenAPI was kept or discovery was not saved, want room for discovery")
	}

	for _, s := range []Storage{openAPI, discovery, discovery} {
		if err := s.Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := configMaps.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("ConfigMaps after the deletion = %v, %v; want none", list.Items, err)
	}
}

func TestUnrelatedConfigMapsAreIgnored(t *testing.T) {
	client := fake.NewClientset()
	s := Storage{Client: client.CoreV1().ConfigMaps("ns"), Key: Discovery, Logger: zap.NewNop()}
	client.PrependReactor("list", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if got := a.(clienttesting.ListAction).GetListRestrictions().Labels.String(); got != documentsLabel {
			t.Errorf("label selector of the list = %q, want %q", got, documentsLabel)
		}
		return false, nil, nil
	})
	if _, err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	long := "v1." + strings.Repeat("a", 250)
	if name := Name(long); len(name) > 253 || name == Name(long+"b") {
		t.Errorf("Name of a long APIService = %s, want a unique one of at most 253 bytes", name)
	}
}
