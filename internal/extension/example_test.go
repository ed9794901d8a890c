package extension_test

import (
	"context"
	"log"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"portico.dev/internal/auth/delegated"
	"portico.dev/internal/extension"
	"portico.dev/internal/extension/registration"
	"portico.dev/internal/run"
)

// Mailbox is the kind. Nothing is generated for it.
type Mailbox struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Bytes             int64 `json:"bytes" description:"How much mail lies in it."`
}

// Spool is a directory with a file for each mailbox.
type Spool string

// List is the one method that there must be.
func (s Spool) List(context.Context, extension.Query) ([]Mailbox, error) {
	files, err := os.ReadDir(string(s))
	var all []Mailbox
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			all = append(all, Mailbox{ObjectMeta: metav1.ObjectMeta{Name: f.Name()}, Bytes: info.Size()})
		}
	}
	return all, err
}

func serve(ctx context.Context, kubeconfig, spool, caFile string, port int) {
	trust := or(delegated.New(delegated.Config{Client: or(clientcmd.BuildConfigFromFlags("", kubeconfig))}))
	own := or(registration.NewCertificate(registration.CertificateConfig{Names: []string{"mail.default.svc"}}))
	or(caFile, os.WriteFile(caFile, own.CABundle(), 0o644)) // for the APIService
	mailboxes := extension.Definition[Mailbox]{Group: "mail.example.com", Version: "v1", Plural: "mailboxes", Kind: "Mailbox"}
	host := or(extension.New(extension.Config{Resources: []extension.Resource{extension.Of(mailboxes, Spool(spool))},
		Authenticator: trust, Authorizer: trust, Certificate: own.KeyPair(), Port: port}))
	var parts run.Group
	parts.Add(run.Member{Name: "certificate", Run: own.Run})
	parts.Add(run.Member{Name: "trust", Run: trust.Run, Ready: trust.Ready()})
	parts.Add(run.Member{Name: "host", Run: host.Run, Ready: host.Ready()})
	or(ctx, parts.Run(ctx))
}

func or[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func main() { serve(context.Background(), os.Args[1], os.Args[2], os.Args[3], 8443) }
