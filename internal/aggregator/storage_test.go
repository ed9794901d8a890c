package aggregator

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestInvalidStorageSettingsAreRejected(t *testing.T) {
	for name, c := range map[string]struct{ args, refused string }{
		"everything given": {"--storage-media-type application/json --etcd-compaction-interval 1m --etcd-quota-backend-bytes 100000000" +
			" --encryption-provider-config f --encryption-provider-config-automatic-reload", ""},
		"YAML, and compaction by somebody else": {"--storage-media-type application/yaml --etcd-compaction-interval 0", ""},
		"a form that does not exist":            {"--storage-media-type application/cbor", "--storage-media-type: \"application/cbor\" is none of"},
		"a negative interval":                   {"--etcd-compaction-interval -1s", "--etcd-compaction-interval"},
		"too little room":                       {"--etcd-quota-backend-bytes 1000", "--etcd-quota-backend-bytes: 1000 is too little"},
		"a quota of an etcd elsewhere":          {"--etcd-servers https://a:2379 --etcd-quota-backend-bytes 5000000", "--etcd-quota-backend-bytes: belongs to the embedded etcd"},
		"nothing to follow":                     {"--encryption-provider-config-automatic-reload", "--encryption-provider-config-automatic-reload: is only of use"},
	} {
		t.Run(name, func(t *testing.T) {
			config := Default()
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			config.AddFlags(fs)
			if err := fs.Parse(strings.Fields(c.args)); err != nil {
				t.Fatal(err)
			}
			err := config.Validate()
			if c.refused == "" && err != nil || c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
				t.Errorf("Validate(%q) error = %v, want %q", c.args, err, c.refused)
			}
		})
	}
}
