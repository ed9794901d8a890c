//go:build chromium

package console

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"portico.dev/e2e/programs"
)

var binaries string

func TestMain(m *testing.M) {
	os.Exit(programs.Main(m, &binaries, "aggregator", "kubectl-portico", "kubectl"))
}

// patience limits each wait for text on the page.
const patience = time.Minute

// views are the sections of the page, with their text for `aggregator dev` with a dead APIService and a namespace that it
// blocks.
var views = []struct{ fragment, shows string }{
	{"overview", "v1.dead.example.com"},
	{"apiservices", "v1beta1.metrics.k8s.io"},
	{"apiservices/v1beta1.metrics.k8s.io", "FailedDiscoveryCheck|Passed"},
	{"endpoints", "portico-extserver"},
	{"timeline", "v1.dead.example.com"},
	{"namespaces", "held"},
	{"routes", "No APIRoutes"},
	{"doctor", "Check all APIServices"},
	{"drills", "dead"},
	{"audit", "Audit"},
}

const dead = `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.dead.example.com}
spec:
  group: dead.example.com
  version: v1
  groupPriorityMinimum: 100
  versionPriority: 100
  service: {namespace: default, name: dead}
  insecureSkipTLSVerify: true
---
apiVersion: v1
kind: Namespace
metadata: {name: held, finalizers: [example.com/hold]}
`

// browser is a Chromium with one page and its errors.
type browser struct {
	ctx context.Context

	mu     sync.Mutex // guards the following fields
	errors []string
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("chromium was not found: %v, want Debian's package chromium", err)
	}
	allocate, cancel := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.Flag("disable-quic", true))...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocate)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // the browser exits when it is cancelled
		cancel()
	})
	b := &browser{ctx: ctx}
	if err := chromedp.Run(ctx); err != nil { // it lives as long as the context of its first run
		t.Fatalf("start of %s failed: %v, want no error", program, err)
	}
	chromedp.ListenTarget(ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.errors = append(b.errors, e.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError {
				b.errors = append(b.errors, e.Entry.Text+" "+e.Entry.URL)
			}
		}
	})
	return b
}

func (b *browser) do(t *testing.T, what string, actions ...chromedp.Action) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		var text string
		_ = chromedp.Run(b.ctx, chromedp.Evaluate(`document.body.innerText`, &text))
		t.Fatalf("step %q: %v; %v; want no error; the page shows:\n%s", what, err, b.wrong(), text)
	}
}

func (b *browser) wrong() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.errors
}

// shows waits until the text of the main part matches.
func (b *browser) shows(t *testing.T, pattern string) {
	t.Helper()
	b.do(t, "wait for "+pattern, chromedp.Poll(fmt.Sprintf(`new RegExp(%q).test(document.getElementById("main").innerText)`, pattern), nil))
}

func (b *browser) open(t *testing.T, fragment string) {
	t.Helper()
	b.do(t, "open "+fragment, chromedp.Evaluate(fmt.Sprintf(`location.hash = %q`, fragment), nil))
}

func (b *browser) picture(t *testing.T, name string) {
	t.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	var png []byte
	b.do(t, "screenshot", chromedp.CaptureScreenshot(&png))
	if err := os.WriteFile(filepath.Join(dir, strings.ReplaceAll(name, "/", "-")+".png"), png, 0o600); err != nil {
		t.Fatal(err)
	}
}

var link = regexp.MustCompile(`http://127\.0\.0\.1:\d+/#token=\S+`)

