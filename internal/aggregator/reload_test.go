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

	"k8s.io/client-go/tools/clientcmd"
	cliflag "k8s.io/component-base/cli/flag"

	"portico.dev/internal/pki"
)

const (
	auditsAll  = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"
	auditsNone = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None}]\n"
)

// A reload reads the audit policy again. Invalid settings change nothing and set a metric.
func TestReloadAppliesAuditPolicy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(policy, auditsAll)
	settings := Default()
	settings.Audit.PolicyFile, settings.Audit.LogPath = policy, log
	front, client, stop := openFront(t, filepath.Join(dir, "data"), func(c *Config) {
		c.Audit.PolicyFile, c.Audit.LogPath, c.Audit.LogMode = policy, log, "blocking"
	})
	read := func() (Config, error) { return settings, nil }
	ask := func(name string) {
		t.Helper()
		if code, _ := get(t, client, "/api/v1/namespaces/"+name); code != http.StatusNotFound {
			t.Fatalf("status of the GET of a namespace that does not exist = %d, want 404", code)
		}
	}
	audited := func(name string) bool {
		t.Helper()
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), "/namespaces/"+name)
	}
	awaitAudited := func(name string) {
		t.Helper()
		ask(name)
		deadline := time.Now().Add(time.Minute)
		for tick := time.Tick(10 * time.Millisecond); !audited(name); <-tick { // the response may be there before the event
			if time.Now().After(deadline) {
				t.Fatalf("no audit event of %s within a minute, want one", name)
			}
		}
	}
	metric := func(want string) {
		t.Helper()
		if _, text := get(t, client, "/metrics"); !strings.Contains(text, "portico_config_last_reload_successful "+want+"\n") {
			t.Errorf("/metrics has another value of portico_config_last_reload_successful, want %s", want)
		}
	}
	awaitAudited("first")
	metric("1")
	write(policy, auditsNone)
	awaitAudited("second") // the new policy is not loaded yet
	if err := front.Reload(read); err != nil {
		t.Errorf("Reload with another policy failed: %v, want no error", err)
	}
	ask("third")
	metric("1")

	write(policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Everything}]\n")
	if err := front.Reload(read); err == nil || !strings.Contains(err.Error(), "--audit-policy-file") {
		t.Errorf("Reload with an invalid policy: error = %v, want one that names --audit-policy-file", err)
	}
	ask("fourth")
	metric("0")
	write(policy, auditsAll)
	settings.SecurePort = -1
	if err := front.Reload(read); err == nil || !strings.Contains(err.Error(), "--secure-port") {
		t.Errorf("Reload with an invalid port: error = %v, want one that names --secure-port", err)
	}
	ask("fifth")
	if err := front.Reload(func() (Config, error) { return Config{}, errors.New("no such file") }); err == nil {
		t.Error("Reload with unreadable settings returned no error, want one")
	}
	ask("sixth")
	settings.SecurePort = 0
	if err := front.Reload(read); err != nil {
		t.Errorf("Reload with valid settings failed: %v, want no error", err)
	}
	awaitAudited("seventh")
	metric("1")
	if err := stop(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"third", "fourth", "fifth", "sixth"} {
		if audited(name) {
			t.Errorf("the audit log has an event of %s, want none", name)
		}
	}
	if err := front.Reload(read); err == nil {
		t.Error("Reload of a stopped front door returned no error, want one")
	}
}

// CopyFlags copies flags of every type unchanged.
func TestCopyFlagsKeepsFlagsOfEveryType(t *testing.T) {
	from, to := Default(), Default()
	given, into := from.NamedFlags(), to.NamedFlags()
	for name, value := range map[string]string{
		"secure-port": "7443", "cors-allowed-origins": "a,b", "runtime-config": "batch/v1=false,apps/v1=true", "shutdown-delay-duration": "3s",
		"profiling": "false", "goaway-chance": "0.01", "http-engine": "library",
	} {
		if err := lookUp(given, name).Value.Set(value); err != nil {
			t.Fatal(err)
		}
	}
	different, err := DifferentFlags(given, into)
	if err != nil || len(different) != 7 {
		t.Errorf("DifferentFlags = %d flags, %v; want 7 and no error", len(different), err)
	}
	if err := CopyFlags(into, different); err != nil {
		t.Fatal(err)
	}
	if left, err := DifferentFlags(given, into); err != nil || len(left) > 0 {
		t.Errorf("DifferentFlags after CopyFlags = %v, %v; want none and no error", left, err)
	}
	if to.SecurePort != 7443 || !slices.Equal(to.CORSAllowedOrigins, []string{"a", "b"}) || to.RuntimeConfig["apps/v1"] != "true" || to.ShutdownDelay != 3*time.Second {
		t.Errorf("settings after CopyFlags = %+v, want the values of the other set", to)
	}
	if err := CopyFlags(cliflag.NamedFlagSets{}, different); err == nil {
		t.Error("CopyFlags into an empty set returned no error, want one")
	}
}

// Authorities that are replaced in the directory of a front door that runs are in use at once, and its kubeconfig has them.
func TestReplacedAuthoritiesAreUsedWithoutRestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	front, _, stop := openFront(t, dir)
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	before := front.keys.Cluster().Certificate
	for _, step := range []pki.Step{pki.Prepare, pki.Switch, pki.Finish} {
		deadline := time.Now().Add(time.Minute)
		for tick := time.Tick(20 * time.Millisecond); ; <-tick { // Finish waits until the front door has renewed every certificate
			_, err := pki.Rotate(filepath.Join(dir, "pki"), step, pki.RotationAuthorities(), false)
			if err == nil {
				break
			}
			if step != pki.Finish || time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
		front.wake.Wake()
		accepted := map[pki.Step]int{pki.Prepare: 2, pki.Switch: 2, pki.Finish: 1}[step]
		for tick := time.Tick(20 * time.Millisecond); ; <-tick {
			config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "admin.kubeconfig"))
			if err != nil {
				t.Fatal(err)
			}
			certs, err := pki.ParseBundle(config.CAData)
			if err == nil && len(certs) == accepted && front.keys.Cluster().Certificate.Equal(before) == (step == pki.Prepare) {
				if code, _ := get(t, config, "/api/v1/namespaces/default"); code == http.StatusOK {
					break
				}
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: kubeconfig with %d CAs, %v; want it renewed within the deadline", step, len(certs), err)
			}
		}
	}
}
