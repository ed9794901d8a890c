package cluster

import (
	"cmp"
	"strconv"
)

// apiserverFlags returns the flags that kubeadm sets for kube-apiserver, if they apply here. proxyClient is the base name of the
// files of its client certificate for extension servers.
func (k *Cluster) apiserverFlags(etcd string, port int, proxyClient string) []string {
	return append([]string{
		"--etcd-servers=" + etcd,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + k.keys.Path("serving.crt"), "--tls-private-key-file=" + k.keys.Path("serving.key"),
		"--client-ca-file=" + k.keys.Path("client-ca.crt"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + k.file("service-account.pub"),
		"--service-account-signing-key-file=" + k.keys.Path("service-account.key"),
		"--requestheader-client-ca-file=" + k.keys.Path("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + k.keys.Path(proxyClient+".crt"),
		"--proxy-client-key-file=" + k.keys.Path(proxyClient+".key"),
		"--enable-aggregator-routing=" + strconv.FormatBool(k.config.AggregatorRouting),
		"--shutdown-delay-duration=0s",
		"--vmodule=dynamic_serving_content=2", // logs when it has reloaded a certificate
	}, k.config.APIServerFlags...)
}

// APIServerFlags returns the flags of another kube-apiserver with the same keys and an etcd at these addresses (--etcd-servers).
// The caller starts it.
func (k *Cluster) APIServerFlags(etcd string, port int) []string {
	return k.apiserverFlags(etcd, port, "front-proxy-client")
}

func (k *Cluster) managerFlags() []string {
	kubeconfig := k.file("controller-manager.kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port=0", "--leader-elect=false", "--controllers=" + cmp.Or(k.config.Controllers, "*"),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + k.keys.Path("service-account.key"), "--root-ca-file=" + k.keys.Path("ca.crt"),
	}
}
