package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	manifests "portico.dev/deploy/front"
	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/tools/toolclient"
)

// enrollOptions are the options of enroll.
type enrollOptions struct {
	ClientFlags
	endpoints, hosts []string
	serverName       string
	namespace        string
	dryRun           bool
}

func enrollCommand() *cobra.Command {
	o := enrollOptions{}
	cmd := &cobra.Command{
		Use:   "enroll NAME",
		Short: "Create an account in an existing cluster, and print its Cluster",
		Long: `Create the account with which a front door serves an existing cluster, and print the objects that make it do so: a Cluster, and
a Secret with the token of the account. Apply them at the front door.

The kubeconfig is that of an administrator of the existing cluster. The account may impersonate users, and review their
tokens and their rights, and nothing else (deploy/front/cluster-rbac.yaml).`,
		Example: `  aggregator enroll prod --kubeconfig prod.kubeconfig | kubectl apply -f -
  aggregator enroll prod --kubeconfig prod.kubeconfig --endpoints 10.0.0.1:6443,10.0.0.2:6443,10.0.0.3:6443`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0])
		},
	}
	fs := cmd.Flags()
	o.ClientFlags.Add(fs)
	fs.StringSliceVar(&o.endpoints, "endpoints", nil, "addresses of all API servers, HOST:PORT; default the server of the kubeconfig")
	fs.StringVar(&o.serverName, "server-name", "", "name in the certificates of the API servers; default the host of the kubeconfig's server")
	fs.StringSliceVar(&o.hosts, "hosts", nil, "host names of the front door that lead to the cluster")
	fs.StringVar(&o.namespace, "namespace", metav1.NamespaceDefault, "namespace of the Secret at the front door")
	fs.BoolVar(&o.dryRun, "dry-run", false, "only print what would be applied in the existing cluster")
	return cmd
}

func (o *enrollOptions) run(ctx context.Context, out, notes io.Writer, name string) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("%q cannot be the name of a Cluster: %s", name, problems[0])
	}
	if o.dryRun {
		_, err := io.WriteString(out, manifests.ClusterRBAC)
		return err
	}
	config, err := o.Config()
	if err != nil {
		return err
	}
	config.QPS = -1
	if err := rest.LoadTLSFiles(config); err != nil {
		return err
	}
	made, err := toolclient.New(config)
	if err != nil {
		return err
	}
	client := made.REST()
	if err := applyManifests(ctx, client, manifests.ClusterRBAC); err != nil {
		return err
	}
	token, err := accountToken(ctx, client, notes)
	if err != nil {
		return err
	}
	cluster, err := o.cluster(name, config)
	if err != nil {
		return err
	}
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: cluster.Spec.Credentials.Secret.Name},
		StringData: map[string]string{corev1.ServiceAccountTokenKey: string(token)},
	}
	return printManifests(out, secret, cluster)
}

// cluster returns the Cluster of the API server of a kubeconfig.
func (o *enrollOptions) cluster(name string, config *rest.Config) (*v1alpha1.Cluster, error) {
	at, err := url.Parse(config.Host)
	if err != nil || at.Hostname() == "" {
		return nil, fmt.Errorf("the server of the kubeconfig, %q, is not a URL", config.Host)
	}
	if at.Path != "" && at.Path != "/" {
		return nil, fmt.Errorf("the server of the kubeconfig, %s, has a path; name the addresses of the API servers with --endpoints and a kubeconfig for one of them", config.Host)
	}
	endpoints := o.endpoints
	if len(endpoints) == 0 {
		endpoints = []string{net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), "443"))}
	}
	return &v1alpha1.Cluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Cluster"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ClusterSpec{
			Hosts: o.hosts,
			Server: v1alpha1.ClusterServer{
				Endpoints: endpoints, CABundle: config.CAData, InsecureSkipTLSVerify: config.Insecure,
				ServerName: cmp.Or(o.serverName, config.ServerName, at.Hostname()),
			},
			Credentials: v1alpha1.ClusterCredentials{Secret: &v1alpha1.SecretReference{Namespace: o.namespace, Name: "cluster-" + name}},
		},
	}, nil
}

// applyManifests applies the objects of a YAML file in an existing cluster.
func applyManifests(ctx context.Context, client rest.Interface, file string) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(file)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var object metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(document, &object); err != nil {
			return err
		}
		if object.Kind == "" {
			continue // only comments
		}
		resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		path := []string{"api", resource.Version}
		if resource.Group != "" {
			path = []string{"apis", resource.Group, resource.Version}
		}
		err = client.Patch(types.ApplyYAMLPatchType).AbsPath(path...).NamespaceIfScoped(object.Namespace, object.Namespace != "").
			Resource(resource.Resource).Name(object.Name).Param("fieldManager", "portico-enroll").Param("force", "true").Body(document).Do(ctx).Error()
		if err != nil {
			return fmt.Errorf("apply %s %s in the existing cluster: %w", object.Kind, object.Name, err)
		}
	}
}

const (
	// tokenPatience limits the wait for the token in the Secret, which kube-controller-manager writes.
	tokenPatience = 10 * time.Second
	// tokenLifetime is the lifetime of a requested token, in seconds.
	tokenLifetime = 365 * 24 * 60 * 60
)

// accountToken returns the token of the account. If nothing writes one into its Secret, it requests one that expires, and says so.
func accountToken(ctx context.Context, client rest.Interface, notes io.Writer) (token []byte, err error) {
	err = wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, tokenPatience, true, func(ctx context.Context) (bool, error) {
		var secret corev1.Secret
		err := client.Get().Namespace(manifests.Namespace).Resource("secrets").Name(manifests.Account).Do(ctx).Into(&secret)
		token = secret.Data[corev1.ServiceAccountTokenKey]
		return len(token) > 0, err
	})
	if err == nil || !wait.Interrupted(err) || ctx.Err() != nil {
		return token, err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenLifetime))}}
	var made authenticationv1.TokenRequest
	err = client.Post().Namespace(manifests.Namespace).Resource("serviceaccounts").Name(manifests.Account).SubResource("token").Body(request).Do(ctx).Into(&made)
	if err != nil {
		return nil, fmt.Errorf("request a token of the account: %w", err)
	}
	fmt.Fprintf(notes, "The token expires at %s, because nothing writes tokens into Secrets of the cluster: enroll it again before.\n", made.Status.ExpirationTimestamp.UTC().Format(time.RFC3339))
	return []byte(made.Status.Token), nil
}

func printManifests(out io.Writer, secret *corev1.Secret, cluster *v1alpha1.Cluster) error {
	secretText, err := yaml.Marshal(secret)
	if err != nil {
		return err
	}
	clusterText, err := yaml.Marshal(cluster)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s---\n%s", secretText, clusterText)
	return err
}
