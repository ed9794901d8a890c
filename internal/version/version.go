// Package version provides the version of this build.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	apiversion "k8s.io/apimachinery/pkg/version"
)

// Portico is this project's version. Releases set it with -ldflags "-X portico.dev/internal/version.Portico=v1.2.3".
var Portico = "v0.1.0"

// Commit and Date are set by releases, like Portico. If empty, the values recorded by the go command are used.
var Commit, Date string

// Program is the command name used in messages: "aggregator" or "kubectl portico".
var Program = "aggregator"

// The Kubernetes version of the served API. It changes together with the k8s.io modules in go.mod: v0.37.2 there is v1.37.2
// here. Clients compare it with their version to warn of skew.
const (
	kubernetesMajor   = "1"
	kubernetesMinor   = "37"
	kubernetesVersion = "v1.37.2"
)

// Unknown is the commit of a build for which the go command has not recorded one.
const Unknown = "unknown"

// Text returns the output of the version commands of a program, in one line.
func Text(program string) string {
	info := Get()
	commit := info.GitCommit
	switch {
	case commit == Unknown:
		commit = "unknown (go run records none, go build in a clone does)"
	case info.GitTreeState == "dirty":
		commit += " with changes"
	}
	return fmt.Sprintf("%s %s (Kubernetes %s, %s, %s, commit %s)", program, Portico, kubernetesVersion, info.GoVersion, info.Platform, commit)
}

// Get returns the response of /version and the data of the version commands.
func Get() apiversion.Info {
	info := apiversion.Info{
		Major:      kubernetesMajor,
		Minor:      kubernetesMinor,
		GitVersion: kubernetesVersion + "+portico-" + Portico,
		GitCommit:  Unknown,
		GoVersion:  runtime.Version(),
		Compiler:   runtime.Compiler,
		Platform:   fmt.Sprintf("%s/%s", runtime.GOOS, runtime.GOARCH),
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			info.GitCommit = s.Value
		case "vcs.time":
			info.BuildDate = s.Value
		case "vcs.modified":
			info.GitTreeState = map[string]string{"true": "dirty", "false": "clean"}[s.Value]
		}
	}
	if Commit != "" {
		commit, dirty := strings.CutSuffix(Commit, "-dirty")
		info.GitCommit, info.BuildDate, info.GitTreeState = commit, Date, map[bool]string{true: "dirty", false: "clean"}[dirty]
	}
	return info
}
