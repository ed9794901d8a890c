package aggregator

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/internal/pki"
)

func TestInvalidSettingsAreReportedWithTheirFlag(t *testing.T) {
	for name, c := range map[string]struct {
		args    string
		refused []string
	}{
		"the default":                     {"", nil},
		"a user agent that cannot match":  {"--deny-user-agents (", []string{`--deny-user-agents: "(" is no regular expression`}},
		"a free port on every address":    {"--bind-address 0.0.0.0 --secure-port 0", nil},
		"IPv6":                            {"--bind-address ::1", nil},
		"an external etcd":                {"--etcd-servers https://a:2379,https://b:2379", nil},
		"no data directory":               {"--data-dir=", []string{"--data-dir"}},
		"a name to listen on":             {"--bind-address localhost", []string{`--bind-address: "localhost" is not an IP address`}},
		"two mistakes":                    {"--bind-address x --secure-port 70000", []string{"--bind-address", "--secure-port: 70000"}},
		"a certificate without its key":   {"--tls-cert-file a", []string{"--tls-cert-file: is only of use together with --tls-private-key-file"}},
		"a key without its certificate":   {"--proxy-client-key-file a", []string{"--proxy-client-cert-file"}},
		"a socket of an etcd elsewhere":   {"--etcd-servers https://a:2379 --etcd-unix-socket s", []string{"--etcd-unix-socket"}},
		"a prefix that is no path":        {"--etcd-prefix registry", []string{"--etcd-prefix"}},
		"a name that is none":             {"--advertise-name a_b", []string{"--advertise-name"}},
		"no time for requests":            {"--request-timeout 0s", []string{"--request-timeout"}},
		"a delay of less than no time":    {"--shutdown-delay-duration -1s", []string{"--shutdown-delay-duration: -1s is negative"}},
		"no grace":                        {"--shutdown-grace-period 0s", []string{"--shutdown-grace-period: 0s is not positive"}},
		"every client asked to reconnect": {"--goaway-chance 1", []string{"--goaway-chance: 1 is not from 0 to 0.02"}},
		"no address to listen on":         {"--bind-address=", []string{"--bind-address: an IP address is needed"}},
		"a key for kubelets alone":        {"--kubelet-client-key a", []string{"--kubelet-client-certificate: is only of use together with --kubelet-client-key"}},
		"a key for etcd alone":            {"--etcd-keyfile a", []string{"--etcd-certfile: is only of use together with --etcd-keyfile"}},
		"spans for nobody":                {"--tracing-sampling-rate-per-million 1", []string{"--tracing-sampling-rate-per-million: is only of use together with --tracing-endpoint"}},
		"a policy for no events":          {"--audit-policy-file a", []string{"--audit-policy-file: is only of use together with --audit-log-path"}},
		"an address and a name as names":  {"--advertise-name 10.0.0.1,api.example.com", nil},
		"a range of each family":          {"--service-cluster-ip-range fd00::/108,10.0.0.0/16", nil},
		"two ranges of one family":        {"--service-cluster-ip-range 10.0.0.0/16,10.1.0.0/16", []string{"--service-cluster-ip-range: two ranges of one family"}},
		"three ranges":                    {"--service-cluster-ip-range 10.0.0.0/16,fd00::/108,10.1.0.0/16", []string{"--service-cluster-ip-range: 3 ranges"}},
		"no range":                        {"--service-cluster-ip-range=", []string{"--service-cluster-ip-range: a range is needed"}},
		"a range that is an address":      {"--service-cluster-ip-range 10.0.0.1", []string{`--service-cluster-ip-range: "10.0.0.1" is not a range of addresses`}},
		"a range that is too large":       {"--service-cluster-ip-range fd00::/32", []string{"--service-cluster-ip-range: "}},
		"workloads sent to themselves":    {"--advertise-address 127.0.0.1", []string{"--advertise-address: 127.0.0.1 cannot be an endpoint"}},
		"workloads sent to a name":        {"--advertise-address here", []string{`--advertise-address: "here" is not an IP address`}},
		"events for too short":            {"--event-ttl 10ms", []string{"--event-ttl: 10ms is less than a second"}},
		"quotas never counted":            {"--resource-quota-sync-period 0s", []string{"--resource-quota-sync-period: 0s is not positive"}},
		"no controllers":                  {"--controllers=", nil},
		"a controller of others":          {"--controllers *,-deployment-controller", []string{`--controllers: "-deployment-controller" is not one of the controllers`}},
		"a plugin that nobody knows":      {"--enable-admission-plugins Podsecurity", []string{`--enable-admission-plugins: there is no plugin "Podsecurity"`}},
		"a plugin that is not here":       {"--enable-admission-plugins AlwaysPullImages", []string{"--enable-admission-plugins: AlwaysPullImages is a plugin of kube-apiserver"}},
		"to do without one that is not":   {"--disable-admission-plugins AlwaysPullImages", nil},
		"nodes, as upstream":              {"--authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --enable-bootstrap-token-auth", nil},
		"a CA without its key":            {"--cluster-signing-cert-file a", []string{"--cluster-signing-cert-file: is only of use together with --cluster-signing-key-file"}},
		"the key of a CA":                 {"--cluster-signing-kubelet-client-key-file a", []string{"--cluster-signing-kubelet-client-cert-file: is only of use together with"}},
		"one CA and another":              {"--cluster-signing-cert-file a --cluster-signing-key-file b --cluster-signing-kubelet-serving-cert-file c --cluster-signing-kubelet-serving-key-file d", []string{"--cluster-signing-cert-file: signs for every signer"}},
		"two CAs":                         {"--cluster-signing-kubelet-client-cert-file a --cluster-signing-kubelet-client-key-file b --cluster-signing-kubelet-serving-cert-file c --cluster-signing-kubelet-serving-key-file d", nil},
		"certificates for no time":        {"--cluster-signing-duration 0s", []string{"--cluster-signing-duration: 0s is not positive"}},
		"signing without a CA":            {"--controllers certificatesigningrequest-signing-controller", []string{"--controllers: certificatesigningrequest-signing-controller needs --cluster-signing-cert-file"}},
		"tokens, and no CA":               {"--controllers *,certificatesigningrequest-cleaner-controller,token-cleaner-controller,bootstrap-signer-controller", nil},
		"a plugin on and off":             {"--enable-admission-plugins PodSecurity --disable-admission-plugins PodSecurity", []string{"--disable-admission-plugins: PodSecurity is also in"}},
		"a state of an etcd of our own":   {"--state-snapshot-file s", []string{"--state-snapshot-file: is for an external etcd"}},
		"a state snapshot":                {"--etcd-servers https://a:2379 --state-snapshot-file s --state-snapshot-max-age 1h", nil},
		"a state of no age":               {"--etcd-servers https://a:2379 --state-snapshot-file s --state-snapshot-max-age 1s", []string{"--state-snapshot-max-age: 1s is too short"}},
		"the age of no state":             {"--state-snapshot-max-age 1h", []string{"--state-snapshot-max-age: is only of use together with --state-snapshot-file"}},
		"the first of several":            {"--cluster-init", nil},
		"one that joins":                  {"--join https://a:6443 --join-token-file t", nil},
		"one that has joined":             {"--join https://a:6443", nil},
		"first and joining":               {"--cluster-init --join https://a:6443", []string{"--join: it cannot be together with --cluster-init"}},
		"joining without TLS":             {"--join http://a:6443", []string{"--join: \"http://a:6443\" is no address of a front door"}},
		"joining without a port":          {"--join https://a", []string{"--join: "}},
		"a token for nothing":             {"--join-token-file t", []string{"--join-token: is only of use together with --join"}},
		"two tokens":                      {"--join https://a:1 --join-token x --join-token-file t", []string{"--join-token-file: give one of", "--join-token: this is no join token"}},
		"members of an etcd elsewhere":    {"--cluster-init --etcd-servers https://a:2379", []string{"--cluster-init: belongs to the embedded etcd"}},
		"a reset of what joins":           {"--cluster-reset --join https://a:1", []string{"--cluster-reset: it cannot be together with --join"}},
		"no port for members":             {"--cluster-init --etcd-peer-port 0", []string{"--etcd-peer-port: 0 is not a port"}},
		"a configuration that is nowhere": {"--admission-control-config-file /nowhere", []string{"--admission-control-config-file: "}},
	} {
		t.Run(name, func(t *testing.T) {
			config := Default()
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			config.AddFlags(fs)
			if err := fs.Parse(strings.Fields(c.args)); err != nil {
				t.Fatal(err)
			}
			err := config.Validate()
			if c.refused == nil && err != nil {
				t.Fatal(err)
			}
			for _, text := range c.refused {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("Validate(%q) error = %v, want %q", c.args, err, text)
				}
			}
		})
	}
}

