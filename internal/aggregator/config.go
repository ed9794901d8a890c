package aggregator

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"

	"portico.dev/internal/aggregation"
	"portico.dev/internal/audit"
	"portico.dev/internal/auth/authz"
	"portico.dev/internal/coreapi/admission"
	"portico.dev/internal/lifecycle"
	"portico.dev/internal/server"
)

// Config contains every setting of the front door. Flags have kube-apiserver's names if their meaning is the same.
type Config struct {
	aggregation.Serving

	// DataDir contains the keys that the front door generates, and the embedded etcd. Mode 0700.
	DataDir string

	// AdvertiseNames are additional names and addresses in the serving certificate.
	AdvertiseNames []string

	// TLSCertFile and TLSPrivateKeyFile are the serving certificate and its key. Default: generated in DataDir.
	TLSCertFile, TLSPrivateKeyFile string
	// RootCAFile contains the CA certificates with which workloads verify this server (ConfigMap kube-root-ca.crt).
	// Default: generated in DataDir.
	RootCAFile string
	// ClientCAFile contains the CA certificates of client certificates. Default: generated in DataDir.
	ClientCAFile string
	// TokenAuthFile is a CSV of static tokens: token,user,uid,"group1,group2". Default none.
	TokenAuthFile string
	// AnonymousAuth accepts requests without a credential as system:anonymous. Default true.
	AnonymousAuth bool

	// EtcdServers are the URLs of an external etcd. Default: an embedded etcd.
	EtcdServers                           []string
	EtcdCAFile, EtcdCertFile, EtcdKeyFile string
	EtcdPrefix                            string
	// EtcdUnixSocket is a Unix socket on which the embedded etcd listens for etcdctl. Default none.
	EtcdUnixSocket string
	// Cluster makes the embedded etcd one of several members. Default: it is the only member.
	Cluster ClusterConfig
	// Storage configures how objects are stored in etcd.
	Storage StorageConfig
	// StateSnapshot configures the state from which a replica starts while etcd is unreachable. Default none: it
	// waits for etcd.
	StateSnapshot StateSnapshotConfig
	// Backup configures scheduled backups. Default none.
	Backup BackupConfig

	// RequestHeader* configure which front proxies may act for other users. They are published to extension servers.
	RequestHeaderClientCAFile        string
	RequestHeaderAllowedNames        []string
	RequestHeaderUsernameHeaders     []string
	RequestHeaderUIDHeaders          []string
	RequestHeaderGroupHeaders        []string
	RequestHeaderExtraHeaderPrefixes []string
	// ProxyClientCertFile and ProxyClientKeyFile are the client certificate for extension servers, and its key.
	ProxyClientCertFile, ProxyClientKeyFile string

	// ServiceAccount* configure how service account tokens are signed and verified.
	ServiceAccountIssuer         string
	ServiceAccountSigningKeyFile string
	ServiceAccountKeyFiles       []string
	APIAudiences                 []string
	// Authentication configures the tokens that are accepted in addition to Portico's own.
	Authentication AuthenticationConfig
	// Authorization configures the authorizers. Default RBAC.
	Authorization authz.Config

	// Signing configures the CAs that sign certificates. Default none.
	Signing SigningConfig
	// Kubelet configures the connections to kubelets.
	Kubelet KubeletConfig

	// Services configures Services, and the Service of the front door.
	Services ServicesConfig
	// Admission configures the admission of writes to the local groups. Default upstream's plugins.
	Admission admission.Config
	// ClusterTunnelsDir contains the configurations of the tunnels to API servers of Clusters. Default none.
	ClusterTunnelsDir string

	// AllowPrivileged allows pods with privileged containers. Default true, as kubeadm and other installers configure
	// kube-apiserver, although its own default is false: network plugins and kube-proxy are privileged. Pod Security
	// Admission restricts single namespaces.
	AllowPrivileged bool

	// Controllers selects the controllers that run here instead of in kube-controller-manager. Default all. Danger:
	// the work of a controller that runs in neither is not done, and the work of a controller that runs in both is
	// done twice.
	Controllers []string

	// RuntimeConfig disables built-in APIs. Default: all are enabled.
	RuntimeConfig cliflag.ConfigurationMap

	// EnablePriorityAndFairness schedules requests by the flowcontrol objects. Default true.
	EnablePriorityAndFairness bool
	CORSAllowedOrigins        []string
	DeniedUserAgents          []string
	// TLSMinVersion and TLSCipherSuites restrict the TLS settings for clients. Default TLS 1.2 and later, AEAD
	// suites.
	TLSMinVersion   string
	TLSCipherSuites []string
	// StrictTransportSecurity are directives for browsers. Default none.
	StrictTransportSecurity []string
	// Readiness makes /readyz/backends, and optionally /readyz, depend on extension servers. Default: neither does.
	Readiness ReadinessConfig
	// Peers configures how replicas forward requests to each other.
	Peers PeersConfig
	// AuthorizeUpgradesAsCreate requires the right to create, in addition to the right to get, for a GET that
	// upgrades its connection.
	AuthorizeUpgradesAsCreate bool
	// TracingEndpoint is host:port of an OTLP collector on this machine (gRPC, without TLS). Default none.
	TracingEndpoint string
	// TracingSamplingRatePerMillion is how many of a million requests begin a new trace. Default 0.
	TracingSamplingRatePerMillion int
	// Profiling serves /debug/pprof/ to authorized clients. Default true.
	Profiling bool
	// ContentionProfiling records every wait of a goroutine for another one, for /debug/pprof/block. Default false.
	ContentionProfiling bool
	// AllMetrics serves all metrics of the Kubernetes libraries and of the Go runtime. Default: see metrics.Libraries.
	AllMetrics bool
	// Audit configures which requests are audited, and where the events are written. Default none.
	Audit audit.Config

	// Embedded contains the additions of programs that embed the front door. It has no flags. Default none.
	Embedded Embedded
}

