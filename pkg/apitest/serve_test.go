package apitest_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"portico.dev/internal/pki"
	"portico.dev/pkg/apitest"
	"portico.dev/pkg/extension"
)

type mailbox struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

func mailboxResource(name string) extension.Resource {
	return extension.Of(extension.Definition[mailbox]{
		Group: "mail.example.com", Version: "v1", Plural: "mailboxes", Kind: "Mailbox",
	}, extension.ListFunc[mailbox](func(context.Context, extension.Query) ([]mailbox, error) {
		return []mailbox{{ObjectMeta: metav1.ObjectMeta{Name: name}}}, nil
	}))
}

func TestServedResources(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	resource := mailboxResource("alice")
	env.Serve(resource)
	for name, want := range map[string]bool{"alice": true, "mallory": false} {
		if want {
			env.Grant(name, "", rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{"mail.example.com"}, Resources: []string{"mailboxes"}})
		}
		client, err := dynamic.NewForConfig(env.User(name))
		must(t, err)
		found, err := client.Resource(resource.GroupVersionResource()).List(t.Context(), metav1.ListOptions{})
		if (err == nil) != want || want && len(found.Items) != 1 || !want && !apierrors.IsForbidden(err) {
			t.Errorf("List of mailboxes as %s = %v, %v, want success: %t", name, found, err, want)
		}
	}
}

// The program's HTTPS server serves the handler. The Server only maintains trust and registration.
func TestHandlerWorksInHTTPSServerOfTheProgram(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	authority, err := pki.NewAuthority("own")
	must(t, err)
	certPEM, keyPEM, err := authority.Issue(pki.Leaf{CommonName: "own", DNSNames: []string{"own.kube-system.svc"}, Server: true})
	must(t, err)
	certificate, err := tls.X509KeyPair(certPEM, keyPEM)
	must(t, err)
	caFile := filepath.Join(t.TempDir(), "ca.crt")
	must(t, os.WriteFile(caFile, authority.PEM(), 0o600))
	http := httptest.NewUnstartedServer(nil)
	http.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequestClientCert}
	http.EnableHTTP2 = true
	mailboxes := mailboxResource("alice")
	server, err := extension.NewServer(extension.Options{
		Client: env.Config, NoListener: true, Register: true, ServiceName: "own", CAFile: caFile,
		Port: http.Listener.Addr().(*net.TCPAddr).Port,
	}, mailboxes)
	must(t, err)
	http.Config.Handler = server.Handler()
	http.StartTLS()
	t.Cleanup(http.Close)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-done)
	})
	client, err := dynamic.NewForConfig(env.Config)
	must(t, err)
	eventually(t, "mailboxes are served through the front door", func(ctx context.Context) (bool, error) {
		list, err := client.Resource(mailboxes.GroupVersionResource()).List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 1, nil
	})
}