func TestFlagsSelectHTTPEngines(t *testing.T) {
	for args, want := range map[string]string{
		"": "portico portico",
		"--http-engine=library --backend-engine library": "library library",
		"--backend-engine=library":                       "portico library",
		"--http-engine=nginx":                            `"nginx" is no HTTP engine: choose "portico" or "library"`,
		"--backend-engine=":                              `"" is no HTTP engine: choose "portico" or "library"`,
	} {
		config := Default()
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		config.AddFlags(fs)
		got := ""
		if err := fs.Parse(strings.Fields(args)); err != nil {
			got = err.Error()
		} else {
			got = string(config.HTTPEngine + " " + config.BackendEngine)
		}
		if !strings.Contains(got, want) {
			t.Errorf("engines with the flags %q = %s, want %s", args, got, want)
		}
	}
}

func TestKubeconfigNeedsInitializedDirectory(t *testing.T) {
	dir := t.TempDir()
	c := Default()
	c.DataDir = dir
	if _, err := Kubeconfig(dir, "https://a:6443", "", "alice", nil, 0); err == nil || !strings.Contains(err.Error(), "start `aggregator") {
		t.Errorf("Kubeconfig from a directory without keys: error = %v, want one that names aggregator", err)
	}
	if _, err := pki.OpenDirectory(c.pkiDir(), pki.Leaf{CommonName: "front"}); err != nil {
		t.Fatal(err)
	}
	if _, err := Kubeconfig(dir, "", "", "alice", nil, 0); err == nil || !strings.Contains(err.Error(), "--server") {
		t.Errorf("Kubeconfig without a known address: error = %v, want one that names --server", err)
	}
	for user, text := range map[string]string{"": "--user", "system:serviceaccount:a:b": "kubectl create token"} {
		if _, err := Kubeconfig(dir, "https://a:6443", "", user, nil, 0); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("Kubeconfig for the user %q: error = %v, want %q", user, err, text)
		}
	}
	data, err := Kubeconfig(dir, "https://a:6443", "", "alice", []string{"dev", "ops"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "alice"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "alice"))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(config.CertData, config.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	clients, err := pki.LoadBundle(filepath.Join(c.pkiDir(), "client-ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	leaf := pair.Leaf()
	if err := clients.VerifyClient([]*x509.Certificate{leaf}); err != nil || leaf.Subject.CommonName != "alice" || len(leaf.Subject.Organization) != 2 {
		t.Errorf("certificate of the subject %v: %v; want alice in two groups, signed by the client CA", leaf.Subject, err)
	}
	if config.Host != "https://a:6443" || len(config.CAData) == 0 {
		t.Errorf("server of the kubeconfig = %q, want https://a:6443 and CA data", config.Host)
	}
}

func TestShellQuoteEscapesArguments(t *testing.T) {
	for path, want := range map[string]string{
		"/home/a/portico-data/x": "/home/a/portico-data/x",
		"/with blank/x":          "'/with blank/x'",
		"/it's/x":                `'/it'\''s/x'`,
		"/$(reboot)":             "'/$(reboot)'",
	} {
		if got := shellQuote(path); got != want {
			t.Errorf("shellQuote(%s) = %s, want %s", path, got, want)
		}
	}
}
