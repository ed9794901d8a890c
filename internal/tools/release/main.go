// Command release builds the files of a release: archives of the programs, a bill of materials for each (CycloneDX), checksums,
// signed provenance (SLSA, in-toto, DSSE), a manifest for krew, and the notes from the changelog. Builds are reproducible: the
// same commit yields the same bytes on every machine.
//
//	go run ./internal/tools/release -version v0.2.0 -out dist -sign-key key.pem
//	go run ./internal/tools/release verify -key key.pub dist
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/term"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "verify" {
		return runVerify(args[1:])
	}
	r := release{dir: ".", say: func(string, ...any) {}}
	fs := flag.NewFlagSet("release", flag.ContinueOnError)
	fs.StringVar(&r.version, "version", "", "version, such as v0.2.0")
	fs.StringVar(&r.out, "out", "dist", "output directory, which must be empty or not exist")
	fs.StringVar(&r.dir, "C", ".", "directory of the repository")
	fs.StringVar(&r.baseURL, "base-url", "", "base URL of the published archives; if set, a manifest for krew is written")
	fs.BoolVar(&r.dirty, "dirty", false, "build with uncommitted changes; -dirty is appended to the commit")
	keyFile := fs.String("sign-key", "", "Ed25519 key (PKCS #8, PEM) that signs the provenance; default no provenance")
	only := fs.String("only", "", "comma-separated list of PROGRAM/OS/ARCH to build; default all")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if !versionPattern.MatchString(r.version) {
		return fmt.Errorf("-version: %q is not a version such as v0.2.0 or v0.2.0-rc.1", r.version)
	}
	var err error
	if r.targets, err = chosen(*only); err != nil {
		return err
	}
	if *keyFile != "" {
		if r.key, err = readPrivateKey(*keyFile); err != nil {
			return err
		}
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return err
	}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		r.say = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	}
	if err := r.make(ctx); err != nil {
		return err
	}
	fmt.Println(r.out)
	return nil
}

var versionPattern = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

// target is one program on one platform.
type target struct{ program, os, arch string }

func (t target) String() string { return t.program + "/" + t.os + "/" + t.arch }

// platforms lists the platforms of each program. extserver requires the procfs of Linux.
var platforms = map[string][]string{
	"aggregator":      {"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"},
	"extserver":       {"linux/amd64", "linux/arm64"},
	"kubectl-portico": {"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"},
}

func allTargets() (all []target) {
	for program, on := range platforms {
		for _, platform := range on {
			goos, arch, _ := strings.Cut(platform, "/")
			all = append(all, target{program, goos, arch})
		}
	}
	slices.SortFunc(all, func(a, b target) int { return strings.Compare(a.String(), b.String()) })
	return all
}

func chosen(only string) ([]target, error) {
	all := allTargets()
	if only == "" {
		return all, nil
	}
	var out []target
	for _, name := range strings.Split(only, ",") {
		i := slices.IndexFunc(all, func(t target) bool { return t.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("-only: there is no %q; there are %v", name, all)
		}
		out = append(out, all[i])
	}
	return out, nil
}