// Default returns the configuration of `aggregator serve` without flags.
func Default() Config {
	c := Config{
		Serving:                          aggregation.DefaultServing(),
		DataDir:                          "./portico-data",
		AnonymousAuth:                    true,
		AllowPrivileged:                  true,
		Authentication:                   defaultAuthentication(),
		Authorization:                    defaultAuthorization(),
		EtcdPrefix:                       "/registry",
		Cluster:                          ClusterConfig{PeerPort: defaultPeerPort},
		Storage:                          defaultStorage(),
		StateSnapshot:                    defaultStateSnapshot(),
		Backup:                           defaultBackup(),
		RequestHeaderAllowedNames:        []string{"front-proxy-client"},
		RequestHeaderUsernameHeaders:     []string{"X-Remote-User"},
		RequestHeaderUIDHeaders:          []string{"X-Remote-Uid"},
		RequestHeaderGroupHeaders:        []string{"X-Remote-Group"},
		RequestHeaderExtraHeaderPrefixes: []string{"X-Remote-Extra-"},
		Signing:                          defaultSigning(),
		Kubelet:                          defaultKubelet(),
		Admission:                        defaultAdmission(),
		Services:                         defaultServices(),
		Controllers:                      lifecycle.EveryController(),
		EnablePriorityAndFairness:        true,
		Readiness:                        ReadinessConfig{MaxNotReady: 0.5},
		Peers:                            PeersConfig{Enabled: true},
		Profiling:                        true,
	}
	c.BindAddress, c.SecurePort, c.ShutdownGrace, c.AccessLog = "127.0.0.1", 6443, 10*time.Second, true
	return c
}

// graceFlag is the flag of ShutdownGrace.
const graceFlag = "shutdown-grace-period"

// AddFlags binds the settings to flags, with c's values as defaults.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	sets := c.NamedFlags()
	for _, name := range sets.Order {
		fs.AddFlagSet(sets.FlagSets[name])
	}
}

