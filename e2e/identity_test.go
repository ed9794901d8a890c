package e2e

import (
	"context"
	"os"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"portico.dev/internal/pki"
)

// identity is the command identity: it writes a kubeconfig with a token of a service account, at the front door of
// KUBECONFIG.
func identity(ts *testscript.TestScript, args []string) {
	config, err := clientcmd.BuildConfigFromFlags("", ts.Getenv("KUBECONFIG"))
	ts.Check(err)
	client, err := kubernetes.NewForConfig(config)
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	token, err := client.CoreV1().ServiceAccounts(args[1]).CreateToken(ctx, args[0], &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	ts.Check(err)
	ts.Check(clientcmd.WriteToFile(asKubeconfig(&rest.Config{
		Host: config.Host, BearerToken: token.Status.Token, TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData},
	}), ts.MkAbs(args[2])))
}

// asKubeconfig returns config as a kubeconfig for a separate program.
func asKubeconfig(config *rest.Config) api.Config {
	c := api.NewConfig()
	c.Clusters["front"] = &api.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	c.AuthInfos["somebody"] = &api.AuthInfo{Token: config.BearerToken, ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	c.Contexts["front"] = &api.Context{Cluster: "front", AuthInfo: "somebody"}
	c.CurrentContext = "front"
	return *c
}

// certificate is the command certificate: it writes ca.crt, tls.crt and tls.key for a server of that name.
func certificate(ts *testscript.TestScript, args []string) {
	ca, err := pki.NewAuthority("a story's")
	ts.Check(err)
	cert, key, err := ca.Issue(pki.Leaf{CommonName: args[0], DNSNames: args, Server: true})
	ts.Check(err)
	for file, text := range map[string][]byte{"ca.crt": ca.PEM(), "tls.crt": cert, "tls.key": key} {
		ts.Check(os.WriteFile(ts.MkAbs(file), text, 0o600))
	}
}

// place is the command place: it puts a file into the directory declared, with variables in it replaced.
func place(ts *testscript.TestScript, args []string) {
	ts.Check(os.MkdirAll(ts.MkAbs("declared"), 0o755))
	text := os.Expand(ts.ReadFile(args[0]), ts.Getenv)
	ts.Check(os.WriteFile(ts.MkAbs("declared/"+args[0]), []byte(text), 0o644))
}
