package cluster

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"portico.dev/e2e/programs"
	"portico.dev/internal/pki"
	"portico.dev/internal/run/freeport"
)

// Config says where a control plane is made.
type Config struct {
	// Programs has kube-apiserver and kube-controller-manager.
	Programs string
	// Dir is for its keys, data and logs. It must exist, and should be empty.
	Dir string
	// AggregatorRouting makes kube-apiserver dial endpoints itself. It can then reach no ExternalName. Without it it can reach
	// nothing else here, because nobody makes cluster addresses lead anywhere. Default false, as kube-apiserver's.
	AggregatorRouting bool
	// APIServerFlags are given to kube-apiserver besides its own.
	APIServerFlags []string
	// Controllers are those that kube-controller-manager runs. Default all.
	Controllers string
	// Ports gives out the port of kube-apiserver, which keeps it over restarts.
	Ports *freeport.Ports
}

// Cluster is a control plane. Methods are for one goroutine.
type Cluster struct {
	// Kubeconfig is the file of an administrator, Admin the same as a value.
	Kubeconfig string
	Admin      *rest.Config

	config    Config
	port      int
	keys      *pki.Directory
	etcd      *Etcd
	apiserver *programs.Process
	manager   *programs.Process
	logs      []*os.File
}

// New makes keys and kubeconfigs, and starts nothing.
func New(c Config) (*Cluster, error) {
	port, err := c.Ports.Free()
	if err != nil {
		return nil, err
	}
	k := &Cluster{config: c, port: port}
	if k.keys, err = pki.OpenDirectory(k.file("pki"), pki.Leaf{
		CommonName: "kube-apiserver", DNSNames: []string{"localhost", "kubernetes.default.svc"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true,
	}); err != nil {
		return nil, err
	}
	if err := k.writeTokenKey(); err != nil {
		return nil, err
	}
	k.Kubeconfig = k.file("admin.kubeconfig")
	if err := k.WriteKubeconfig(k.Kubeconfig, "admin", "system:masters"); err != nil {
		return nil, err
	}
	if err := k.WriteKubeconfig(k.file("controller-manager.kubeconfig"), "system:kube-controller-manager"); err != nil {
		return nil, err
	}
	if k.Admin, err = clientcmd.BuildConfigFromFlags("", k.Kubeconfig); err != nil {
		return nil, err
	}
	k.Admin.QPS, k.Admin.WarningHandler = -1, rest.NoWarnings{}
	return k, nil
}

// writeTokenKey writes the public half of what signs tokens: of private keys kube-apiserver does not find it in every form.
func (k *Cluster) writeTokenKey() error {
	data, err := os.ReadFile(k.keys.Path("service-account.key"))
	if err != nil {
		return err
	}
	key, err := pki.ParseKey(data)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	return os.WriteFile(k.file("service-account.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o644)
}

func (k *Cluster) file(name string) string { return filepath.Join(k.config.Dir, name) }

// Log is the file of what a program of it logs.
func (k *Cluster) Log(program string) string { return k.file(program + ".log") }

// Etcd is the URL of its etcd, once started: extension servers may keep things of their own there.
func (k *Cluster) Etcd() string { return k.etcd.URL }

// Version is what kube-apiserver says of itself.
func (k *Cluster) Version(ctx context.Context) (string, error) {
	client, err := kubernetes.NewForConfig(k.Admin)
	if err != nil {
		return "", err
	}
	data, err := client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return "", err
	}
	var info struct{ GitVersion string }
	err = json.Unmarshal(data, &info)
	return info.GitVersion, err
}

// Keys are all that it signs with.
func (k *Cluster) Keys() *pki.Directory { return k.keys }

// URL is where kube-apiserver listens.
func (k *Cluster) URL() string { return "https://127.0.0.1:" + strconv.Itoa(k.port) }

// As is a client's configuration with a certificate of this user.
func (k *Cluster) As(user string, groups ...string) (*rest.Config, error) {
	cert, key, err := k.keys.ClientKeyPair(user, groups, 24*time.Hour)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: k.URL(), QPS: -1, WarningHandler: rest.NoWarnings{}, Timeout: time.Minute,
		TLSClientConfig: rest.TLSClientConfig{CAData: k.keys.Cluster().PEM(), CertData: cert, KeyData: key},
	}, nil
}

// WriteKubeconfig writes one for this user. Its context is called incumbent.
func (k *Cluster) WriteKubeconfig(file, user string, groups ...string) error {
	c, err := k.As(user, groups...)
	if err != nil {
		return err
	}
	const name = "incumbent"
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: k.URL(), CertificateAuthorityData: k.keys.Cluster().PEM()}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: user}},
		CurrentContext: name,
	}, file)
}