// consoleOf starts the console of a front door, and opens its link.
func consoleOf(t *testing.T, dir, kubeconfig string) *browser {
	t.Helper()
	env := []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + kubeconfig}
	p, err := programs.Start("console", dir, env, nil, filepath.Join(binaries, "kubectl-portico"), "console")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Finish(t) })
	if err := programs.Poll(p.Exited(), func() error {
		if !link.MatchString(p.Output()) {
			return fmt.Errorf("no link: %s", p.Output())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t)
	b.do(t, "open the link", log.Enable(), chromedp.EmulateViewport(1280, 800), chromedp.Navigate(link.FindString(p.Output())),
		chromedp.WaitVisible("#h-trouble", chromedp.ByQuery)) // of the page that the link leads to
	b.shows(t, "Needs attention")
	var address string
	b.do(t, "address", chromedp.Location(&address))
	if strings.Contains(address, "token") {
		t.Errorf("address after the login = %s, want no token", address)
	}
	return b
}

// noName finds controls without an accessible name.
const noName = `[...document.querySelectorAll("a, button, input, summary")].filter(e => e.offsetParent !== null &&
	!(e.textContent.trim() || e.getAttribute("aria-label") || e.labels?.length)).map(e => e.outerHTML)`

// overflow finds elements that are wider than the screen.
const overflow = `document.documentElement.scrollWidth > innerWidth ?
	[...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1).slice(0, 3).map(e => e.outerHTML.slice(0, 200)) : []`

func TestConsoleInChromium(t *testing.T) {
	dir := t.TempDir()
	_, kubeconfig := programs.Dev(t, binaries, dir)
	kubectl := programs.Kubectl(binaries, dir, kubeconfig)
	file := filepath.Join(dir, "dead.yaml")
	if err := os.WriteFile(file, []byte(dead), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"apply", "-f", file}, {"delete", "namespace", "held", "--wait=false"}} {
		if out, err := kubectl(args...); err != nil {
			t.Fatalf("kubectl %v = %v: %s; want no error", args, err, out)
		}
	}
	b := consoleOf(t, dir, kubeconfig)
	for _, screen := range []struct{ width, height int64 }{{1280, 800}, {360, 740}, {3840, 2160}} {
		for _, scheme := range []string{"light", "dark"} {
			b.do(t, "screen", chromedp.EmulateViewport(screen.width, screen.height), emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
			for _, v := range views {
				b.open(t, v.fragment)
				b.shows(t, v.shows)
				b.picture(t, fmt.Sprintf("%d-%s-%s", screen.width, scheme, v.fragment))
				var unnamed, wide []string
				b.do(t, "look", chromedp.Evaluate(noName, &unnamed), chromedp.Evaluate(overflow, &wide))
				if len(unnamed) > 0 || len(wide) > 0 {
					t.Errorf("%s at the width %d: controls without a name %v, too wide %v; want none", v.fragment, screen.width, unnamed, wide)
				}
			}
		}
	}
	if wrong := b.wrong(); len(wrong) > 0 {
		t.Errorf("errors in the page = %v, want none", wrong)
	}
}

// All of it can be used with the keyboard: the tab key reaches every control that is seen, and Enter follows links and presses buttons.
func TestConsoleByKeyboard(t *testing.T) {
	dir := t.TempDir()
	_, kubeconfig := programs.Dev(t, binaries, dir)
	b := consoleOf(t, dir, kubeconfig)
	for _, fragment := range []string{"doctor", "apiservices", "drills"} {
		b.open(t, fragment)
		b.shows(t, map[string]string{"doctor": "Doctor", "apiservices": "v1beta1.metrics", "drills": "All drills"}[fragment])
		var total, reached int
		b.do(t, "count", chromedp.Evaluate(`window.tabbed = new Set(); document.activeElement.blur();
			[...document.querySelectorAll("a[href], button:not(:disabled), input:not(:disabled), summary")].filter(e => e.offsetParent !== null || e.className === "skip").length`, &total))
		for range total + 2 {
			b.do(t, "tab", chromedp.KeyEvent(kb.Tab), chromedp.Evaluate(`if (document.activeElement !== document.body) tabbed.add(document.activeElement); tabbed.size`, &reached))
		}
		if reached < total {
			t.Errorf("%s: the tab key reaches %d of %d controls, want all", fragment, reached, total)
		}
	}
	b.open(t, "doctor")
	b.shows(t, "Check all APIServices")
	b.do(t, "press the button", chromedp.Focus("#run", chromedp.ByQuery), chromedp.KeyEvent(kb.Enter))
	b.shows(t, "checked, all well|broken")
	b.picture(t, "doctor-run")
	b.open(t, "audit")
	b.shows(t, "(?:doctor)")
	if wrong := b.wrong(); len(wrong) > 0 {
		t.Errorf("errors in the page = %v, want none", wrong)
	}
}
