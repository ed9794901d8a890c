package aggregator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	etcdversion "go.etcd.io/etcd/api/v3/version"
	"go.uber.org/zap"

	"portico.dev/internal/pki"
	"portico.dev/internal/replicas/cluster"
	"portico.dev/internal/run"
	"portico.dev/internal/store"
	"portico.dev/internal/version"
)

// ClusterConfig makes the embedded etcd one of several members.
type ClusterConfig struct {
	// Init makes this front door the first of several, or lets other front doors join an existing one. Default false.
	Init bool
	// Join is the URL of a front door in the cluster that this one joins at its first start. Default none.
	Join string
	// Token is the join token, and TokenFile a file with it. One of them is required at the first start.
	Token, TokenFile string
	// Reset makes this member the only one of a new cluster, and ends. Danger: data that only other members have
	// stored is lost.
	Reset bool
	// PeerPort is the port for other members of etcd, and for clients of etcd. Default 2380.
	PeerPort int
}

// defaultPeerPort is etcd's default.
const defaultPeerPort = 2380

func (c *ClusterConfig) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.Init, "cluster-init", c.Init, "make the embedded etcd, with its data, the first member of a cluster that other front doors can join")
	fs.StringVar(&c.Join, "join", c.Join, "URL of a front door whose embedded etcd this one joins as a member, https://HOST:PORT; ignored once it has joined")
	fs.StringVar(&c.Token, "join-token", c.Token, "token for --join, created by aggregator token create. Prefer --join-token-file, because other users of the machine can read command lines")
	fs.StringVar(&c.TokenFile, "join-token-file", c.TokenFile, "file with the token for --join")
	fs.BoolVar(&c.Reset, "cluster-reset", c.Reset, "make the embedded etcd, with its data, the only member of a new cluster, and exit; for recovery after the permanent loss of the quorum")
	fs.IntVar(&c.PeerPort, "etcd-peer-port", c.PeerPort, "port for connections between the members of an embedded etcd cluster, with mutual TLS. It also accepts etcd clients that present a member's certificate")
}

func (c *Config) validateCluster(bad func(flag, format string, args ...any)) {
	k := &c.Cluster
	used := ""
	switch {
	case k.Init:
		used = "cluster-init"
	case k.Join != "":
		used = "join"
	case k.Reset:
		used = "cluster-reset"
	}
	switch {
	case used != "" && len(c.EtcdServers) > 0:
		bad(used, "belongs to the embedded etcd, and --etcd-servers names another")
	case used != "" && (c.Embedded.Volatile || c.Embedded.NoListener):
		bad(used, "a front door with in-memory storage or without a listener cannot be a member of a cluster")
	case k.Init && k.Join != "":
		bad("join", "it cannot be together with --cluster-init: the first front door is started with that one, and all others with this one")
	case k.Reset && k.Join != "":
		bad("cluster-reset", "it cannot be together with --join: a reset needs no other member")
	}
	if k.Join != "" {
		if _, err := cluster.CheckServer(k.Join); err != nil {
			bad("join", "%v", err)
		}
	}
	if k.Join == "" && (k.Token != "" || k.TokenFile != "") {
		bad("join-token", "is only of use together with --join")
	}
	if k.Token != "" && k.TokenFile != "" {
		bad("join-token-file", "give one of this and --join-token")
	}
	if k.Token != "" {
		if _, err := cluster.ParseToken(k.Token); err != nil {
			bad("join-token", "%v", err)
		}
	}
	if k.PeerPort < 1 || k.PeerPort > 65535 {
		bad("etcd-peer-port", "%d is not a port; use 1 to 65535", k.PeerPort)
	}
}

