package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"portico.dev/internal/aggregator"
)

// parse reads a command line as the program does, and returns the notices about ignored flags, one line each.
func parse(t *testing.T, args ...string) (*options, []string, error) {
	t.Helper()
	o, fs := newOptions(), pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	o.addFlags(fs)
	if err := fs.Parse(args); err != nil {
		return nil, nil, err
	}
	var notices []string
	err := o.adapt(func(format string, args ...any) { notices = append(notices, fmt.Sprintf(format, args...)) })
	if err == nil {
		err = o.config.Validate()
	}
	return o, notices, err
}

// The command line of controller-runtime v0.25.
func TestEnvtestFlagsAreAccepted(t *testing.T) {
	o, notices, err := parse(t, "--allow-privileged=true", "--authorization-mode=RBAC", "--bind-address=127.0.0.1", "--cert-dir=c",
		"--client-ca-file=c/client-cert-auth-ca.crt", "--disable-admission-plugins=ServiceAccount", "--etcd-servers=http://127.0.0.1:2379",
		"--secure-port=7443", "--service-account-issuer=https://127.0.0.1:7443/", "--service-account-key-file=c/sa-signer.crt",
		"--service-account-signing-key-file=c/sa-signer.key", "--service-cluster-ip-range=10.0.0.0/24")
	if err != nil || len(notices) > 0 {
		t.Fatalf("parse of envtest's flags = %v %q, want no error and no notices", err, notices)
	}
	c := o.config
	if o.certDir != "c" || c.SecurePort != 7443 || !slices.Equal(c.EtcdServers, []string{"http://127.0.0.1:2379"}) || len(c.Controllers) > 0 || c.Controllers == nil {
		t.Errorf("options = %+v, want the values of the flags", o)
	}
}

func TestKubeAPIServerFlagsAreMappedOrReported(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		notice string
		err    string
		check  func(aggregator.Config) bool
	}{
		"a switch without a meaning": {args: []string{"--enable-garbage-collector"}, notice: "--enable-garbage-collector is accepted and has no effect"},
		"a value without a meaning":  {args: []string{"--feature-gates", "A=true,B=false"}, notice: "--feature-gates is accepted and has no effect"},
		"given twice":                {args: []string{"--feature-gates=A=true", "--feature-gates=B=true"}, notice: "--feature-gates is accepted"},
		"one that nobody knows":      {args: []string{"--insecure-port=0"}, err: "unknown flag: --insecure-port"},
		"a directory of the server":  {args: []string{"--data-dir=d"}, err: "use --cert-dir"},
		"nodes, as kubeadm starts it": {args: []string{"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--enable-bootstrap-token-auth=true"}, check: func(c aggregator.Config) bool {
			return slices.Equal(c.Authorization.Modes, []string{"Node", "RBAC"}) && slices.Equal(c.Admission.Enable, []string{"NodeRestriction"}) && c.Authentication.BootstrapTokens
		}},
		"a plugin that is not here":            {args: []string{"--enable-admission-plugins=AlwaysPullImages,PodSecurity"}, notice: "AlwaysPullImages has no effect", check: func(c aggregator.Config) bool { return slices.Equal(c.Admission.Enable, []string{"PodSecurity"}) }},
		"a plugin that nobody has":             {args: []string{"--enable-admission-plugins=Podsecurity"}, err: "no plugin"},
		"an address that cannot be advertised": {args: []string{"--advertise-address=127.0.0.1"}, notice: "--advertise-address=127.0.0.1 has no effect", check: func(c aggregator.Config) bool { return c.Services.AdvertiseAddress == "" }},
		"all controllers":                      {args: []string{"--controllers=*"}, check: func(c aggregator.Config) bool { return slices.Equal(c.Controllers, []string{"*"}) }},
		"a static token file":                  {args: []string{"--token-auth-file=f"}, check: func(c aggregator.Config) bool { return c.TokenAuthFile == "f" }},
	} {
		t.Run(name, func(t *testing.T) {
			o, notices, err := parse(t, c.args...)
			said := strings.Join(notices, "\n")
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Fatalf("parse error = %v, want %q", err, c.err)
			}
			if err != nil {
				return
			}
			if (c.notice == "") != (said == "") || !strings.Contains(said, c.notice) || len(notices) > 1 {
				t.Errorf("notices of parse = %q, want %q", said, c.notice)
			}
			if c.check != nil && !c.check(o.config) {
				t.Errorf("config = %+v, want the values of the flags", o.config)
			}
		})
	}
}

func TestLogging(t *testing.T) {
	for args, want := range map[string]string{
		"": "warn", "-v=0": "warn", "--v=2": "info", "-v 4": "debug", "--v=5 --log-level=error": "error", "--logging-format=text": "warn",
	} {
		o, notices, err := parse(t, strings.Fields(args)...)
		if err != nil || len(notices) > 0 {
			t.Errorf("parse(%s) = %v %q, want no error and no notices", args, err, notices)
			continue
		}
		if o.logs.Level != want || o.logs.Format != "console" {
			t.Errorf("logging options of %s = %+v, want level %s", args, o.logs, want)
		}
	}
}

func TestServingPair(t *testing.T) {
	dir := t.TempDir()
	made, err := servingPair(dir, "", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, "apiserver.crt"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := servingPair(dir, "", "127.0.0.1")
	after, readErr := os.ReadFile(again.certFile)
	if err != nil || readErr != nil || made != again || !bytes.Equal(before, after) {
		t.Errorf("second servingPair = %v %v, want the existing certificate", err, readErr)
	}
	if err := os.Remove(made.keyFile); err != nil {
		t.Fatal(err)
	}
	if _, err := servingPair(dir, "", "127.0.0.1"); err == nil || !strings.Contains(err.Error(), "add the other") {
		t.Errorf("servingPair without the key: error = %v, want \"add the other\"", err)
	}
}
