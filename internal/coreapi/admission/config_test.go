package admission

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func table() []Plugin {
	check := func(config io.Reader) error {
		text, err := io.ReadAll(config)
		if err == nil && strings.Contains(string(text), "wrong") {
			err = errors.New("here: no good")
		}
		return err
	}
	return []Plugin{{Name: "First", Default: true, Check: check}, {Name: "Second", Check: check}, {Name: "Third", Default: true}}
}

func TestEnableAndDisableFlagsSelectPlugins(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		want   []string
	}{
		"by default":             {Config{}, []string{"First", "Third"}},
		"one more, in its place": {Config{Enable: []string{"Second"}}, []string{"First", "Second", "Third"}},
		"one less":               {Config{Disable: []string{"First"}}, []string{"Third"}},
		"on anyway":              {Config{Enable: []string{"First"}}, []string{"First", "Third"}},
		"off anyway":             {Config{Disable: []string{"Second"}}, []string{"First", "Third"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.Plugins = table()
			if got := c.config.Names(); !slices.Equal(got, c.want) {
				t.Errorf("Names() = %v, want %v", got, c.want)
			}
		})
	}
}

func TestInvalidPluginSettingsAreRejected(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"
	for name, c := range map[string]struct {
		config Config
		want   string // empty: no error
	}{
		"nothing said":               {Config{}, ""},
		"an unknown plugin":          {Config{Enable: []string{"Fourth"}}, `--enable-admission-plugins: there is no plugin "Fourth"; choose from First, Second, Third`},
		"one that only upstream has": {Config{Enable: []string{"AlwaysPullImages"}}, "--enable-admission-plugins: AlwaysPullImages is a plugin of kube-apiserver that this server does not have; it has First, Second, Third"},
		"to do without that":         {Config{Disable: []string{"AlwaysPullImages"}}, ""},
		"to do without an unknown":   {Config{Disable: []string{"Fourth"}}, `--disable-admission-plugins: there is no plugin "Fourth"`},
		"on and off":                 {Config{Enable: []string{"Second"}, Disable: []string{"Second"}}, "--disable-admission-plugins: Second is also in --enable-admission-plugins"},
		"no such file":               {Config{File: filepath.Join(dir, "none")}, "no such file"},
		"not a configuration":        {Config{File: file("other", "apiVersion: v1\nkind: Pod\n")}, "no kind \"Pod\" is registered"},
		"a field that is not there":  {Config{File: file("strict", head+"plugin: []\n")}, `unknown field "plugin"`},
		"of an unknown plugin":       {Config{File: file("unknown", head+"plugins: [{name: Fourth, path: x}]\n")}, `there is no plugin "Fourth"`},
		"with a path to nothing":     {Config{File: file("dangling", head+"plugins: [{name: First, path: x}]\n")}, "configuration of First: open " + filepath.Join(dir, "x")},
		"a wrong one here": {Config{File: file("inline", head+"plugins: [{name: First, configuration: {wrong: 1}}]\n")},
			"configuration of First in " + filepath.Join(dir, "inline") + ": here: no good"},
		"a wrong one elsewhere": {Config{File: file("outline", head+"plugins: [{name: Second, path: "+file("wrong", "wrong")+"}]\n")},
			"configuration of Second in " + filepath.Join(dir, "wrong") + ": here: no good"},
		"of a plugin that takes none": {Config{File: file("idle", head+"plugins: [{name: Third, configuration: {a: 1}}]\n")},
			"Third takes no configuration; remove it"},
		"of one that only upstream has": {Config{File: file("absent", head+"plugins: [{name: EventRateLimit, path: limits}]\n")},
			"EventRateLimit is a plugin of kube-apiserver that this server does not have; remove its configuration"},
		"one plugin twice": {Config{File: file("twice", head+"plugins: [{name: First, configuration: {a: 1}}, {name: First, configuration: {a: 2}}]\n")},
			"First is configured twice; remove one"},
		"a name without a configuration": {Config{File: file("bare", head+"plugins: [{name: Third}, {name: EventRateLimit}]\n")}, ""},
		"too large a file":               {Config{File: file("large", strings.Repeat("#", maxConfigBytes+1))}, "more than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.Plugins = table()
			var said []string
			c.config.Validate(func(flag, format string, args ...any) {
				said = append(said, fmt.Sprintf("--%s: %s", flag, fmt.Sprintf(format, args...)))
			})
			all := strings.Join(said, "\n")
			if (c.want == "") != (all == "") || !strings.Contains(all, c.want) {
				t.Errorf("Validate reported %q, want a message that contains %q (empty: no message)", all, c.want)
			}
		})
	}
}

func TestPluginReceivesOnlyItsConfiguration(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"config": `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- {name: First, path: beside}
- {name: Second, configuration: {here: true}}
`, "beside": "there",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read, err := Config{Plugins: table(), File: filepath.Join(dir, "config")}.read()
	if err != nil {
		t.Fatal(err)
	}
	for plugin, want := range map[string]string{"First": "there", "Second": `{"here":true}`, "Third": ""} {
		r, err := read.ConfigFor(plugin)
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			if r != nil {
				t.Errorf("%s has a configuration, want none", plugin)
			}
			continue
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != want {
			t.Errorf("configuration of %s = %q, %v, want %q", plugin, got, err, want)
		}
	}
}