// token returns the token in the flags, or nil.
func (c *ClusterConfig) token() (*cluster.Token, error) {
	var t cluster.Token
	var err error
	switch {
	case c.TokenFile != "":
		if t, err = cluster.ReadToken(c.TokenFile); err != nil {
			return nil, fmt.Errorf("--join-token-file: %w", err)
		}
	case c.Token != "":
		if t, err = cluster.ParseToken(c.Token); err != nil {
			return nil, fmt.Errorf("--join-token: %w", err)
		}
	default:
		return nil, nil
	}
	return &t, nil
}

// storageVersion is the version of the data that Portico itself stores in etcd. It is raised when older releases
// cannot read the data.
const storageVersion = 1

func joinVersions() cluster.Versions {
	kubernetes := version.Get()
	return cluster.Versions{
		Portico: version.Portico, Kubernetes: kubernetes.Major + "." + kubernetes.Minor, Etcd: cluster.Minor(etcdversion.Version), Storage: storageVersion,
	}
}

func (c *Config) etcdDir() string { return filepath.Join(c.DataDir, "etcd") }

// joinTokenFile returns the file in which the first front door of a cluster stores a token.
func (c *Config) joinTokenFile() string { return filepath.Join(c.DataDir, "join-token") }

// handedEncryption returns the file with the EncryptionConfiguration of a joined cluster.
func (c *Config) handedEncryption() string {
	return filepath.Join(c.pkiDir(), "encryption-provider-config.yaml")
}

// peerHost returns the IP address at which other replicas reach this one.
func (c *Config) peerHost() string {
	if c.Peers.AdvertiseIP != "" {
		return c.Peers.AdvertiseIP
	}
	if ip := net.ParseIP(c.BindAddress); ip.IsUnspecified() {
		if a := c.advertised(); a.IsValid() {
			return a.String()
		}
	}
	return c.BindAddress
}

// findMember returns the embedded etcd as one of several members, or nil if it is the only one. Without flags, the
// data directory decides, so that a member remains one after a restart without them. The last remaining member counts
// as a single one.
func (c *Config) findMember() (*store.Cluster, *store.Membership, error) {
	if len(c.EtcdServers) > 0 {
		return nil, nil, nil
	}
	known, err := store.ReadMembership(c.etcdDir())
	if err != nil {
		return nil, nil, err
	}
	k := c.Cluster
	several := known != nil && (known.Joining || len(known.Others) > 0)
	if !several && !k.Init && k.Join == "" && !k.Reset {
		return nil, nil, nil
	}
	port := strconv.Itoa(k.PeerPort)
	member := &store.Cluster{Address: net.JoinHostPort(c.peerHost(), port), Listen: net.JoinHostPort(c.BindAddress, port)}
	if known != nil {
		member.Name = known.Name
	} else {
		member.Name = run.InstanceName()
	}
	return member, known, cluster.CheckName(member.Name)
}

// prepareCluster determines whether the embedded etcd is one of several members, and fetches the keys of the cluster
// to join. It returns nil for a single member, and for an external etcd.
func (c *Config) prepareCluster(ctx context.Context, log *zap.Logger) (*store.Cluster, error) {
	member, known, err := c.findMember()
	if err != nil || member == nil {
		return nil, err
	}
	if c.Cluster.Join != "" && (known == nil || known.Joining) {
		if known == nil && store.HoldsEtcd(c.etcdDir()) {
			return nil, fmt.Errorf("--join: %s has an etcd with data of its own, which the cluster would not take over; choose another --data-dir", c.DataDir)
		}
		if err := c.join(ctx, member, log); err != nil {
			return nil, err
		}
	}
	if c.Storage.EncryptionConfigFile == "" {
		if _, err := os.Stat(c.handedEncryption()); err == nil {
			c.Storage.EncryptionConfigFile = c.handedEncryption()
		}
	}
	return member, nil
}

