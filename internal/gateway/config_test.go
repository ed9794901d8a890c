package gateway

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestInvalidSettingsAreReportedWithTheirFlag(t *testing.T) {
	for args, want := range map[string]string{
		"": "",
		"--shutdown-grace=1s --zone=a --max-requests-inflight=-1 --goaway-chance=0.02": "",
		"--bind-address=localhost":                `--bind-address: "localhost" is not an IP address`,
		"--secure-port=65536":                     "--secure-port: 65536 is not a port",
		"--goaway-chance=0.5":                     "--goaway-chance: 0.5 is not from 0 to 0.02",
		"--request-timeout=0s":                    "--request-timeout: 0s is not positive",
		"--shutdown-grace=0s":                     "--shutdown-grace: 0s is not positive",
		"--shutdown-delay-duration=-1s":           "--shutdown-delay-duration: -1s is negative",
		"--memory-limit=much":                     `--memory-limit: "much" is not a number of bytes`,
		"--memory-limit=64Mi":                     `--memory-limit: "64Mi" is too little`,
		"--service-port=0":                        "--service-port: 0 is not a port",
		"--service=a_b":                           `--service: "a_b"`,
		"--metrics-bind-address=localhost":        `--metrics-bind-address: "localhost" is not host:port`,
		"--memory-limit=much --shutdown-grace=0s": "--shutdown-grace: 0s is not positive\n--memory-limit: ",
	} {
		config := Default()
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		config.AddFlags(fs)
		if err := fs.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		err := config.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: Validate = %v, want %q", args, err, want)
		}
	}
}

func TestServingFlagsHaveExpectedDefaults(t *testing.T) {
	config := Default()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.AddFlags(fs)
	for name, want := range map[string]string{
		"bind-address": "", "secure-port": "8443", "enable-aggregator-routing": "true", "zone": "", "egress-selector-config-file": "",
		"max-requests-inflight": "400", "max-mutating-requests-inflight": "200", "request-timeout": "1m0s", "goaway-chance": "0.001",
		"shutdown-delay-duration": "5s", "shutdown-grace": "20s", "access-log": "false",
		"access-log-maxage": "0", "access-log-maxbackup": "0", "access-log-maxsize": "100", "access-log-compress": "false", "memory-limit": "", "http-engine": "portico", "backend-engine": "portico",
	} {
		if f := fs.Lookup(name); f == nil || f.DefValue != want {
			t.Errorf("--%s: flag = %+v, want default %q", name, f, want)
		}
	}
}
