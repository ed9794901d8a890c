//go:build chromium

package pictures

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	chromepage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/gomono"
	"golang.org/x/image/font/gofont/goregular"
	"k8s.io/client-go/rest"

	"portico.dev/internal/tools/console"
)

var updatePictures = flag.Bool("update", false, "write the pictures in testdata/pictures")

// The pictures are compared by the means of squares of so many pixels, so that the edges of letters, which differ from one machine to the
// next, do not count. A square differs if one of its colours does by more than squareTolerance of 255; so many of a thousand squares may.
const (
	square          = 8
	squareTolerance = 24
	mayDiffer       = 5
)

// pictureFonts are the fonts of the pictures, because system fonts differ.
var pictureFonts = map[string][]byte{"picture.ttf": goregular.TTF, "picture-bold.ttf": gobold.TTF, "picture-mono.ttf": gomono.TTF}

const pictureStyle = `
@font-face { font-family: Picture; src: url(picture.ttf); }
@font-face { font-family: Picture; font-weight: 550 900; src: url(picture-bold.ttf); }
@font-face { font-family: PictureMono; src: url(picture-mono.ttf); }
body { font-family: Picture; } code, pre, .mono { font-family: PictureMono; }`

// frozen makes the page's clock stand.
const frozen = `{ const at = %d, real = Date; globalThis.Date = class extends real { constructor(...a) { if (a.length) super(...a); else super(at); } static now() { return at; } }; }`

// pictured returns the page of a console whose clock stops after the given number of samples.
func pictured(t *testing.T, f *fixture, samples int) *console.Still {
	t.Helper()
	const interval = 2 * time.Second
	c, err := console.NewStill(console.Config{
		Client: &rest.Config{Host: f.serve(t).URL}, Context: "production", NoDrills: "Drills change a cluster: start the console with --drills-on CONTEXT to run them.",
	}, before(interval*time.Duration(samples)))
	if err != nil {
		t.Fatal(err)
	}
	c.ShowServer("https://api.example.com:6443")
	for f.sample = range samples {
		c.Read(t.Context(), interval)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx, withFonts) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return c
}

func withFonts(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := filepath.Base(r.URL.Path)
		if font, ok := pictureFonts[name]; ok {
			_, _ = w.Write(font)
			return
		}
		if name != "console.css" {
			h.ServeHTTP(w, r)
			return
		}
		recorded := httptest.NewRecorder()
		h.ServeHTTP(recorded, r)
		w.Header().Set("Content-Type", recorded.Header().Get("Content-Type"))
		_, _ = fmt.Fprint(w, recorded.Body, pictureStyle)
	})
}

// screen describes one picture.
type screen struct {
	width, height int64
	dark          bool
	fragment      string
	shows         string // the text that the page must show first
}

func (s screen) String() string {
	scheme := "light"
	if s.dark {
		scheme = "dark"
	}
	return fmt.Sprintf("%s-%d-%s", strings.ReplaceAll(s.fragment, "/", "-"), s.width, scheme)
}

