package frontdoor

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kube-openapi/pkg/common"

	"portico.dev/internal/aggregator"
	"portico.dev/internal/coreapi/openapidocs/build"
	"portico.dev/internal/run"
)

// Config is what a front door is made of. The zero value of each field is its default; DataDir is required, except with
// Storage.InMemory.
type Config struct {
	// DataDir holds keys and certificates, and the embedded etcd. It is created with mode 0700. Default with Storage.InMemory: a
	// temporary directory.
	DataDir string
	// Storage is where objects are stored. Default: an etcd in this process, in DataDir.
	Storage Storage

	// BindAddress and Port are where the front door listens. Port 0 picks a free one. Default address: 127.0.0.1.
	BindAddress string
	Port        int
	// Listener is a TCP listener to serve instead. Run closes it.
	Listener net.Listener
	// NoListener serves nothing by itself: requests come through Handler and in-process clients.
	NoListener bool

	// ServedGroups are the built-in API groups that clients see, "" for core. The others are answered 404, are in no document, and
	// may be served by extension servers; inside they work: LocalConfig reaches them, for Services of extension servers and
	// roles of users. apiregistration.k8s.io is always served. Nil: all groups; empty: none but that.
	ServedGroups []string
	// Groups are further local groups, with kinds of the program's own.
	Groups []Group
	// Definitions are the OpenAPI definitions of the types in Groups, as openapi-gen of k8s.io/kube-openapi writes them. Required with
	// Groups: they are also the schemas of server-side apply.
	Definitions common.GetOpenAPIDefinitions

	// TokenAuthenticators and Authenticators identify the users of requests whose credentials the front door does not know, in order.
	TokenAuthenticators []authenticator.Token
	Authenticators      []authenticator.Request
	// Authorizers are asked before RBAC (or what Flags say), in order. A decision of Allow or Deny is final.
	Authorizers []authorizer.Authorizer
	// Admission are admission plugins that run after the built-in ones, on writes to local groups.
	Admission []AdmissionPlugin
	// Handlers serve further paths, outside of the API, to users who are authorized for the path (nonResourceURLs). A path that
	// ends with a slash serves all below it too.
	Handlers map[string]http.Handler
	// Components start, in order, before the listener accepts connections, and stop after it has closed them, in reverse.
	Components []Component

	// NamespaceDeletionDelay passes between the deletion of a namespace and that of its contents: extension servers learn of the
	// deletion by a watch, and refuse creates only then. Default a second.
	NamespaceDeletionDelay time.Duration

	// Flags are further settings, as flags of the command "aggregator serve": "--audit-log-path=-". Fields of Config take precedence.
	Flags []string
	// Logger gets the log. Default: nothing is logged.
	Logger *zap.Logger
}

// Storage is where objects are stored.
type Storage struct {
	// InMemory keeps objects for the life of the process only: nothing is forced to disk, and Run removes it. It makes Restore and
	// Advance work.
	InMemory bool
	// EtcdServers are URLs of an external etcd. CAFile, CertFile and KeyFile are PEM files for it.
	EtcdServers               []string
	CAFile, CertFile, KeyFile string
	// Prefix of the keys of objects. Default /registry.
	Prefix string
}

// AdmissionPlugin is an admission plugin and its name. The plugin implements admission.MutationInterface,
// admission.ValidationInterface, or both.
type AdmissionPlugin = aggregator.AdmissionPlugin

// Component is a part of the program that lives while the front door does.
type Component struct {
	// Name is in errors.
	Name string
	// Run blocks until ctx ends. When it returns earlier the front door stops with its error.
	Run func(ctx context.Context) error
	// Ready is closed when the next component may start. Nil: at once.
	Ready <-chan struct{}
}

// settings are those of the program aggregator.
func (c *Config) settings() (aggregator.Config, error) {
	s := aggregator.Default()
	s.DataDir, s.SecurePort, s.AccessLog = "", 0, false
	if err := applyFlags(&s, c.Flags); err != nil {
		return s, err
	}
	if c.DataDir != "" {
		s.DataDir = c.DataDir
	}
	if s.DataDir == "" && !c.Storage.InMemory {
		return s, fmt.Errorf("a data directory is needed: set DataDir, or Storage.InMemory")
	}
	if c.BindAddress != "" {
		s.BindAddress = c.BindAddress
	}
	if c.Port != 0 {
		s.SecurePort = c.Port
	}
	if st := c.Storage; len(st.EtcdServers) > 0 {
		s.EtcdServers, s.EtcdCAFile, s.EtcdCertFile, s.EtcdKeyFile = st.EtcdServers, st.CAFile, st.CertFile, st.KeyFile
	}
	if c.Storage.Prefix != "" {
		s.EtcdPrefix = c.Storage.Prefix
	}
	if len(c.Groups) > 0 && c.Definitions == nil {
		return s, fmt.Errorf("group-version %s: Definitions are needed with Groups; openapi-gen of k8s.io/kube-openapi writes them", c.Groups[0].Version)
	}
	s.Embedded = aggregator.Embedded{
		Groups: c.Groups, Definitions: c.Definitions, BuildDocument: build.Document, Hidden: c.hidden(),
		Tokens: c.TokenAuthenticators, Requests: c.Authenticators, Authorizers: c.Authorizers, Admission: c.Admission, Handlers: c.Handlers,
		Listener: c.Listener, NoListener: c.NoListener, NoServiceManager: true, NamespaceDeletionDelay: c.NamespaceDeletionDelay, Volatile: c.Storage.InMemory,
	}
	for _, m := range c.Components {
		s.Embedded.Members = append(s.Embedded.Members, run.Member{Name: m.Name, Run: m.Run, Ready: m.Ready})
	}
	return s, c.checkServedGroups()
}

// checkServedGroups finds names that no built-in group has.
func (c *Config) checkServedGroups() error {
	all := aggregator.BuiltInGroups()
	for _, name := range c.ServedGroups {
		if !slices.Contains(all, name) {
			return fmt.Errorf("ServedGroups: there is no built-in group %q; there are %s, and \"\" for core", name, strings.Join(all[1:], ", "))
		}
	}
	return nil
}

func (c *Config) hidden() func(schema.GroupVersion) bool {
	if c.ServedGroups == nil {
		return nil
	}
	shown := slices.Clone(c.ServedGroups)
	for _, g := range c.Groups {
		shown = append(shown, g.Version.Group)
	}
	return func(gv schema.GroupVersion) bool { return !slices.Contains(shown, gv.Group) }
}
