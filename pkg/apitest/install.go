package apitest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"portico.dev/internal/pki"
)

// WebhookInstallOptions are the webhooks that Start installs, with the API of envtest.WebhookInstallOptions. If a webhook
// names a Service, Start replaces it by a URL with LocalServingHost and LocalServingPort. The test runs a webhook server
// there, with the certificate in LocalServingCertDir.
type WebhookInstallOptions struct {
	// MutatingWebhooks and ValidatingWebhooks are installed, together with the ones in Paths. These are YAML and JSON files,
	// or directories of such files. Objects of other kinds in the files are ignored.
	MutatingWebhooks   []*admissionregistrationv1.MutatingWebhookConfiguration
	ValidatingWebhooks []*admissionregistrationv1.ValidatingWebhookConfiguration
	Paths              []string
	// IgnoreErrorIfPathMissing ignores paths that do not exist. Default: Start fails.
	IgnoreErrorIfPathMissing bool

	// LocalServingHost and LocalServingPort are the address of the test's webhook server. Default: 127.0.0.1 and a free port.
	LocalServingHost string
	LocalServingPort int
	// LocalServingCertDir is the directory in which Start writes the webhook server's certificate (tls.crt and tls.key).
	// Default: a temporary directory, which Stop removes.
	LocalServingCertDir string
	// LocalServingCAData is the CA certificate of the webhook server, in PEM. Start sets it.
	LocalServingCAData []byte

	madeDir bool
}

// prepare reads the files and sets the port and the certificate, which conversion webhooks of CRDs use too.
func (o *WebhookInstallOptions) prepare() error {
	objects, err := readObjects(o.Paths, !o.IgnoreErrorIfPathMissing)
	if err != nil {
		return fmt.Errorf("webhooks: %w", err)
	}
	for _, object := range objects {
		switch object.GetKind() {
		case "MutatingWebhookConfiguration":
			err = appendAs(&o.MutatingWebhooks, object)
		case "ValidatingWebhookConfiguration":
			err = appendAs(&o.ValidatingWebhooks, object)
		}
		if err != nil {
			return fmt.Errorf("webhooks: %w", err)
		}
	}
	o.LocalServingHost = cmp.Or(o.LocalServingHost, "127.0.0.1")
	if o.LocalServingPort == 0 {
		listener, err := net.Listen("tcp", net.JoinHostPort(o.LocalServingHost, "0"))
		if err != nil {
			return fmt.Errorf("free port for webhooks: %w", err)
		}
		o.LocalServingPort = listener.Addr().(*net.TCPAddr).Port
		listener.Close()
	}
	if len(o.LocalServingCAData) > 0 {
		return nil
	}
	return o.makeCertificate()
}

func (o *WebhookInstallOptions) makeCertificate() (err error) {
	if o.LocalServingCertDir == "" {
		if o.LocalServingCertDir, err = os.MkdirTemp("", "portico-webhooks-"); err != nil {
			return fmt.Errorf("directory for the certificate of webhooks: %w", err)
		}
		o.madeDir = true
	}
	authority, err := pki.NewAuthority("webhook-ca")
	if err != nil {
		return err
	}
	leaf := pki.Leaf{CommonName: "webhook", DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, Server: true}
	if ip := net.ParseIP(o.LocalServingHost); ip != nil {
		leaf.IPs = append(leaf.IPs, ip)
	} else {
		leaf.DNSNames = append(leaf.DNSNames, o.LocalServingHost)
	}
	certPEM, keyPEM, err := authority.Issue(leaf)
	if err != nil {
		return err
	}
	o.LocalServingCAData = authority.PEM()
	if err := os.MkdirAll(o.LocalServingCertDir, 0o700); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(o.LocalServingCertDir, "tls.crt"), certPEM, 0o600),
		os.WriteFile(filepath.Join(o.LocalServingCertDir, "tls.key"), keyPEM, 0o600))
}

// url returns the local URL for the path of a Service.
func (o *WebhookInstallOptions) url(path *string) string {
	u := "https://" + net.JoinHostPort(o.LocalServingHost, strconv.Itoa(o.LocalServingPort))
	if path == nil {
		return u
	}
	return u + "/" + strings.TrimPrefix(*path, "/")
}

func (o *WebhookInstallOptions) redirect(c *admissionregistrationv1.WebhookClientConfig) {
	if c.Service == nil {
		return
	}
	u := o.url(c.Service.Path)
	c.URL, c.Service, c.CABundle = &u, nil, o.LocalServingCAData
}