// Golden pictures of the page with and without faults, on a desktop, in the dark scheme and on a telephone. -update writes them.
// SCREENSHOTS=DIR stores the pictures in full size, and also the pictures that differ. Look at each changed picture.
func TestPictures(t *testing.T) {
	allocate := chromium(t)
	desk := func(fragment, shows string) screen { return screen{1440, 900, false, fragment, shows} }
	dark := func(fragment, shows string) screen { return screen{1440, 900, true, fragment, shows} }
	phone := func(fragment, shows string) screen { return screen{360, 740, false, fragment, shows} }
	large := func(fragment, shows string) screen { return screen{420, 900, false, fragment, shows} }
	darkLarge := func(fragment, shows string) screen { return screen{420, 900, true, fragment, shows} }
	darkPhone := func(fragment, shows string) screen { return screen{360, 740, true, fragment, shows} }
	for _, cluster := range []struct {
		name    string
		f       *fixture
		samples int
		// examined lists the targets of runs of the doctor. The page of an unavailable APIService starts one otherwise.
		examined []string
		screens  []screen
	}{
		{"front-door", frontDoorWithTrouble(), 90, []string{"v1.orders.example.com", "all APIServices"}, []screen{
			desk("overview", "ServiceNotFound"), desk("apiservices", "v1alpha1.widgets"), desk("apiservices/v1alpha1.widgets.example.com", "10.0.2.7"), desk("endpoints", "10.0.2.7"),
			desk("timeline", "orders"), desk("namespaces", "example.com/hold"), desk("routes", "team-a"), desk("doctor", "What to do"), desk("drills", "All drills"),
			dark("overview", "ServiceNotFound"), dark("apiservices/v1.orders.example.com", "Broken at"), dark("endpoints", "10.0.2.7"), dark("routes", "team-a"),
			phone("overview", "ServiceNotFound"), phone("apiservices", "v1alpha1.widgets"), phone("endpoints", "10.0.2.7"), darkPhone("apiservices/v1.orders.example.com", "Broken at"), darkPhone("namespaces", "example.com/hold"),
			{3840, 2160, false, "overview", "ServiceNotFound"},
		}},
		{"gateway", gatewayBehindKubeAPIServer(), 60, []string{"v1.orders.example.com"}, []screen{
			desk("overview", "v1.orders"), desk("apiservices", "v1alpha1.widgets"), dark("apiservices/v1.orders.example.com", "BackendAvailable"), phone("apiservices", "v1alpha1.widgets"),
		}},
		{"thousand", apiServices(1000, false), 1, nil, []screen{desk("overview", "14 more|8 more"), dark("apiservices", "1000 APIServices, 20 unavailable"), phone("apiservices", "1000 APIServices, 20 unavailable")}},
		{"healthy", apiServices(3, true), 1, nil, []screen{dark("overview", "APIServices with a backend"), darkLarge("apiservices", "3 APIServices")}},
		{"fifty", apiServices(50, false), 1, nil, []screen{desk("apiservices", "50 APIServices, 1 unavailable"), large("overview", "MissingEndpoints")}},
		{"none", apiServices(0, true), 1, nil, []screen{desk("apiservices", "No APIServices"), darkLarge("overview", "APIServices with a backend")}},
		{"api-server-down", &fixture{down: true}, 1, nil, []screen{desk("overview", "503"), darkPhone("apiservices", "503")}},
	} {
		t.Run(cluster.name, func(t *testing.T) {
			c := pictured(t, cluster.f, cluster.samples)
			for _, target := range cluster.examined {
				addRun(c, target)
			}
			ctx := opened(t, allocate, c)
			for _, s := range cluster.screens {
				t.Run(s.String(), func(t *testing.T) {
					comparePicture(t, cluster.name+"-"+s.String(), capture(t, ctx, s))
				})
			}
		})
	}
}

// An operator sees thirty APIServices without scrolling.
func TestThirtyAPIServicesFitOnScreen(t *testing.T) {
	const width, height, want = 1440, 900, 30
	ctx := opened(t, chromium(t), pictured(t, apiServices(50, false), 1))
	var rows int
	within(t, ctx, "count the rows", chromedp.EmulateViewport(width, height), chromedp.Evaluate(`location.hash = "apiservices"`, nil),
		chromedp.Poll(`document.querySelectorAll("main tbody tr").length === 50 && document.fonts.status === "loaded"`, nil),
		chromedp.Evaluate(fmt.Sprintf(`[...document.querySelectorAll("main tbody tr")].filter(r => r.getBoundingClientRect().bottom <= %d).length`, height), &rows))
	if rows < want {
		t.Errorf("%d APIServices are on a screen of %d x %d, want at least %d", rows, width, height, want)
	}
}

// chromium starts a browser.
func chromium(t *testing.T) context.Context {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("chromium was not found: %v, want Debian's package chromium", err)
	}
	allocate, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.Flag("disable-quic", true),
		chromedp.Flag("font-render-hinting", "none"), chromedp.Flag("disable-lcd-text", true), chromedp.Flag("force-color-profile", "srgb"))...)
	t.Cleanup(func() {
		stop()
		chromedp.FromContext(allocate).Allocator.Wait()
	})
	return allocate
}