// NamedFlags binds the settings to flags in groups, for help texts and configuration files.
func (c *Config) NamedFlags() cliflag.NamedFlagSets {
	var sets cliflag.NamedFlagSets
	for _, group := range []struct {
		name string
		add  []func(*pflag.FlagSet)
	}{
		{"secure serving", []func(*pflag.FlagSet){c.addListenFlags}},
		{"authentication", []func(*pflag.FlagSet){c.addIdentityFlags, c.Authentication.addFlags}},
		{"authorization", []func(*pflag.FlagSet){c.addAuthorizationFlags}},
		{"etcd", []func(*pflag.FlagSet){c.addStorageFlags, c.Cluster.addFlags, c.Storage.addFlags, c.StateSnapshot.addFlags}},
		{"backup", []func(*pflag.FlagSet){c.Backup.addFlags}},
		{"request", []func(*pflag.FlagSet){c.addRequestFlags}},
		{"flow control", []func(*pflag.FlagSet){c.addFairnessFlags}},
		{"admission", []func(*pflag.FlagSet){c.addAdmissionFlags}},
		{"API enablement", []func(*pflag.FlagSet){c.addRuntimeConfigFlags}},
		{"service", []func(*pflag.FlagSet){c.Services.addFlags}},
		{"kubelet", []func(*pflag.FlagSet){c.Kubelet.addFlags}},
		{"egress selector", []func(*pflag.FlagSet){c.addEgressFlags}},
		{"controller", []func(*pflag.FlagSet){c.addControllerFlags, c.Signing.addFlags}},
		{"replica", []func(*pflag.FlagSet){c.Readiness.addFlags, c.Peers.addFlags}},
		{"auditing", []func(*pflag.FlagSet){c.addAuditFlags}},
		{"profiling", []func(*pflag.FlagSet){c.addProfilingFlags}},
		{"metrics", []func(*pflag.FlagSet){c.addMetricsFlags}},
	} {
		for _, add := range group.add {
			add(sets.FlagSet(group.name))
		}
	}
	return sets
}

func (c *Config) addListenFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.DataDir, "data-dir", c.DataDir, "directory for keys and the embedded etcd; created with mode 0700")
	c.AddListenFlags(fs, graceFlag)
	fs.StringSliceVar(&c.AdvertiseNames, "advertise-name", c.AdvertiseNames, "another DNS name or IP address of this server, added to the serving certificate; may be repeated")
	fs.StringVar(&c.TLSCertFile, "tls-cert-file", c.TLSCertFile, "serving certificate (PEM); default one that is generated in the data directory")
	fs.StringVar(&c.TLSPrivateKeyFile, "tls-private-key-file", c.TLSPrivateKeyFile, "key of the serving certificate")
	fs.StringVar(&c.TLSMinVersion, "tls-min-version", c.TLSMinVersion, "minimum TLS version for clients: VersionTLS12 or VersionTLS13; default VersionTLS12")
	fs.StringSliceVar(&c.TLSCipherSuites, "tls-cipher-suites", c.TLSCipherSuites, "TLS 1.2 cipher suites to offer; default all secure ones")
}

func (c *Config) validateListen(bad func(flag, format string, args ...any)) {
	if c.DataDir == "" {
		bad("data-dir", "a directory is needed")
	}
	if c.BindAddress == "" { // a gateway listens on every address by default
		bad("bind-address", "an IP address is needed; 0.0.0.0 and :: are every address")
	}
	checkKeyPair(bad, "tls-cert-file", c.TLSCertFile, "tls-private-key-file", c.TLSPrivateKeyFile)
	for _, name := range c.AdvertiseNames {
		// A wildcard is for the host names of Clusters. Other names are those of the front door itself.
		if net.ParseIP(name) == nil && len(validation.IsDNS1123Subdomain(strings.TrimPrefix(name, "*."))) > 0 {
			bad("advertise-name", "%q is neither a DNS name nor an IP address", name)
		}
	}
}