// join fetches the keys of a cluster, and makes the member join it when etcd starts.
func (c *Config) join(ctx context.Context, member *store.Cluster, log *zap.Logger) error {
	token, err := c.Cluster.token()
	if err != nil {
		return err
	}
	if token == nil {
		return errors.New("--join: a token is needed at the first start: make one at a front door of the cluster with `aggregator token create`, and name a file with it in --join-token-file")
	}
	joiner, err := cluster.NewJoiner(c.Cluster.Join, *token, joinVersions(), log.Named("join"))
	if err != nil {
		return fmt.Errorf("--join: %w", err)
	}
	handed, err := joiner.Keys(ctx)
	if err != nil {
		return err
	}
	if err := differingSettings(handed.Settings, c.sharedSettings()); err != nil {
		return fmt.Errorf("join the cluster at %s: %w", c.Cluster.Join, err)
	}
	if err := pki.WriteShared(c.pkiDir(), handed.Files); err != nil {
		return fmt.Errorf("keys of the cluster at %s: %w; choose an empty --data-dir", c.Cluster.Join, err)
	}
	if len(handed.Encryption) > 0 && c.Storage.EncryptionConfigFile == "" {
		if err := pki.WriteFile(c.handedEncryption(), handed.Encryption, 0o600); err != nil {
			return err
		}
	}
	log.Info("received the keys of the cluster", zap.String("from", c.Cluster.Join))
	member.Join = func(ctx context.Context) (map[string][]string, error) {
		return joiner.Member(ctx, member.Name, member.Address)
	}
	return nil
}

// sharedSettings returns the settings that must be equal in all members, by flag. For files with keys, only their
// presence counts.
func (c *Config) sharedSettings() map[string]string {
	given := func(files ...string) string {
		if slices.ContainsFunc(files, func(file string) bool { return file != "" }) {
			return "a file"
		}
		return ""
	}
	return map[string]string{
		"etcd-prefix":                      c.EtcdPrefix,
		"service-cluster-ip-range":         strings.Join(c.Services.ClusterIPRanges, ","),
		"service-account-issuer":           c.ServiceAccountIssuer,
		"api-audiences":                    strings.Join(c.APIAudiences, ","),
		"root-ca-file":                     given(c.RootCAFile),
		"client-ca-file":                   given(c.ClientCAFile),
		"requestheader-client-ca-file":     given(c.RequestHeaderClientCAFile),
		"service-account-signing-key-file": given(c.ServiceAccountSigningKeyFile),
		"service-account-key-file":         given(c.ServiceAccountKeyFiles...),
	}
}