// opened is a page of the browser with the console.
func opened(t *testing.T, allocate context.Context, c *console.Still) context.Context {
	t.Helper()
	ctx, cancel := chromedp.NewContext(allocate)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // the browser exits when it is cancelled
		cancel()
	})
	if err := chromedp.Run(ctx); err != nil { // it lives as long as the context of its first run
		t.Fatal(err)
	}
	within(t, ctx, "open the page", chromepage.Enable(), chromepage.SetBypassCSP(true), emulation.SetTimezoneOverride("UTC"), chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := chromepage.AddScriptToEvaluateOnNewDocument(fmt.Sprintf(frozen, pictureTime.UnixMilli())).Do(ctx)
		return err
	}), chromedp.Navigate(c.URL()), chromedp.WaitVisible("#h-trouble", chromedp.ByQuery))
	return ctx
}

// within does something in the page, for half a minute at most.
func within(t *testing.T, ctx context.Context, what string, actions ...chromedp.Action) {
	t.Helper()
	bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := chromedp.Run(bounded, actions...); err != nil {
		var text string
		_ = chromedp.Run(ctx, chromedp.Evaluate(`document.body.innerText`, &text))
		t.Fatalf("%s failed: %v, want no error; the page shows:\n%.2000s", what, err, text)
	}
}

// addRun adds a completed run of the doctor.
func addRun(c *console.Still, target string) {
	c.ShowReports(target, before(20*time.Second), before(18*time.Second), 4, examined())
}

// tooWide finds elements that overflow their card or need horizontal scrolling, except the list of sections.
const tooWide = `[...document.querySelectorAll("main .card, main .endpoints")].filter(e => e.className === "endpoints" && e.scrollWidth > e.clientWidth + 1 ||
	[...e.querySelectorAll("td, th, p, dd, svg")].some(c => !c.closest(".wide thead") && c.getClientRects().length && c.getBoundingClientRect().right > e.getBoundingClientRect().right + 1)).map(e => e.textContent.slice(0, 80))`

func capture(t *testing.T, ctx context.Context, s screen) image.Image {
	t.Helper()
	scheme := "light"
	if s.dark {
		scheme = "dark"
	}
	var height int64
	var shot []byte
	var wide []string
	within(t, ctx, s.String(), chromedp.EmulateViewport(s.width, s.height),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}),
		chromedp.Evaluate(fmt.Sprintf(`location.hash = %q`, s.fragment), nil),
		chromedp.Poll(fmt.Sprintf(`location.hash === "#" + %q && new RegExp(%q).test(document.getElementById("main").innerText) && document.fonts.status === "loaded"`, s.fragment, s.shows), nil),
		chromedp.Evaluate(`document.activeElement.blur(); document.querySelectorAll("details").forEach((d, i) => { d.open = i < 1; }); scrollTo(0, 0)`, nil),
		chromedp.Evaluate(`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(document.documentElement.scrollHeight))))`, &height, awaited),
		chromedp.Evaluate(tooWide, &wide),
		chromedp.ActionFunc(func(ctx context.Context) (err error) {
			clip := &chromepage.Viewport{Width: float64(s.width), Height: float64(min(height, 2*s.height)), Scale: 1}
			shot, err = chromepage.CaptureScreenshot().WithCaptureBeyondViewport(true).WithClip(clip).Do(ctx)
			return err
		}))
	if len(wide) > 0 {
		t.Errorf("elements that are too wide = %v, want none", wide)
	}
	taken, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
	return taken
}

// comparePicture compares a picture with the golden one.
func comparePicture(t *testing.T, name string, taken image.Image) {
	t.Helper()
	if dir := os.Getenv("SCREENSHOTS"); dir != "" {
		writePicture(t, filepath.Join(dir, name+".png"), taken)
	}
	small := reduce(taken, scaleOf(taken))
	golden := filepath.Join("testdata", "pictures", name+".png")
	if *updatePictures {
		writePicture(t, golden, small)
		return
	}
	file, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	want, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if why := pictureDiffers(want, small); why != "" {
		t.Errorf("picture %s: %s, want the stored picture: look at it with SCREENSHOTS=DIR, and write it with -update", name, why)
	}
}

