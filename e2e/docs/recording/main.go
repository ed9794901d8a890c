// Command recording runs the commands that README.md recommends to try, and writes an animated SVG of the commands and their
// output.
//
//	go run ./e2e/docs/recording -to docs/try.svg
package main

import (
	"errors"
	"flag"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"portico.dev/e2e/programs"
)

func main() {
	to := flag.String("to", "docs/try.svg", "file to write")
	built := flag.String("programs", "", "directory of built programs; default they are built from the tree")
	flag.Parse()
	if err := record(*to, *built); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

func record(to, built string) error {
	dir, err := os.MkdirTemp("", "portico-recording-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if built == "" {
		built = dir
		if err := programs.Build(dir, "aggregator", "kubectl"); err != nil {
			return err
		}
	}
	home := filepath.Join(dir, "portico")
	if err := os.Mkdir(home, 0o755); err != nil {
		return err
	}
	shown, err := perform(built, home)
	if err != nil {
		return err
	}
	return os.WriteFile(to, draw(shown), 0o644)
}

// line is one line of the terminal.
type line struct {
	text  string
	typed bool
	// at is the time at which the line appears.
	at time.Duration
}

const (
	typing  = 900 * time.Millisecond // before a command
	reading = 1700 * time.Millisecond
)

// perform runs the commands, one after the other.
func perform(built, home string) (shown []line, err error) {
	at := time.Duration(0)
	show := func(command, printed string) {
		at += typing
		shown = append(shown, line{text: "$ " + command, typed: true, at: at})
		at += typing / 2
		for _, text := range strings.Split(strings.TrimRight(printed, "\n"), "\n") {
			for _, part := range wrap(strings.ReplaceAll(text, home, "/home/you/portico")) {
				shown = append(shown, line{text: part, at: at})
			}
		}
		at += reading
	}
	dev, kubeconfig, err := programs.StartDev(built, home, nil)
	if dev != nil {
		defer func() {
			code, stopErr := dev.Stop(os.Interrupt)
			if stopErr == nil && code != 0 {
				stopErr = fmt.Errorf("aggregator dev ended with exit status %d", code)
			}
			err = errors.Join(err, stopErr)
		}()
	}
	if err != nil {
		return nil, err
	}
	run := func(command string) string {
		cmd := exec.Command("bash", "-c", command)
		cmd.Dir = home
		cmd.Env = []string{"PATH=" + built + ":" + os.Getenv("PATH"), "HOME=" + home, "KUBECONFIG=" + kubeconfig}
		out, _ := cmd.CombinedOutput() // that a command fails is part of the recording
		return string(out)
	}
	wait := func(command, want string) error {
		return programs.Poll(dev.Exited(), func() error {
			if printed := run(command); !strings.Contains(printed, want) {
				return fmt.Errorf("%s printed %q, want %q in it", command, printed, want)
			}
			return nil
		})
	}
	if err := wait("kubectl top nodes", "CPU(cores)"); err != nil {
		return nil, err
	}
	if err := programs.Poll(dev.Exited(), func() error { return programs.CheckDiscovery(kubeconfig) }); err != nil {
		return nil, err
	}
	banner, _, _ := strings.Cut(dev.Output(), "\nTry:")
	show("aggregator dev &", banner)
	show("export KUBECONFIG="+kubeconfig, "")
	shown = shown[:len(shown)-1] // the command prints nothing
	shown[len(shown)-1].text = strings.ReplaceAll(shown[len(shown)-1].text, home, "/home/you/portico")
	for _, c := range []struct{ command, await, want string }{
		{"kubectl top nodes", "", ""},
		{"kubectl create namespace demo", "", ""},
		{"kill $(cat portico-data/extserver.pid)", "kubectl get apiservice v1.metrics.k8s.io", "False (FailedDiscoveryCheck)"},
		{"kubectl top nodes", "", ""},
		{"time kubectl delete namespace demo", "", ""},
		{"aggregator doctor apiservice v1.metrics.k8s.io | head -10", "", ""},
	} {
		show(c.command, run("TIMEFORMAT='%1R s'; "+c.command))
		if c.await == "" {
			continue
		}
		if err := wait(c.await, c.want); err != nil {
			return nil, err
		}
	}
	return shown, nil
}

const (
	fontSize, lineHeight = 13, 19
	charWidth            = 7.83
	columns              = 108
	margin, bar          = 16, 30
)

// wrap breaks a line at the width of the terminal.
func wrap(text string) (parts []string) {
	letters := []rune(text)
	for len(letters) > columns {
		parts, letters = append(parts, string(letters[:columns])), letters[columns:]
	}
	return append(parts, string(letters))
}

// draw renders the terminal. Without animation all lines are visible; with animation each line appears at its time.
func draw(shown []line) []byte {
	widest := 0
	for _, l := range shown {
		widest = max(widest, utf8.RuneCountInString(l.text))
	}
	width, height := int(float64(widest)*charWidth)+2*margin, bar+margin+len(shown)*lineHeight+margin/2
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="aggregator dev, its extension server is killed, and commands with what they print">
<!-- made by: make recording -->
<style>
text { font: %dpx ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d3d7de; white-space: pre }
.typed { fill: #8ee07f; font-weight: bold }
.line { animation: unseen 0s linear backwards }
@keyframes unseen { from, to { opacity: 0 } }
@media (prefers-reduced-motion: reduce) { .line { animation: none } }
</style>
<rect width="100%%" height="100%%" rx="8" fill="#171a21"/>
<circle cx="20" cy="16" r="5" fill="#e0655b"/><circle cx="38" cy="16" r="5" fill="#e5b64c"/><circle cx="56" cy="16" r="5" fill="#69b95c"/>
`, width, height, width, height, fontSize)
	for i, l := range shown {
		if l.text == "" {
			continue
		}
		class := "line"
		if l.typed {
			class += " typed"
		}
		fmt.Fprintf(&b, `<text xml:space="preserve" class="%s" style="animation-duration: %.1fs" x="%d" y="%d">%s</text>`+"\n",
			class, l.at.Seconds(), margin, bar+margin/2+(i+1)*lineHeight-6, html.EscapeString(l.text))
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}
