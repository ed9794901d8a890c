package programs

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// The Prometheus server of the e2e tests, and the checksum of its module.
const (
	prometheusModule = "github.com/prometheus/prometheus"
	prometheusAt     = "v0.315.0"
	prometheusSum    = "h1:sFGZWmC2Hk9N1NBJGCnXYZb5hyLCq8yuAMoEjLAg6ac="
)

// prometheus builds a program of Prometheus in its own module, with the versions and checksums of the release. A module
// that requires it would need the SDKs of thirty clouds for `go mod tidy`: 2 GB. The tag excludes service discovery in
// these clouds.
func prometheus(command string) recipe {
	return func(b *builder, to string) error {
		dir, err := fetchPrometheus()
		if err != nil {
			return err
		}
		return b.build(dir, []string{"GOFLAGS="}, "-tags", "remove_all_sd", "-ldflags", "-s -w", "-o", to, "./cmd/"+command)
	}
}

// fetchPrometheus returns the directory of the module. It does not use the checksum database, because the checksum is
// known.
func fetchPrometheus() (string, error) {
	fetch := exec.Command("go", "mod", "download", "-json", prometheusModule+"@"+prometheusAt)
	fetch.Dir, fetch.Env = os.TempDir(), append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GONOSUMDB="+prometheusModule)
	out, err := fetch.Output()
	var module struct{ Dir, Sum, Error string }
	if json.Unmarshal(out, &module) == nil && module.Error != "" {
		err = errors.New(module.Error)
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("download %s %s, which needs a Go module proxy: %w", prometheusModule, prometheusAt, err)
	case module.Sum != prometheusSum:
		return "", fmt.Errorf("%s %s adds up to %s, want %s", prometheusModule, prometheusAt, module.Sum, prometheusSum)
	}
	return module.Dir, nil
}