func (c *Config) addIdentityFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.RootCAFile, "root-ca-file", c.RootCAFile, "CA certificates that workloads verify this server with, published as kube-root-ca.crt; default generated in the data directory")
	fs.StringVar(&c.ClientCAFile, "client-ca-file", c.ClientCAFile, "CA certificates of client certificates; default generated in the data directory")
	fs.StringVar(&c.TokenAuthFile, "token-auth-file", c.TokenAuthFile, `static bearer tokens, one per line: token,user,uid,"group1,group2"`)
	fs.BoolVar(&c.AnonymousAuth, "anonymous-auth", c.AnonymousAuth, "accept requests without a credential as user system:anonymous")
	fs.StringVar(&c.RequestHeaderClientCAFile, "requestheader-client-ca-file", c.RequestHeaderClientCAFile, "CA certificates of the client certificates of front proxies; default generated in the data directory")
	fs.StringSliceVar(&c.RequestHeaderAllowedNames, "requestheader-allowed-names", c.RequestHeaderAllowedNames, "common names of front proxies' client certificates; empty accepts any name")
	fs.StringSliceVar(&c.RequestHeaderUsernameHeaders, "requestheader-username-headers", c.RequestHeaderUsernameHeaders, "request headers that hold the user name")
	fs.StringSliceVar(&c.RequestHeaderUIDHeaders, "requestheader-uid-headers", c.RequestHeaderUIDHeaders, "request headers that hold the user's UID")
	fs.StringSliceVar(&c.RequestHeaderGroupHeaders, "requestheader-group-headers", c.RequestHeaderGroupHeaders, "request headers that hold the groups")
	fs.StringSliceVar(&c.RequestHeaderExtraHeaderPrefixes, "requestheader-extra-headers-prefix", c.RequestHeaderExtraHeaderPrefixes, "prefixes of request headers that hold extra user information")
	fs.StringVar(&c.ProxyClientCertFile, "proxy-client-cert-file", c.ProxyClientCertFile, "client certificate presented to extension servers; default generated in the data directory")
	fs.StringVar(&c.ProxyClientKeyFile, "proxy-client-key-file", c.ProxyClientKeyFile, "key of the client certificate for extension servers")
	fs.StringVar(&c.ServiceAccountIssuer, "service-account-issuer", c.ServiceAccountIssuer, "issuer of service account tokens; default https://kubernetes.default.svc.cluster.local")
	fs.StringVar(&c.ServiceAccountSigningKeyFile, "service-account-signing-key-file", c.ServiceAccountSigningKeyFile, "private key that signs service account tokens; default generated in the data directory")
	fs.StringSliceVar(&c.ServiceAccountKeyFiles, "service-account-key-file", c.ServiceAccountKeyFiles, "files with public or private keys that verify service account tokens; default the signing key")
	fs.StringSliceVar(&c.APIAudiences, "api-audiences", c.APIAudiences, "audiences that service account tokens for this server must have; default the issuer")
}

func (c *Config) validateIdentity(bad func(flag, format string, args ...any)) {
	checkKeyPair(bad, "proxy-client-cert-file", c.ProxyClientCertFile, "proxy-client-key-file", c.ProxyClientKeyFile)
}

func (c *Config) addEgressFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.EgressSelectorConfigFile, "egress-selector-config-file", c.EgressSelectorConfigFile, "EgressSelectorConfiguration of apiserver.k8s.io/v1beta1: tunnels to nodes, pods and Services (cluster), to webhooks with a URL and endpoints named by flags (controlplane), and to etcd; default none")
	fs.StringVar(&c.ClusterTunnelsDir, "cluster-tunnels-dir", c.ClusterTunnelsDir, "directory with an EgressSelectorConfiguration NAME.yaml for each tunnel that Clusters name in spec.server.tunnel; its egress cluster is the tunnel to their API servers")
}

func (c *Config) addControllerFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.Controllers, "controllers", c.Controllers, "controllers that run in this server instead of in kube-controller-manager, by kube-controller-manager's names: '*' enables all that are on by default, NAME enables one, -NAME disables one; an empty value disables all. The controllers of certificatesigningrequests are on by default only with --cluster-signing-cert-file, the controllers of bootstrap tokens never")
}

func (c *Config) validateControllers(bad func(flag, format string, args ...any)) {
	if err := lifecycle.Choice(c.Controllers).Check(); err != nil {
		bad("controllers", "%v", err)
	}
	c.Signing.validate(c.Controllers, bad)
}

