package aggregator

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/logging"
)

// settings is a configuration with its flags.
type settings struct {
	config Config
	logs   logging.Options
	sets   cliflag.NamedFlagSets
}

func newSettings() *settings {
	s := &settings{config: Default(), logs: logging.Default()}
	s.sets = s.config.NamedFlags()
	s.logs.AddFlags(s.sets.FlagSet("log"))
	return s
}

func (s *settings) flags() (all []*pflag.Flag) {
	for _, name := range s.sets.Order {
		s.sets.FlagSets[name].VisitAll(func(f *pflag.Flag) { all = append(all, f) })
	}
	return all
}

// parse reads a command line.
func (s *settings) parse(t *testing.T, args ...string) {
	t.Helper()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, name := range s.sets.Order {
		fs.AddFlagSet(s.sets.FlagSets[name])
	}
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "portico.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const configHead = "apiVersion: config.portico.dev/v1alpha1\nkind: AggregatorConfiguration\n"

// otherThanDefault is a value of a flag, as on the command line and as in YAML.
func otherThanDefault(t *testing.T, f *pflag.Flag) (args []string, value any) {
	t.Helper()
	switch f.Name { // flags with few valid values
	case "http-engine", "backend-engine":
		return []string{"library"}, "library"
	case "service-node-port-range":
		return []string{"30100-30200"}, "30100-30200"
	}
	switch kind := f.Value.Type(); kind {
	case "bool":
		other := f.DefValue == "false"
		return []string{fmt.Sprint(other)}, other
	case "int", "int64":
		return []string{"4321"}, 4321
	case "float64":
		return []string{"0.015"}, 0.015
	case "duration":
		return []string{"1h2m3s"}, "1h2m3s"
	case "string", logging.AccessDestinationType:
		return []string{"a: b, # c"}, "a: b, # c"
	case "stringSlice", "stringArray":
		return []string{"first", "second"}, []string{"first", "second"}
	case "stringToString", "mapStringString":
		return []string{"a=b", "c=d=e"}, map[string]string{"a": "b", "c": "d=e"}
	default:
		t.Fatalf("type of --%s = %s, want one that configuration files support", f.Name, kind)
		return nil, nil
	}
}

// A field for every flag: a configuration by a file is the same as by a command line, and is printed as a file that gives it again.
func TestConfigFileHasFieldForEveryFlag(t *testing.T) {
	byFlags, byFile := newSettings(), newSettings()
	var args []string
	fields := map[string]any{"apiVersion": configAPIVersion, "kind": configKind}
	for _, f := range byFlags.flags() {
		values, value := otherThanDefault(t, f)
		for _, v := range values {
			args = append(args, "--"+f.Name+"="+v)
		}
		if _, ok := fields[fieldName(f.Name)]; ok {
			t.Errorf("two flags have the field name %s, want one", fieldName(f.Name))
		}
		fields[fieldName(f.Name)] = value
	}
	if len(fields) < 100 {
		t.Fatalf("%d fields, want at least 100", len(fields))
	}
	byFlags.parse(t, args...)
	text, err := yaml.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	if err := ReadConfigFile(writeConfig(t, string(text)), byFile.sets); err != nil {
		t.Fatal(err)
	}
	same := func(what string, a, b *settings) {
		t.Helper()
		want, got := a.config, b.config
		want.Admission.Plugins, got.Admission.Plugins = nil, nil // functions, which no flag sets
		if !reflect.DeepEqual(got, want) || a.logs != b.logs {
			t.Errorf("%s:\n%+v %+v\nwant\n%+v %+v", what, got, b.logs, want, a.logs)
		}
	}
	same("by the file", byFlags, byFile)

	for _, defaults := range []bool{false, true} {
		var printed bytes.Buffer
		if err := PrintConfig(&printed, byFile.sets, defaults); err != nil {
			t.Fatal(err)
		}
		again := newSettings()
		if err := ReadConfigFile(writeConfig(t, printed.String()), again.sets); err != nil {
			t.Fatal(err)
		}
		same("by what was printed", byFlags, again)
	}
}

// PrintConfig prints no defaults or all of them.
func TestPrintConfigPrintsAllDefaultsOrNone(t *testing.T) {
	s := newSettings()
	var printed bytes.Buffer
	if err := PrintConfig(&printed, s.sets, false); err != nil || printed.String() != configHead {
		t.Errorf("PrintConfig without defaults = %v: %s, want only the head", err, printed.String())
	}
	printed.Reset()
	if err := PrintConfig(&printed, s.sets, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n# Secure serving\n", "\nsecurePort: 6443\n", "\nrequestTimeout: 1m0s\n", "\nanonymousAuth: true\n", "\nclientCaFile: \"\"\n", "\nrequestheaderUsernameHeaders:\n- X-Remote-User\n", "\nruntimeConfig: {}\n", "\noidcRequiredClaim: {}\n", "\nlogLevel: info\n"} {
		if !strings.Contains(printed.String(), want) {
			t.Errorf("PrintConfig with defaults has no %q, want it:\n%s", want, printed.String())
		}
	}
	again := newSettings()
	if err := ReadConfigFile(writeConfig(t, printed.String()), again.sets); err != nil {
		t.Fatal(err)
	}
	for _, f := range again.flags() {
		if f.Value.String() != f.DefValue {
			t.Errorf("flag --%s after reading the printed defaults = %s, want %s", f.Name, f.Value, f.DefValue)
		}
	}
	if err := again.config.Validate(); err != nil {
		t.Error(err)
	}
}

func TestCommandLineOverridesConfigFile(t *testing.T) {
	s := newSettings()
	s.parse(t, "--secure-port=1", "--advertise-name=a", "--runtime-config=batch/v1=false")
	err := ReadConfigFile(writeConfig(t, configHead+"securePort: 2\nzone: z\nadvertiseName: [b, c]\nruntimeConfig: {apps/v1: \"false\"}\ncontrollers: []\n"), s.sets)
	if err != nil {
		t.Fatal(err)
	}
	c := s.config
	if c.SecurePort != 1 || c.Zone != "z" || !slices.Equal(c.AdvertiseNames, []string{"a"}) || len(c.RuntimeConfig) != 1 || len(c.Controllers) != 0 {
		t.Errorf("port, zone, names, runtime config, controllers = %d %q %q %v %q; want 1 \"z\" [\"a\"], one entry and none",
			c.SecurePort, c.Zone, c.AdvertiseNames, c.RuntimeConfig, c.Controllers)
	}
}

// Mistakes are refused, each with its line, without a guess.
func TestConfigFileErrorsAreReportedWithTheirLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "the file is empty; it begins with apiVersion: config.portico.dev/v1alpha1",
		"- a\n":                      ":1: a configuration is fields with values",
		"kind: x\n":                  `:1: it has apiVersion "" and kind "x"; this version reads apiVersion: config.portico.dev/v1alpha1 and kind: AggregatorConfiguration`,
		"a: [\n":                     "yaml: line 1: did not find expected node content",
		configHead + "---\na: b\n":   ":3: a second document",
		configHead + "\tsecurePort:": "found a tab character",
		strings.Replace(configHead, "v1alpha1", "v9", 1) + "new: x\n": `:1: it has apiVersion "config.portico.dev/v9"`,
		configHead + "secure-port: 1\n":                               `:3: unknown field "secure-port"; it is called securePort`,
		configHead + "zone: a\nclientCAFile: x\n":                     `:4: unknown field "clientCAFile"; it is called clientCaFile`,
		configHead + "colour: red\n":                                  `:3: unknown field "colour"`,
		configHead + "config: other.yaml\n":                           `:3: unknown field "config"`,
		configHead + "zone: a\nbindAddress: \"::1\"\nzone: b\n":       ":5: zone is in line 3 already",
		configHead + "kind: AggregatorConfiguration\n":                ":3: kind is in line 2 already",
		configHead + "securePort: \"6443\"\n":                         `:3: securePort: want a number, have "6443"`,
		configHead + "securePort: 1.5\n":                              `:3: securePort: want a number, have "1.5"`,
		configHead + "securePort: 99999999999999999999\n":             `:3: securePort: `,
		configHead + "zone: 1\n":                                      `:3: zone: want a string; write "1"`,
		configHead + "zone:\n":                                        ":3: zone: it has no value",
		configHead + "zone: [a]\n":                                    ":3: zone: want one value",
		configHead + "profiling: \"yes\"\n":                           `:3: profiling: want true or false, have "yes"`,
		configHead + "accessLog: 1\n":                                 `:3: accessLog: want a string; write "1"`,
		configHead + "requestTimeout: 30\n":                           `:3: requestTimeout: want a length of time with its unit, such as 30s, have "30"`,
		configHead + "requestTimeout: soon\n":                         ":3: requestTimeout: ",
		configHead + "advertiseName: a\n":                             ":3: advertiseName: want a list of strings",
		configHead + "advertiseName:\n- a\n- 1\n":                     `advertiseName: line 5: want a string; write "1"`,
		configHead + "runtimeConfig: {api/all: false}\n":              `runtimeConfig: line 3: want a string; write "false"`,
		configHead + "runtimeConfig: {a: \"b,c\"}\n":                  ":3: runtimeConfig: a: there cannot be a comma in it",
		configHead + "oidcRequiredClaim: {a: b, a: c}\n":              ":3: oidcRequiredClaim: a is there twice",
		configHead + "zone: &z a\nbindAddress: *z\n":                  ":3: zone: anchors and aliases are not supported",
		configHead + "httpEngine: nginx\n":                            `:3: httpEngine: "nginx" is no HTTP engine`,
		configHead + "#" + strings.Repeat("x", maxConfigFile) + "\n":  "is larger than 1048576 bytes",
	} {
		err := ReadConfigFile(writeConfig(t, text), newSettings().sets)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ReadConfigFile of %.200q: error = %v, want %q", text, err, want)
		}
	}
	if err := ReadConfigFile(filepath.Join(t.TempDir(), "none"), newSettings().sets); err == nil || !strings.Contains(err.Error(), "--config: ") {
		t.Errorf("ReadConfigFile of a missing file: error = %v, want one that names --config", err)
	}
	// All at once, also of a field that the command line sets.
	s := newSettings()
	s.parse(t, "--zone=a")
	err := ReadConfigFile(writeConfig(t, configHead+"zone: 1\nport: 1\nsecurePort: x\n"), s.sets)
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("ReadConfigFile with three mistakes: error = %v, want three lines", err)
	}
}
