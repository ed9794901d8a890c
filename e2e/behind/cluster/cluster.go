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
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"portico.dev/e2e/programs"
	"portico.dev/internal/pki"
	"portico.dev/internal/run/freeport"
)

// Config is the configuration of a control plane.
type Config struct {
	// Programs is the directory of kube-apiserver and kube-controller-manager.
	Programs string
	// Dir is the directory for keys, data and logs. It must exist, and should be empty.
	Dir string
	// AggregatorRouting makes kube-apiserver connect to endpoints directly. It then cannot reach ExternalName Services. If
	// false, it can reach only those, because cluster IPs are not routed here. The default is false, as in kube-apiserver.
	AggregatorRouting bool
	// APIServerFlags are additional flags of kube-apiserver.
	APIServerFlags []string
	// Controllers are the controllers of kube-controller-manager. The default is all.
	Controllers string
	// Ports allocates the port of kube-apiserver, which keeps it across restarts.
	Ports *freeport.Ports
}

// Cluster is a control plane. Its methods are not safe for concurrent use.
type Cluster struct {
	// Kubeconfig is an administrator's kubeconfig file, and Admin the same configuration as a value.
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

// New creates keys and kubeconfigs. It does not start anything.
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

// writeTokenKey writes the public key of the token signing key, because kube-apiserver cannot derive it from every format of
// private keys.
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

// Log returns the name of a program's log file.
func (k *Cluster) Log(program string) string { return k.file(program + ".log") }

// Etcd returns the URL of the started etcd. Extension servers may store their own data there.
func (k *Cluster) Etcd() string { return k.etcd.URL }

// Version returns the version that kube-apiserver reports.
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

// Keys returns the directory of the cluster's signing keys.
func (k *Cluster) Keys() *pki.Directory { return k.keys }

// URL returns the URL of kube-apiserver.
func (k *Cluster) URL() string { return "https://127.0.0.1:" + strconv.Itoa(k.port) }

// As returns a client configuration with a certificate of this user.
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

// WriteKubeconfig writes a kubeconfig of this user. Its context is named incumbent.
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

// Start starts all programs and returns when they are ready. The caller must call Stop, even after an error.
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

// StartAPIServer starts kube-apiserver again at the same address, and returns when it is ready.
func (k *Cluster) StartAPIServer(ctx context.Context) error {
	process, err := k.start("kube-apiserver", k.apiserverFlags(k.etcd.URL, k.port, "front-proxy-client"))
	if err != nil {
		return err
	}
	k.apiserver = process
	return k.awaitReady(ctx, process, k.Admin)
}

// AddReplica starts another kube-apiserver with the same etcd. Like each of kubeadm's replicas, it has a separate client
// certificate for extension servers. When it is ready, AddReplica returns an administrator's configuration and a function that
// kills it.
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

// StopAPIServer kills kube-apiserver, as a machine failure does. After a signal, kube-apiserver would wait for more than a minute
// while a watch of an extension server's resource is open.
func (k *Cluster) StopAPIServer() error {
	if k.apiserver == nil {
		return nil
	}
	defer func() { k.apiserver = nil }()
	return k.apiserver.Kill()
}

// SignalAPIServer sends a signal to kube-apiserver, such as SIGSTOP, after which it hangs.
func (k *Cluster) SignalAPIServer(sig syscall.Signal) error {
	return syscall.Kill(k.apiserver.PID(), sig)
}

// Stop stops the programs in reverse order.
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