func (c *Config) addStorageFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.EtcdServers, "etcd-servers", c.EtcdServers, "URLs of an external etcd, scheme://host:port; default an embedded etcd in the data directory")
	fs.StringVar(&c.EtcdCAFile, "etcd-cafile", c.EtcdCAFile, "CA certificates of the external etcd")
	fs.StringVar(&c.EtcdCertFile, "etcd-certfile", c.EtcdCertFile, "client certificate for the external etcd")
	fs.StringVar(&c.EtcdKeyFile, "etcd-keyfile", c.EtcdKeyFile, "key of the client certificate for the external etcd")
	fs.StringVar(&c.EtcdPrefix, "etcd-prefix", c.EtcdPrefix, "prefix of the keys of API objects in etcd")
	fs.StringVar(&c.EtcdUnixSocket, "etcd-unix-socket", c.EtcdUnixSocket, "Unix socket on which the embedded etcd listens for etcdctl; default none")
}

func (c *Config) validateEtcd(bad func(flag, format string, args ...any)) {
	checkKeyPair(bad, "etcd-certfile", c.EtcdCertFile, "etcd-keyfile", c.EtcdKeyFile)
	if len(c.EtcdServers) > 0 && c.EtcdUnixSocket != "" {
		bad("etcd-unix-socket", "belongs to the embedded etcd, and --etcd-servers names another")
	}
	if !strings.HasPrefix(c.EtcdPrefix, "/") {
		bad("etcd-prefix", "%q does not begin with a slash", c.EtcdPrefix)
	}
}

func (c *Config) addRequestFlags(fs *pflag.FlagSet) {
	c.AddRequestFlags(fs)
	c.AddEngineFlags(fs)
	fs.StringSliceVar(&c.CORSAllowedOrigins, "cors-allowed-origins", c.CORSAllowedOrigins, "regular expressions of origins that are allowed by CORS; default none")
	fs.StringArrayVar(&c.DeniedUserAgents, "deny-user-agents", c.DeniedUserAgents, "regular expression (RE2); requests with a User-Agent that matches are answered 403. Can be repeated; default none")
	fs.StringSliceVar(&c.StrictTransportSecurity, "strict-transport-security-directives", c.StrictTransportSecurity, "directives of the Strict-Transport-Security header: max-age=SECONDS, includeSubDomains, preload; default no header")
	fs.BoolVar(&c.AuthorizeUpgradesAsCreate, "authorize-upgrades-as-create", c.AuthorizeUpgradesAsCreate, "require the verb create, in addition to get, for WebSocket upgrades by GET")
	fs.StringVar(&c.TracingEndpoint, "tracing-endpoint", c.TracingEndpoint, "host:port of an OTLP collector that receives spans, over gRPC without TLS; default none")
	fs.IntVar(&c.TracingSamplingRatePerMillion, "tracing-sampling-rate-per-million", c.TracingSamplingRatePerMillion, "number of requests per million that are traced, in addition to requests that a privileged client traces")
}

func (c *Config) validateRequests(bad func(flag, format string, args ...any)) {
	if _, err := server.CompileUserAgents(c.DeniedUserAgents); err != nil {
		bad("deny-user-agents", "%v", err)
	}
	if _, _, err := net.SplitHostPort(c.TracingEndpoint); c.TracingEndpoint != "" && err != nil {
		bad("tracing-endpoint", "%q is not host:port: %v", c.TracingEndpoint, err)
	}
	if n := c.TracingSamplingRatePerMillion; n < 0 || n > 1_000_000 {
		bad("tracing-sampling-rate-per-million", "%d is not a number from 0 to 1000000", n)
	} else if n > 0 && c.TracingEndpoint == "" {
		bad("tracing-sampling-rate-per-million", "is only of use together with --tracing-endpoint")
	}
}

