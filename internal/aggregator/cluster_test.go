package aggregator

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/internal/pki"
	"portico.dev/internal/replicas/cluster"
	"portico.dev/internal/store"
)

// The data directory decides. A member remains a member after a restart without its flags, and the last member can become a
// single replica again.
func TestDataDirectoryDecidesClusterMembership(t *testing.T) {
	for name, c := range map[string]struct {
		file   string
		change func(*Config)
		member bool
	}{
		"one that runs alone":              {"", func(*Config) {}, false},
		"the first":                        {"", func(c *Config) { c.Cluster.Init = true }, true},
		"one that joins":                   {"", func(c *Config) { c.Cluster.Join = "https://a:1" }, true},
		"one of several":                   {`{"name":"a","address":"192.0.2.1:2380","others":["192.0.2.2:2380"]}`, func(*Config) {}, true},
		"the last one":                     {`{"name":"a","address":"192.0.2.1:2380"}`, func(*Config) {}, false},
		"the last one, open for others":    {`{"name":"a","address":"192.0.2.1:2380"}`, func(c *Config) { c.Cluster.Init = true }, true},
		"one that was cut short":           {`{"name":"a","address":"192.0.2.1:2380","joining":true}`, func(*Config) {}, true},
		"one that uses another etcd today": {`{"name":"a","address":"192.0.2.1:2380","others":["192.0.2.2:2380"]}`, func(c *Config) { c.EtcdServers = []string{"https://a:1"} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			config := Default()
			config.DataDir = t.TempDir()
			c.change(&config)
			if c.file != "" {
				if err := errors.Join(os.Mkdir(config.etcdDir(), 0o700), os.WriteFile(filepath.Join(config.etcdDir(), "cluster.json"), []byte(c.file), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			member, _, err := config.findMember()
			if err != nil || (member != nil) != c.member {
				t.Fatalf("findMember = %+v, %v; want a member: %v", member, err, c.member)
			}
			if c.file != "" && member != nil && member.Name != "a" {
				t.Errorf("name of the member = %q, want a", member.Name)
			}
		})
	}
}

func TestDifferingMemberSettingsAreRejected(t *testing.T) {
	here, there := Default(), Default()
	if err := differingSettings(there.sharedSettings(), here.sharedSettings()); err != nil {
		t.Errorf("differingSettings of equal settings = %v, want no error", err)
	}
	here.EtcdPrefix, here.ClientCAFile = "/other", "ca.crt"
	err := differingSettings(there.sharedSettings(), here.sharedSettings())
	for _, want := range []string{`--etcd-prefix is "/registry" in the cluster, and "/other" here`, `--client-ca-file is "" in the cluster, and "a file" here`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("differingSettings error = %v, want %s", err, want)
		}
	}
	if err := differingSettings(map[string]string{}, here.sharedSettings()); err != nil {
		t.Errorf("differingSettings of a cluster without recorded settings = %v, want no error", err)
	}
}

func TestJoinWithoutTokenOrWithExistingDataIsRejected(t *testing.T) {
	config := Default()
	config.DataDir = t.TempDir()
	config.Cluster.Join = "https://192.0.2.1:6443"
	if _, err := config.prepareCluster(t.Context(), zap.NewNop()); err == nil || !strings.Contains(err.Error(), "aggregator token create") {
		t.Errorf("prepareCluster without a token: error = %v, want one that names aggregator token create", err)
	}
	if err := os.MkdirAll(filepath.Join(config.etcdDir(), "member", "wal"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(config.etcdDir(), "member", "wal", "0000000000000000-0000000000000000.wal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.prepareCluster(t.Context(), zap.NewNop()); err == nil || !strings.Contains(err.Error(), "data of its own") {
		t.Errorf("prepareCluster with existing data: error = %v, want one that contains \"data of its own\"", err)
	}
	if _, err := MembersIn(config.DataDir, zap.NewNop()); !errors.Is(err, store.ErrSingle) {
		t.Errorf("MembersIn a directory without a cluster = %v, want ErrSingle", err)
	}
}

// E23: a user who may read everything and write all objects may neither create tokens nor change members. A joining replica
// reaches only the join endpoints.
func TestE23ClusterChangesNeedDedicatedRights(t *testing.T) {
	t.Parallel()
	port, dir := fixedPort(t), t.TempDir()
	admin, stop := open(t, dir, func(c *Config) { c.Cluster.Init, c.Cluster.PeerPort = true, port })
	client := kubernetes.NewForConfigOrDie(admin)
	for name, rule := range map[string]rbacv1.PolicyRule{
		"reader":  {NonResourceURLs: []string{"*"}, Verbs: []string{"get", "head"}},
		"objects": {APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		"tokens":  {NonResourceURLs: []string{"/cluster/tokens"}, Verbs: []string{"post"}},
	} {
		if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
		}
		if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	users := map[string]*rest.Config{"masters": admin, "anonymous": rest.AnonymousClientConfig(admin)}
	for _, name := range []string{"reader", "objects", "tokens", "nobody"} {
		text, err := Kubeconfig(dir, admin.Host, "", name, nil, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if users[name], err = clientcmd.RESTConfigFromKubeConfig(text); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(name, method, path string) int {
		r, err := http.NewRequestWithContext(t.Context(), method, admin.Host+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, _ := do(t, users[name], r)
		return resp.StatusCode
	}
	allowed := map[string][]string{
		"masters": {"GET /cluster/members", "GET /cluster/tokens", "POST /cluster/tokens", "DELETE /cluster/members/x", "POST /cluster/members/x/promote", "DELETE /cluster/tokens/abcdefgh"},
		"reader":  {"GET /cluster/members", "GET /cluster/tokens"},
		"tokens":  {"POST /cluster/tokens"},
	}
	await(t.Context(), t, "the rights that were given", func() bool { // the front door sees bindings through an informer
		return ask("reader", http.MethodGet, "/cluster/members") == http.StatusOK && ask("tokens", http.MethodPost, "/cluster/tokens") != http.StatusForbidden &&
			ask("objects", http.MethodGet, "/api/v1/secrets") == http.StatusOK
	})
	for name := range users {
		for _, request := range allowed["masters"] {
			method, path, _ := strings.Cut(request, " ")
			code := ask(name, method, path)
			if refused := code == http.StatusForbidden || code == http.StatusUnauthorized; refused == slices.Contains(allowed[name], request) {
				t.Errorf("user %s, request %s: status = %d, want 401 or 403 unless the request is one of %q", name, request, code, allowed[name])
			}
		}
	}
	await(t.Context(), t, "the first token", func() bool {
		_, err := cluster.ReadToken(filepath.Join(dir, "join-token"))
		return err == nil
	})
	token, err := cluster.ReadToken(filepath.Join(dir, "join-token"))
	if err != nil {
		t.Fatal(err)
	}
	joining := &http.Client{Transport: &http.Transport{TLSClientConfig: pki.AuthorityPinnedConfig(cluster.ServerName, token.CAHash), DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := joining.Get(admin.Host + "/version") // which every client may get under another server name
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("status of GET /version under the server name for joining = %d, want 404", resp.StatusCode)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
