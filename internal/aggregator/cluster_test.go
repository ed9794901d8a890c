package aggregator

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"portico.dev/internal/store"
)

// What the data directory says counts, so that a member is one after a restart without its flags, and the last one is none any more.
func TestWhoIsAMemberOfACluster(t *testing.T) {
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
				t.Fatalf("member: %+v, %v", member, err)
			}
			if c.file != "" && member != nil && member.Name != "a" {
				t.Errorf("its name is %q now", member.Name)
			}
		})
	}
}

func TestMembersAgreeInTheirSettings(t *testing.T) {
	here, there := Default(), Default()
	if err := differingSettings(there.sharedSettings(), here.sharedSettings()); err != nil {
		t.Errorf("the same: %v", err)
	}
	here.EtcdPrefix, here.ClientCAFile = "/other", "ca.crt"
	err := differingSettings(there.sharedSettings(), here.sharedSettings())
	for _, want := range []string{`--etcd-prefix is "/registry" in the cluster, and "/other" here`, `--client-ca-file is "" in the cluster, and "a file" here`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := differingSettings(map[string]string{}, here.sharedSettings()); err != nil {
		t.Errorf("a cluster of a release that knows no settings: %v", err)
	}
}

func TestWhatCannotJoin(t *testing.T) {
	config := Default()
	config.DataDir = t.TempDir()
	config.Cluster.Join = "https://192.0.2.1:6443"
	if _, err := config.prepareCluster(t.Context(), zap.NewNop()); err == nil || !strings.Contains(err.Error(), "aggregator token create") {
		t.Errorf("without a token: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(config.etcdDir(), "member", "wal"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(config.etcdDir(), "member", "wal", "0000000000000000-0000000000000000.wal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.prepareCluster(t.Context(), zap.NewNop()); err == nil || !strings.Contains(err.Error(), "data of its own") {
		t.Errorf("with data of its own: %v", err)
	}
	if _, err := MembersIn(config.DataDir, zap.NewNop()); !errors.Is(err, store.ErrSingle) {
		t.Errorf("members of one that runs alone: %v", err)
	}
}
