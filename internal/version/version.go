// Package version is what this build is.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	apiversion "k8s.io/apimachinery/pkg/version"
)

// Portico is this project's version. Releases set it with -ldflags "-X portico.dev/internal/version.Portico=v1.2.3".
var Portico = "v0.1.0-dev"

// Commit and Date are set by releases as Portico is. Empty, what the go command has recorded counts.
var Commit, Date string

// Program is how people call the program whose commands they are told of: "aggregator", or "kubectl portico".
var Program = "aggregator"

// The Kubernetes version whose API is served. It moves together with the k8s.io modules in go.mod: v0.37.2 there is
// v1.37.2 here. Clients compare it with their own to warn of skew.
const (
	kubernetesMajor   = "1"
	kubernetesMinor   = "37"
	kubernetesVersion = "v1.37.2"
)

// Unknown is the commit of a build for which the go command has recorded none.
const Unknown = "unknown"

// Text is what the version commands print of program, in one line.
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

// Get is the answer of /version and of the version commands.
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