// Start returns when everything is ready. Whoever calls it calls Stop, also after an error.
func (k *Cluster) Start(ctx context.Context) (err error) {
	if k.etcd, err = StartEtcd(k.file("etcd"), k.Log("etcd")); err != nil {
		return err
	}
	if err := k.StartAPIServer(ctx); err != nil {
		return err
	}
	k.manager, err = k.start("kube-controller-manager", k.managerFlags())
	return err
}

// StartAPIServer starts kube-apiserver anew, at the same address, and returns when it is ready.
func (k *Cluster) StartAPIServer(ctx context.Context) error {
	process, err := k.start("kube-apiserver", k.apiserverFlags(k.etcd.URL, k.port, "front-proxy-client"))
	if err != nil {
		return err
	}
	k.apiserver = process
	return k.awaitReady(ctx, process, k.Admin)
}

// AddReplica starts another kube-apiserver over the same etcd, with a certificate of its own for extension servers, as kubeadm's have.
// It returns an administrator's configuration when that is ready, and a function that ends it.
func (k *Cluster) AddReplica(ctx context.Context) (*rest.Config, func() error, error) {
	port, err := k.config.Ports.Free()
	if err != nil {
		return nil, nil, err
	}
	proxyClient := "front-proxy-client-" + strconv.Itoa(port)
	certPEM, keyPEM, err := k.keys.FrontProxy().Issue(pki.Leaf{CommonName: pki.FrontProxyClientName, Client: true})
	if err != nil {
		return nil, nil, err
	}
	if err := errors.Join(os.WriteFile(k.keys.Path(proxyClient+".crt"), certPEM, 0o600), os.WriteFile(k.keys.Path(proxyClient+".key"), keyPEM, 0o600)); err != nil {
		return nil, nil, err
	}
	process, err := k.start("kube-apiserver", k.apiserverFlags(k.etcd.URL, port, proxyClient))
	if err != nil {
		return nil, nil, err
	}
	admin := rest.CopyConfig(k.Admin)
	admin.Host = "https://127.0.0.1:" + strconv.Itoa(port)
	if err := k.awaitReady(ctx, process, admin); err != nil {
		return nil, nil, errors.Join(err, process.Kill())
	}
	return admin, process.Kill, nil
}

func (k *Cluster) awaitReady(ctx context.Context, process *programs.Process, admin *rest.Config) error {
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return err
	}
	err = programs.Poll(process.Exited(), func() error {
		bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(bounded).Error()
	})
	if err != nil {
		return fmt.Errorf("wait for kube-apiserver (its log is %s): %w", k.Log("kube-apiserver"), err)
	}
	return nil
}

// StopAPIServer ends kube-apiserver as the end of its machine does. Asked to end, it waits for more than a minute while a
// watch of an extension server's goes on.
func (k *Cluster) StopAPIServer() error {
	if k.apiserver == nil {
		return nil
	}
	defer func() { k.apiserver = nil }()
	return k.apiserver.Kill()
}

// Stop ends what was started, in reverse.
func (k *Cluster) Stop() error {
	var errs []error
	if k.manager != nil {
		_, err := k.manager.Stop(os.Interrupt)
		errs = append(errs, err)
	}
	errs = append(errs, k.StopAPIServer())
	if k.etcd != nil {
		k.etcd.Close()
	}
	for _, f := range k.logs {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

func (k *Cluster) start(program string, flags []string) (*programs.Process, error) {
	log, err := os.OpenFile(k.Log(program), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	k.logs = append(k.logs, log)
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + k.config.Dir}
	return programs.Start(program, k.config.Dir, env, log, filepath.Join(k.config.Programs, program), flags...)
}