// scaleOf is by how much golden pictures are smaller: they are at most 960 pixels wide.
func scaleOf(of image.Image) int { return max(1, (of.Bounds().Dx()+959)/960) }

func writePicture(t *testing.T, path string, p image.Image) {
	t.Helper()
	var b bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	err := encoder.Encode(&b, p)
	err = cmp.Or(err, os.MkdirAll(filepath.Dir(path), 0o755))
	if err := cmp.Or(err, os.WriteFile(path, b.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// reduce makes a pixel of each square of so many.
func reduce(p image.Image, by int) *image.RGBA {
	b := p.Bounds()
	out := image.NewRGBA(image.Rect(0, 0, b.Dx()/by, b.Dy()/by))
	for y := range out.Bounds().Dy() {
		for x := range out.Bounds().Dx() {
			var r, g, bl uint32
			for dy := range by {
				for dx := range by {
					pr, pg, pb, _ := p.At(b.Min.X+x*by+dx, b.Min.Y+y*by+dy).RGBA()
					r, g, bl = r+pr>>8, g+pg>>8, bl+pb>>8
				}
			}
			n := uint32(by * by)
			out.SetRGBA(x, y, color.RGBA{uint8(r / n), uint8(g / n), uint8(bl / n), 255})
		}
	}
	return out
}

// pictureDiffers describes a difference of two pictures that is larger than the difference between machines.
func pictureDiffers(want, got image.Image) string {
	if w, g := want.Bounds().Size(), got.Bounds().Size(); w.X != g.X || abs(w.Y-g.Y) > max(4, w.Y/100) {
		return fmt.Sprintf("it has %v pixels, want %v", g, w)
	}
	a, b := reduce(want, square), reduce(got, square)
	rows, differ, first := min(a.Bounds().Dy(), b.Bounds().Dy()), 0, image.Point{}
	for y := range rows {
		for x := range a.Bounds().Dx() {
			p, q := a.RGBAAt(x, y), b.RGBAAt(x, y)
			if max(abs(int(p.R)-int(q.R)), abs(int(p.G)-int(q.G)), abs(int(p.B)-int(q.B))) > squareTolerance {
				if differ++; differ == 1 {
					first = image.Pt(x*square, y*square)
				}
			}
		}
	}
	if total := rows * a.Bounds().Dx(); 1000*differ > mayDiffer*total {
		return fmt.Sprintf("%d of %d squares differ, the first at %v", differ, total, first)
	}
	return ""
}

func abs(n int) int { return max(n, -n) }

// Differences that the comparison must find and must ignore.
func TestPictureComparisonFindsDifferences(t *testing.T) {
	read := func(name string) image.Image {
		file, err := os.Open(filepath.Join("testdata", "pictures", name+".png"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		p, err := png.Decode(file)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	overview := read("front-door-overview-1440-light")
	blurred := image.NewRGBA(overview.Bounds())
	for y := range blurred.Bounds().Dy() {
		for x := range blurred.Bounds().Dx() {
			r, g, b, _ := overview.At(min(x+1, blurred.Bounds().Dx()-1), y).RGBA()
			r2, g2, b2, _ := overview.At(x, y).RGBA()
			blurred.SetRGBA(x, y, color.RGBA{uint8((r + r2) >> 9), uint8((g + g2) >> 9), uint8((b + b2) >> 9), 255})
		}
	}
	if why := pictureDiffers(overview, blurred); why != "" {
		t.Errorf("pictureDiffers for letters half a pixel off = %s, want no difference", why)
	}
	missing := image.NewRGBA(overview.Bounds())
	for y := range missing.Bounds().Dy() {
		for x := range missing.Bounds().Dx() {
			if y > 120 && y < 160 {
				missing.Set(x, y, color.White)
			} else {
				missing.Set(x, y, overview.At(x, y))
			}
		}
	}
	for what, p := range map[string]image.Image{
		"the dark scheme": read("front-door-overview-1440-dark"), "another section": read("front-door-timeline-1440-light"), "a line that is missing": missing,
	} {
		if pictureDiffers(overview, p) == "" {
			t.Errorf("pictureDiffers for %s found no difference, want one", what)
		}
	}
}

// awaited waits for a promise.
func awaited(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
