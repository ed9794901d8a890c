//go:build chromium

package pictures

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// node is an element of the page in the accessibility tree. chromedp's types reject properties newer than themselves.
type node struct {
	Ignored     bool         `json:"ignored"`
	Role        told         `json:"role"`
	Name        told         `json:"name"`
	Description told         `json:"description"`
	Properties  []toldDetail `json:"properties"`
}

type told struct {
	Value any `json:"value"`
}

type toldDetail struct {
	Name  string `json:"name"`
	Value told   `json:"value"`
}

func (v told) String() string {
	if v.Value == nil {
		return ""
	}
	return fmt.Sprint(v.Value)
}

// heard is the page in the order of reading.
func heard(t *testing.T, ctx context.Context) []node {
	t.Helper()
	var tree struct {
		Nodes []node `json:"nodes"`
	}
	within(t, ctx, "read the accessibility tree", chromedp.ActionFunc(func(ctx context.Context) error {
		return cdp.Execute(ctx, "Accessibility.getFullAXTree", nil, &tree)
	}))
	return tree.Nodes
}

// Requirements of screen readers: landmarks and one heading of the first level, headings that skip no level, tables with a name
// and headers, controls and charts with a name, and states in words, not only in colours.
func TestPagesMeetScreenReaderRequirements(t *testing.T) {
	c := pictured(t, frontDoorWithTrouble(), 20)
	addRun(c, "v1.orders.example.com")
	ctx := opened(t, chromium(t), c)
	for fragment, told := range map[string]struct {
		waits string
		says  []string
	}{
		"overview":                           {"Needs attention", []string{"v1.orders.example.com", "Latest changes"}},
		"apiservices":                        {"unavailable", []string{"does not reach", "1 of 2"}},
		"apiservices/v1.orders.example.com":  {"Broken at service", []string{"does not reach", "What to do"}},
		"apiservices/v1beta1.metrics.k8s.io": {"front-1 reaches it", []string{"kube-system/metrics-server:443"}},
		"endpoints":                          {"10.0.2.7", []string{"ejected", "requests in flight at 10.0.2.7:8443, now 0"}},
		"timeline":                           {"not reached by front-1", []string{"BackendUnavailable, 3 times"}},
		"namespaces":                         {"example.com/hold", []string{"stuck"}},
		"routes":                             {"canary", []string{"unavailable"}},
		"doctor":                             {"1 of 4 broken", nil},
		"drills":                             {"All drills", nil},
		"audit":                              {"Audit", nil},
	} {
		t.Run(strings.ReplaceAll(fragment, "/", "-"), func(t *testing.T) {
			within(t, ctx, "open "+fragment, chromedp.EmulateViewport(1280, 800), chromedp.Evaluate(fmt.Sprintf(`location.hash = %q`, fragment), nil),
				chromedp.Poll(fmt.Sprintf(`location.hash === "#" + %q && document.getElementById("main").innerText.includes(%q)`, fragment, told.waits), nil))
			count, level, everything := map[string]int{}, 0, strings.Builder{}
			for _, n := range heard(t, ctx) {
				role, name := n.Role.String(), n.Name.String()
				if n.Ignored {
					continue
				}
				count[role]++
				everything.WriteString(name + "\n")
				switch role {
				case "button", "link", "checkbox", "searchbox", "image", "img", "table", "article", "region", "navigation", "columnheader":
					if name == "" && !(role == "image" && n.Description.String() != "") {
						t.Errorf("element of the role %s has no name, want one", role)
					}
				case "heading":
					for _, p := range n.Properties {
						if p.Name != "level" {
							continue
						}
						var at int
						_, _ = fmt.Sscan(p.Value.String(), &at)
						if at > level+1 {
							t.Errorf("level of the heading %q = %d after level %d, want at most one more", name, at, level)
						}
						if level = at; at == 1 {
							count["h1"]++
						}
					}
				}
			}
			for _, role := range []string{"main", "navigation", "banner", "h1"} {
				if count[role] != 1 {
					t.Errorf("it has %d of %s, want one", count[role], role)
				}
			}
			if count["status"] == 0 {
				t.Error("the page has no element of the role status, want at least one")
			}
			for _, text := range append(told.says, told.waits) {
				if !strings.Contains(everything.String(), text) {
					t.Errorf("accessibility tree has no %q, want it in:\n%s", text, everything.String())
				}
			}
		})
	}
}

// The keyboard: the first stop is the link past the sections, an opened section has the focus, and neither new data nor a
// change of the focused line removes it. Changes are announced.
func TestKeyboardFocusSurvivesUpdates(t *testing.T) {
	f := frontDoorWithTrouble()
	c := pictured(t, f, 2)
	ctx := opened(t, chromium(t), c)
	is := func(what, expression string) {
		t.Helper()
		within(t, ctx, what, chromedp.Poll(expression, nil))
	}
	within(t, ctx, "the first tab", chromedp.Evaluate(`document.activeElement.blur()`, nil), chromedp.KeyEvent(kb.Tab))
	is("the link past the sections", `document.activeElement.className === "skip" && getComputedStyle(document.activeElement).outlineStyle !== "none"`)
	within(t, ctx, "press it", chromedp.KeyEvent(kb.Enter))
	is("the content has the focus", `document.activeElement.id === "main" || document.activeElement === document.body && location.hash === "#main"`)
	within(t, ctx, "open a section", chromedp.Focus(`#nav a[href="#apiservices"]`, chromedp.ByQuery), chromedp.KeyEvent(kb.Enter))
	is("the section is open and has the focus", `document.querySelector("h1").textContent === "APIServices" && document.activeElement.id === "main"`)
	is("it is marked as the one that is open", `document.querySelector('#nav a[aria-current="page"]').textContent.startsWith("APIServices")`)

	const name, path = "v1beta1.metrics.k8s.io", "/apis/apiregistration.k8s.io/v1/apiservices"
	link := fmt.Sprintf(`a[href="#apiservices/%s"]`, name)
	within(t, ctx, "focus on a line", chromedp.Focus(link, chromedp.ByQuery))
	is("it is the last line", `document.querySelector("main tbody tr:last-child a") === document.activeElement`)
	was := f.documents[path].(object)["items"].([]object)
	f.documents[path] = items(was[3], was[4], // two further APIServices
		apiServiceOf(name, "kube-system/metrics-server", nil, conditionOf(available, "False", "FailedDiscoveryCheck", "it is gone", 0)),
		apiServiceOf("v1.new.example.com", "shop/new", nil, conditionOf(available, "True", "Passed", passed, 0)))
	c.Read(t.Context(), 0)
	is("the line has changed", `document.getElementById("main").innerText.includes("it is gone")`)
	is("the new line is there, and those that are gone are not", `document.getElementById("main").innerText.includes("v1.new.example.com") && !document.getElementById("main").innerText.includes("v1alpha1.widgets")`)
	is("the line has moved up", `document.querySelector("main tbody tr:nth-child(2) a").getAttribute("href") === "#apiservices/v1beta1.metrics.k8s.io"`)
	is("the focus is where it was", fmt.Sprintf(`document.activeElement.getAttribute("href") === "#apiservices/%s"`, name))
	is("it is announced", fmt.Sprintf(`document.getElementById("live").textContent === %q`, name+" is unavailable"))
	within(t, ctx, "follow it", chromedp.KeyEvent(kb.Enter))
	is("the page of the APIService", fmt.Sprintf(`document.querySelector("h1").textContent === %q`, name))
	within(t, ctx, "back", chromedp.NavigateBack())
	is("the list again", `document.querySelector("h1").textContent === "APIServices"`)
}