func (c *Config) addAuditFlags(fs *pflag.FlagSet) {
	a := &c.Audit
	fs.StringVar(&a.PolicyFile, "audit-policy-file", a.PolicyFile, "audit.k8s.io/v1 Policy; default one event per request at level Metadata, at stage ResponseComplete")
	fs.StringVar(&a.LogPath, "audit-log-path", a.LogPath, `write audit events to this file, one per line; "-" is standard output`)
	fs.StringVar(&a.LogMode, "audit-log-mode", audit.ModeBatch, "batch: requests never wait for the log; blocking: each waits until its event is written")
	fs.IntVar(&a.LogMaxAge, "audit-log-maxage", a.LogMaxAge, "days that rotated audit logs are kept; 0 keeps them forever")
	fs.IntVar(&a.LogMaxBackups, "audit-log-maxbackup", a.LogMaxBackups, "number of rotated audit logs that are kept; 0 keeps all")
	fs.IntVar(&a.LogMaxSize, "audit-log-maxsize", 100, "size in megabytes at which the audit log is rotated")
	fs.BoolVar(&a.LogCompress, "audit-log-compress", a.LogCompress, "compress rotated audit logs with gzip")
	fs.StringVar(&a.WebhookConfigFile, "audit-webhook-config-file", a.WebhookConfigFile, "kubeconfig of a webhook that receives audit events")
	fs.IntVar(&a.WebhookBatchMaxSize, "audit-webhook-batch-max-size", 400, "maximum number of events in one request")
	fs.DurationVar(&a.WebhookBatchMaxWait, "audit-webhook-batch-max-wait", 30*time.Second, "maximum time that an event waits for its batch")
	fs.DurationVar(&a.WebhookInitialBackoff, "audit-webhook-initial-backoff", 10*time.Second, "delay before the first retry")
}

func (c *Config) validateAudit(bad func(flag, format string, args ...any)) {
	a := &c.Audit
	if m := a.LogMode; m != "" && m != audit.ModeBatch && m != audit.ModeBlocking {
		bad("audit-log-mode", "%q is neither %s nor %s", m, audit.ModeBatch, audit.ModeBlocking)
	}
	if a.PolicyFile != "" && !a.Enabled() {
		bad("audit-policy-file", "is only of use together with --audit-log-path or --audit-webhook-config-file")
	}
	if a.LogMaxAge < 0 || a.LogMaxBackups < 0 || a.LogMaxSize < 0 {
		bad("audit-log-maxsize", "age, number and size of logs cannot be negative")
	}
	if a.WebhookBatchMaxSize < 0 || a.WebhookBatchMaxWait < 0 || a.WebhookInitialBackoff < 0 {
		bad("audit-webhook-batch-max-size", "sizes and waits cannot be negative")
	}
}

// Validate reports every invalid setting with its flag.
func (c *Config) Validate() error {
	var errs []error
	bad := func(flag, format string, args ...any) {
		errs = append(errs, fmt.Errorf("--%s: %s", flag, fmt.Sprintf(format, args...)))
	}
	c.Serving.Validate(graceFlag, bad)
	for _, validate := range []func(func(flag, format string, args ...any)){
		c.validateListen, c.validateIdentity, c.validateEtcd, c.validateCluster, c.validateStorage, c.validateStateSnapshot, c.validateBackup, c.Admission.Validate,
		c.Services.validate, c.Kubelet.validate, c.validateControllers, c.validateRuntimeConfig, c.validateRequests, c.validateFairness,
		c.validateAudit, c.Readiness.validate, c.Peers.validate,
	} {
		validate(bad)
	}
	return errors.Join(append(errs, c.Authentication.validate(), c.Authorization.Validate(), c.validateEmbedded())...)
}

// checkKeyPair requires both the file of a certificate and the file of its key, or neither.
func checkKeyPair(bad func(flag, format string, args ...any), certFlag, certFile, keyFlag, keyFile string) {
	if (certFile == "") != (keyFile == "") {
		bad(certFlag, "is only of use together with --%s", keyFlag)
	}
}

func (c *Config) pkiDir() string { return filepath.Join(c.DataDir, "pki") }

// AdminKubeconfig returns the path of the administrator's kubeconfig.
func (c *Config) AdminKubeconfig() string { return filepath.Join(c.DataDir, "admin.kubeconfig") }