// differingSettings returns an error that names all flags that differ. It ignores a setting that only one side has,
// because that setting belongs to another release.
func differingSettings(there, here map[string]string) error {
	var errs []error
	for flag, value := range here {
		other, known := there[flag]
		if known && other != value {
			errs = append(errs, fmt.Errorf("--%s is %q in the cluster, and %q here; give all members the same", flag, other, value))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// resetCluster makes this member the only one of a new cluster.
func (a *Aggregator) resetCluster(ctx context.Context) error {
	c := a.cfg
	if err := pki.PrepareDataDir(c.DataDir, privateFiles...); err != nil {
		return err
	}
	member, known, err := c.findMember()
	switch {
	case err != nil:
		return err
	case known == nil:
		return fmt.Errorf("--cluster-reset: %s has no member of a cluster", c.DataDir)
	case known.Joining:
		return fmt.Errorf("--cluster-reset: the member in %s has never been a voting one, and may lack data; reset another member", c.DataDir)
	}
	// Keep the previous address, because the certificate is for it.
	member.Address = known.Address
	keys, err := pki.ReadDirectory(c.pkiDir())
	if err != nil {
		return err
	}
	if err := keys.EnsureEtcd(member.Name, []net.IP{net.ParseIP(hostOf(member.Address))}); err != nil {
		return err
	}
	member.CAFile, member.CertFile, member.KeyFile = keys.EtcdFiles()
	before, err := store.Reset(ctx, store.Config{DataDir: c.etcdDir(), Prefix: c.EtcdPrefix, QuotaBytes: c.Storage.QuotaBackendBytes, Cluster: member, Logger: a.log.Named("store")})
	if err != nil {
		return fmt.Errorf("--cluster-reset: %w", err)
	}
	a.log.Info("cluster reset; restart this front door with --cluster-init and without --cluster-reset, then remove the directory etcd in --data-dir of every other front door and start it with --join and a new token",
		zap.String("files-of-before", before))
	return nil
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// sharesEtcd reports whether other replicas can use the same etcd.
func (h *parts) sharesEtcd() bool { return len(h.cfg.EtcdServers) > 0 || h.member != nil }

// wireCluster builds the server through which other front doors join. It leaves h.joins nil unless etcd is one of
// several members.
func (h *parts) wireCluster() {
	if h.member == nil {
		return
	}
	h.joinTokens = cluster.NewTokens(h.store, h.keys.Cluster)
	h.joins = cluster.NewServer(cluster.ServerConfig{
		Authority: h.keys.Cluster, Tokens: h.joinTokens, Etcd: h.store, Address: h.member.Address, Versions: h.clusterVersions, HandOver: h.handOver,
		Logger: h.log.Named("cluster"),
	})
	h.clusterAdmin = cluster.NewAdmin(h.store, h.joinTokens, h.joinURL(), h.log.Named("cluster"))
}

// clusterVersions returns the versions that a joining front door must have. While members are upgraded, the cluster
// has the older version of etcd.
func (h *parts) clusterVersions() cluster.Versions {
	v := joinVersions()
	if etcd := h.store.EtcdVersion(); etcd != "" {
		v.Etcd = etcd
	}
	return v
}

// handOver returns the files and settings for a joining front door.
func (h *parts) handOver() (cluster.HandOver, error) {
	files, err := pki.ReadShared(h.cfg.pkiDir())
	if err != nil {
		return cluster.HandOver{}, err
	}
	handed := cluster.HandOver{Files: files, Settings: h.cfg.sharedSettings()}
	if file := h.cfg.Storage.EncryptionConfigFile; file != "" {
		if handed.Encryption, err = os.ReadFile(file); err != nil {
			return cluster.HandOver{}, fmt.Errorf("--encryption-provider-config: %w", err)
		}
	}
	return handed, nil
}

// joinTokenTimeout limits the attempts to create the first token.
const joinTokenTimeout = time.Minute

// firstToken writes a token for joining front doors into the data directory, once.
func (h *parts) firstToken() run.Member {
	return run.Member{Name: "join token", Run: func(ctx context.Context) error {
		if err := h.makeFirstToken(ctx); err != nil && ctx.Err() == nil {
			h.log.Warn("failed to create a join token; create one with `aggregator token create`", zap.Error(err))
		}
		<-ctx.Done()
		return nil
	}}
}

func (h *parts) makeFirstToken(ctx context.Context) error {
	file := h.cfg.joinTokenFile()
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTokenTimeout)
	defer cancel()
	token, info, err := h.joinTokens.Create(ctx, cluster.DefaultTTL, "made at the first start with --cluster-init")
	if err != nil {
		return err
	}
	if err := pki.WriteFile(file, []byte(token.String()+"\n"), 0o600); err != nil {
		return err
	}
	h.log.Info("join token created; copy it to the machines of the joining front doors", zap.String("token-file", file), zap.Time("expires", info.Expires),
		zap.String("command", "aggregator serve --join "+h.joinURL()+" --join-token-file FILE"))
	return nil
}

// joinURL returns the URL at which other machines reach this front door.
func (h *parts) joinURL() string {
	u := url.URL{Scheme: "https", Host: net.JoinHostPort(h.cfg.peerHost(), strconv.Itoa(int(h.port())))}
	return u.String()
}

// clusterHandler returns a nil interface if h.clusterAdmin is nil, so that its paths are not served.
func (h *parts) clusterHandler() http.Handler {
	if h.clusterAdmin == nil {
		return nil
	}
	return h.clusterAdmin
}
