package extension_test

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"portico.dev/pkg/extension"
)

type page struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

func pagesOf(names ...string) extension.Resource {
	return extension.Of(extension.Definition[page]{Group: "books.example.com", Version: "v1", Plural: "pages", Kind: "Page"},
		extension.ListFunc[page](func(context.Context, extension.Query) (all []page, err error) {
			for _, name := range names {
				all = append(all, page{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
			return all, nil
		}))
}

func TestManifestsContainTheRightsOfTheServer(t *testing.T) {
	manifests, err := extension.Manifests(extension.Options{Port: 4443, Needs: []extension.Rule{
		{Groups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list"}},
	}}, pagesOf())
	must(t, err)
	text, err := extension.YAML(manifests)
	must(t, err)
	for _, want := range []string{"name: v1.books.example.com", "name: books-example-com", "system:auth-delegator", "- nodes"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("manifests lack %q, want it in\n%s", want, text)
		}
	}
	if rights, err := extension.Rights(extension.Options{Port: 4443}, pagesOf()); err != nil || len(rights) >= len(manifests) {
		t.Errorf("len(Rights) = %d, error %v, want fewer than the %d manifests and no error", len(rights), err, len(manifests))
	}
}

func TestInvalidOptionsAreRejected(t *testing.T) {
	somewhere := &rest.Config{Host: "https://192.0.2.1"}
	for want, o := range map[string]extension.Options{
		"--kubeconfig":      {},
		"/nowhere":          {Kubeconfig: "/nowhere"},
		"--tls-private-key": {Client: somewhere, CertFile: "x"},
		"--cert-dir":        {Client: somewhere, CertFile: "x", KeyFile: "x", CertDir: "x"},
		"CAFile":            {Client: somewhere, NoListener: true, Register: true},
	} {
		if _, err := extension.NewServer(o, pagesOf()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want it to say %s", err, want)
		}
	}
	if _, err := extension.NewServer(extension.Options{Client: somewhere}); err == nil {
		t.Error("NewServer without resources: error = nil, want an error")
	}
}