func (o *WebhookInstallOptions) install(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client of webhooks: %w", err)
	}
	for _, w := range o.MutatingWebhooks {
		for i := range w.Webhooks {
			o.redirect(&w.Webhooks[i].ClientConfig)
		}
		if _, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, w, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("install mutating webhooks %s: %w", w.Name, err)
		}
	}
	for _, w := range o.ValidatingWebhooks {
		for i := range w.Webhooks {
			o.redirect(&w.Webhooks[i].ClientConfig)
		}
		if _, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, w, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("install validating webhooks %s: %w", w.Name, err)
		}
	}
	return nil
}

// installCRDs creates or updates the CRDs and waits until discovery lists their resources.
func (e *Environment) installCRDs(ctx context.Context) error {
	objects, err := readObjects(e.CRDDirectoryPaths, e.ErrorIfCRDPathMissing)
	if err != nil {
		return fmt.Errorf("custom resource definitions: %w", err)
	}
	for _, object := range objects {
		if object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		if err := appendAs(&e.CRDs, object); err != nil {
			return fmt.Errorf("custom resource definitions: %w", err)
		}
	}
	if len(e.CRDs) == 0 {
		return nil
	}
	client, err := clientset.NewForConfig(e.Config)
	if err != nil {
		return fmt.Errorf("client of custom resource definitions: %w", err)
	}
	for _, crd := range e.CRDs {
		if w := crd.Spec.Conversion; w != nil && w.Webhook != nil && w.Webhook.ClientConfig != nil && w.Webhook.ClientConfig.Service != nil {
			c := w.Webhook.ClientConfig
			u := e.WebhookInstallOptions.url(c.Service.Path)
			c.URL, c.Service, c.CABundle = &u, nil, e.WebhookInstallOptions.LocalServingCAData
		}
		if err := installCRD(ctx, client, crd); err != nil {
			return fmt.Errorf("install custom resource definition %s: %w", crd.Name, err)
		}
	}
	return waitForCRDs(ctx, client.Discovery(), e.CRDs)
}

func installCRD(ctx context.Context, client clientset.Interface, crd *apiextensionsv1.CustomResourceDefinition) error {
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	_, err := definitions.Create(ctx, crd, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		old, err := definitions.Get(ctx, crd.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		next := crd.DeepCopy()
		next.ResourceVersion = old.ResourceVersion
		_, err = definitions.Update(ctx, next, metav1.UpdateOptions{})
		return err
	})
}

// pollInterval is the polling interval of all waits.
const pollInterval = 5 * time.Millisecond

func waitForCRDs(ctx context.Context, client discovery.DiscoveryInterface, crds []*apiextensionsv1.CustomResourceDefinition) error {
	for _, crd := range crds {
		for _, version := range crd.Spec.Versions {
			if !version.Served {
				continue
			}
			gv := schema.GroupVersion{Group: crd.Spec.Group, Version: version.Name}
			err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
				list, err := client.ServerResourcesForGroupVersion(gv.String())
				return err == nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == crd.Spec.Names.Plural }), nil
			})
			if err != nil {
				return fmt.Errorf("%s of %s is not served in time: %w", crd.Spec.Names.Plural, gv, err)
			}
		}
	}
	return nil
}

// maxFileBytes limits the size of a file.
const maxFileBytes = 64 << 20

// readObjects reads the objects in files and directories. It does not descend into subdirectories.
func readObjects(paths []string, mustExist bool) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, path := range paths {
		files := []string{path}
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && !mustExist:
			continue
		case err != nil:
			return nil, err
		case info.IsDir():
			if files, err = filesIn(path); err != nil {
				return nil, err
			}
		}
		for _, file := range files {
			objects, err := readFile(file)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			all = append(all, objects...)
		}
	}
	return all, nil
}

func filesIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		if !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(entry.Name())) {
			files = append(files, filepath.Join(dir, entry.Name()))
		}
	}
	return files, nil
}

func readFile(name string) ([]*unstructured.Unstructured, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(io.LimitReader(file, maxFileBytes), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		switch {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case len(object.Object) > 0:
			objects = append(objects, object)
		}
	}
}

// appendAs converts object to T and appends it.
func appendAs[T any](to *[]*T, object *unstructured.Unstructured) error {
	var typed T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed); err != nil {
		return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
	}
	*to = append(*to, &typed)
	return nil
}
